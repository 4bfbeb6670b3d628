"""GGUF files in llama.cpp: sound ones raise no alarm, mistakes of conversion are found and named."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="GGUF files need llama-cpp-python: pip install 'clockhands[engines]'")
pytest.importorskip("gguf", reason="GGUF files are written with gguf: pip install 'clockhands[engines]'")

from clockhands.checking.models import make_subjects
from clockhands.checking.result import Result
from clockhands.checking.runtimes.examination import run_laws
from clockhands.checking.runtimes.programs.llama_cpp import LlamaCpp
from clockhands.checking.runtimes.reference import Reference
from clockhands.checking.runtimes.runtime import Way
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


def check(kind: str, fault: str, folder: Path, small: bool, seed: int = 0) -> Result:
    path = write_gguf(model(kind, seed), folder / "model.gguf", fault, small)
    return run_laws(LlamaCpp(str(path)), Reference(make_subjects.from_model(model(kind, seed))[0]))


def list_verdicts(result: Result, verdict: str) -> dict[str, str]:
    return {outcome.check: outcome.cause for outcome in result.outcomes if outcome.verdict == verdict}


@pytest.mark.parametrize("small", [False, True], ids=["float32", "int8"])
def test_a_sound_file_raises_no_alarm(small: bool, tmp_path: Path) -> None:
    result = check("rope", "sound", tmp_path, small)
    assert {outcome.verdict for outcome in result.outcomes} == {"PASS", "N/A"}, result.as_dict()
    assert set(list_verdicts(result, "N/A")) == {"runtime.left", "runtime.padded_chunks", "runtime.positions"}
    assert result.rely()["prefix cache"] is True


def test_llama_cpp_scales_moved_keys_twice_under_yarn(tmp_path: Path) -> None:
    """A fault of llama.cpp, not of the file: ``build_rope_shift`` rotates with the temperature, which keys have."""
    result = check("yarn", "sound", tmp_path, small=False)
    assert not result.failed and list_verdicts(result, "LIBRARY") == {"runtime.moved_cache": TWICE}
    assert result.rely()["moved positions"] is False and result.rely()["cached decoding"] is True


@pytest.mark.parametrize("small", [False, True], ids=["float32", "int8"])
@pytest.mark.parametrize(("kind", "fault"), FAULTS)
def test_a_mistake_of_the_conversion_is_named(kind: str, fault: str, small: bool, tmp_path: Path) -> None:
    ((law, cause),) = list_verdicts(check(kind, fault, tmp_path, small), "FAIL").items()
    assert law == "runtime.reference" and FAULTS[kind, fault] in cause


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 8))
@pytest.mark.parametrize("small", [False, True], ids=["float32", "int8"])
@pytest.mark.parametrize("kind", ["rope", "yarn"])
def test_no_sound_file_raises_an_alarm(kind: str, small: bool, seed: int, tmp_path: Path) -> None:
    assert list_verdicts(check(kind, "sound", tmp_path, small, seed), "FAIL") == {}


def test_the_prefix_cache_is_used(tmp_path: Path) -> None:
    """What is in the cache is not read again: a text that begins otherwise in the cache scores as if it stood there."""
    runtime = LlamaCpp(str(write_gguf(model("rope"), tmp_path / "model.gguf")))
    text, other = [*range(20, 40)], [*range(20, 30), *range(60, 70)]
    wanted = runtime.score([other])[0]
    runtime.score([text], Way(reuse=True))
    assert runtime._find_common(other) == 10 and runtime._find_common(text) == 19
    assert runtime.score([other], Way(reuse=True))[0] == pytest.approx(wanted, abs=1e-5)
    runtime.score([text], Way(reuse=True))
    runtime._kept[:10] = other[:10] = range(70, 80)  # the cache says so, and holds the keys of the first text
    assert runtime.score([other], Way(reuse=True))[0][-1] != pytest.approx(runtime.score([other])[0][-1], abs=1e-2)


def test_the_command_checks_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model("rope").save_pretrained(tmp_path / "llama")
    path = str(write_gguf(model("rope"), tmp_path / "broken.gguf", "unpermuted"))
    assert main(["check", path, "--against", str(tmp_path / "llama")]) == 1
    assert "q and k are not permuted" in capsys.readouterr().out
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF and nothing else")
    assert main(["check", str(tmp_path / "damaged.gguf")]) == 1
    assert "cannot be opened by llama.cpp" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "none.gguf")]) == 2
