"""Schemes, attention and positions work with torch, numpy and jaxtyping alone; a verb says what else it needs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
WORKBENCH = [re.split(r"[>=\[]", need)[0] for need in PROJECT["optional-dependencies"]["workbench"]]
WITHOUT = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {sorted({*WORKBENCH, "tomli_w"} - {"torch"})!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.split(".")[0])
sys.meta_path.insert(0, Absent())
"""
"""Makes the packages of the workbench look absent, as where ``pip install .`` alone was run."""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, timeout=120, cwd=ROOT)


def test_the_core_depends_on_three_packages() -> None:
    assert [re.split(r"[>=]", need)[0] for need in PROJECT["dependencies"]] == ["torch", "numpy", "jaxtyping"]


def test_schemes_and_attention_work_without_the_workbench() -> None:
    done = run(
        "import torch\nfrom clockhands import positions, schemes\nfrom clockhands.attention import attend\n"
        "q, pos = torch.ones(1, 2, 3, 8), positions.count_up(1, 3)\n"
        "print(tuple(attend(schemes.RoPE(8), q, q, q, pos, pos).shape))\n"
    )
    assert done.stdout == "(1, 2, 3, 8)\n", done.stderr


VERBS = {
    "train": ["--preset", "tiny", "--out", "x"], "translate": ["runs/x", "zwei"], "inspect": ["runs/x"],
    "check": ["--type", "llama", "--tiny"], "compare": ["x"], "extend": ["x"], "explore": [], "tour": [],
}  # fmt: skip


def test_a_verb_without_the_workbench_says_which_extra_to_install() -> None:
    calls = "\n".join(f"print(main({[verb, *words]!r}))" for verb, words in VERBS.items())
    done = run(f"from clockhands.cli import main\n{calls}")
    assert done.stdout.split() == ["2"] * len(VERBS), done.stderr
    said = done.stderr.splitlines()
    assert len(said) == len(VERBS), done.stderr
    for verb, line in zip(VERBS, said, strict=True):
        assert re.match(rf"clockhands: clockhands {verb} needs the package '\w+', which is not installed", line)
        assert line.endswith("pip install '.[workbench]'")


def test_help_and_schemes_need_no_workbench_and_python_names_say_the_extra() -> None:
    done = run("from clockhands.cli import main\nsys.exit(main(['--help']))")
    assert done.returncode == 0, done.stderr
    done = run("import clockhands\nclockhands.train")
    assert "MissingPackageError: clockhands.train needs the package" in done.stderr
