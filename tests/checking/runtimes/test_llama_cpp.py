"""GGUF files in llama.cpp: sound ones raise no alarm, mistakes of conversion are found and named."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("llama_cpp", reason="GGUF files need llama-cpp-python: pip install '.[engines]'")
pytest.importorskip("gguf", reason="GGUF files are written with gguf: pip install '.[engines]'")

from clockhands.checking.against import Deviation, compare_subjects
from clockhands.checking.examination import check_subject
from clockhands.checking.models import make_subjects
from clockhands.checking.result import Result
from clockhands.checking.runtimes.llama_cpp import LlamaCpp
from clockhands.checking.runtimes.program import open_program
from clockhands.cli import main
from tests.checking.runtimes.exports import YARN, llama, make
from tests.checking.runtimes.ggufs import write_gguf

FAULTS = {
    ("rope", "unpermuted"): "q and k are not permuted",
    ("rope", "another base"): "the base is 10,000 in place of 500,000",
    ("yarn", "no yarn"): "the scaling 'yarn' is dropped",
}
TWICE = "keys that are moved are multiplied by YaRN's temperature (1.139) once more"


@cache
def model(kind: str, seed: int = 0) -> Any:
    return make(llama(YARN) if kind == "yarn" else llama(), seed)


def check(kind: str, fault: str, folder: Path, small: bool, seed: int = 0) -> tuple[Result, Deviation]:
    path = write_gguf(model(kind, seed), folder / "model.gguf", fault, small)
    reference = make_subjects.from_model(model(kind, seed))[0]
    subject = open_program(str(path), reference=reference)
    return check_subject(subject), compare_subjects(subject, reference)


def list_verdicts(result: Result, verdict: str) -> dict[str, str]:
    return {outcome.check: outcome.cause for outcome in result.outcomes if outcome.verdict == verdict}


@pytest.mark.parametrize("small", [False, True], ids=["float32", "int8"])
def test_a_sound_file_raises_no_alarm(small: bool, tmp_path: Path) -> None:
    result, deviation = check("rope", "sound", tmp_path, small)
    assert {outcome.verdict for outcome in result.outcomes} == {"PASS", "N/A"}, result.as_dict()
    passed = set(list_verdicts(result, "PASS"))
    assert passed > {"cache.steps", "cache.chunks", "cache.rollback", "cache.reused", "cache.moved", "shift"}
    assert deviation.same and result.rely()["prefix cache"] is True


def test_llama_cpp_scales_moved_keys_twice_under_yarn(tmp_path: Path) -> None:
    """A fault of llama.cpp, not of the file: ``build_rope_shift`` rotates with the temperature, which keys have."""
    result, deviation = check("yarn", "sound", tmp_path, small=False)
    assert deviation.same and list_verdicts(result, "FAIL") == {}
    assert list_verdicts(result, "LIBRARY") == {"cache.moved": TWICE}
    assert result.rely()["moved positions"] is False and result.rely()["cached decoding"] is True


@pytest.mark.parametrize("small", [False, True], ids=["float32", "int8"])
@pytest.mark.parametrize(("kind", "fault"), FAULTS)
def test_a_mistake_of_the_conversion_is_named(kind: str, fault: str, small: bool, tmp_path: Path) -> None:
    result, deviation = check(kind, fault, tmp_path, small)
    assert list_verdicts(result, "FAIL") == {} and not deviation.same and FAULTS[kind, fault] in deviation.explanation


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 8))
@pytest.mark.parametrize("small", [False, True], ids=["float32", "int8"])
@pytest.mark.parametrize("kind", ["rope", "yarn"])
def test_no_sound_file_raises_an_alarm(kind: str, small: bool, seed: int, tmp_path: Path) -> None:
    result, deviation = check(kind, "sound", tmp_path, small, seed)
    assert list_verdicts(result, "FAIL") == {} and deviation.same


def test_the_prefix_cache_is_used(tmp_path: Path) -> None:
    """What is in the cache is not read again: a text that begins otherwise in the cache scores as if it stood there."""
    program = LlamaCpp(str(write_gguf(model("rope"), tmp_path / "model.gguf")))
    text, other = torch.arange(20, 40)[None], torch.tensor([[*range(20, 30), *range(60, 70)]])
    wanted = program.logits(other)
    program.reuse(text)
    assert torch.allclose(program.reuse(other), wanted, atol=1e-4)
    program.reuse(text)
    other[0, :10] = torch.arange(70, 80)  # the cache says so, and holds the keys of the first text
    program._kept[:10] = range(70, 80)
    assert not torch.allclose(program.reuse(other)[:, 10:], program.logits(other)[:, 10:], atol=1e-2)


def test_the_command_checks_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model("rope").save_pretrained(tmp_path / "llama")
    path = str(write_gguf(model("rope"), tmp_path / "broken.gguf", "unpermuted"))
    assert main(["check", path, "--against", str(tmp_path / "llama")]) == 1
    assert "q and k are not permuted" in capsys.readouterr().out
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF and nothing else")
    assert main(["check", str(tmp_path / "damaged.gguf")]) == 1
    assert "cannot be opened by llama.cpp" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "none.gguf")]) == 2
