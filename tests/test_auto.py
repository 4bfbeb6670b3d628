"""Importing ``clockhands`` changes nothing; importing ``clockhands.auto`` makes transformers open its models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from transformers import AutoConfig

from clockhands.model.huggingface_base import ClockhandsConfig
from tests.model.tiny import model


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_is_cheap_and_installs_no_import_hook() -> None:
    code = (
        "import sys; before = list(sys.meta_path); import clockhands; assert sys.meta_path == before; "
        "print([m for m in ('torch', 'numpy', 'transformers') if m in sys.modules])"
    )
    assert run(code).strip() == "[]"


def test_auto_classes_open_a_run_after_the_import(tmp_path: Path) -> None:
    model("encoder-decoder").save_pretrained(tmp_path)
    code = f"""
import clockhands.auto
from transformers import AutoModelForSeq2SeqLM
print(type(AutoModelForSeq2SeqLM.from_pretrained({str(tmp_path)!r})))
"""
    assert "ClockhandsForSeq2SeqLM" in run(code)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), ClockhandsConfig)
