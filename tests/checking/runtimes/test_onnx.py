"""Exports in ONNX Runtime: sound ones raise no alarm, planted faults are found and named."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx", reason="exports need onnx: pip install '.[engines]'")
pytest.importorskip("onnxruntime", reason="exports need onnxruntime: pip install '.[engines]'")

from clockhands.checking.against import Deviation, compare_subjects
from clockhands.checking.examination import check_subject
from clockhands.checking.models import make_subjects
from clockhands.checking.result import Result
from clockhands.checking.runtimes.onnx import OnnxProgram
from clockhands.checking.runtimes.program import open_program
from clockhands.cli import main
from clockhands.errors import CheckpointError
from tests.checking.runtimes.exports import ROPE, YARN, drop, export, gpt2, llama, make, quantise, unpermuted

MODELS: dict[str, Callable[[], Any]] = {"rope": llama, "yarn": lambda: llama(YARN), "learned": gpt2}
CHANGED: dict[str, Callable[[Any], Any]] = {
    "unpermuted": unpermuted,
    "no yarn": lambda model: drop(model, ROPE),
    "no temperature": lambda model: drop(model, {**YARN, "attention_factor": 1.0}),
    "another base": lambda model: drop(model, {**ROPE, "rope_theta": 10_000.0}),
}
CALLS = "positions are counted from the beginning of each call"
UNSEEN = "what is in the KV cache is not seen"
PADS = "the pads are seen: the mask is lost"
CACHED = {f"cache.{name}" for name in ("steps", "chunks", "rollback", "mask", "left_mask", "prefix", "reorder")}
UNEQUAL = {"cache.padded", "cache.prefill", "cache.rollback_rows"}
FAULTS: dict[tuple[str, str], tuple[set[str], str]] = {
    ("rope", "clamped"): ({"shift", "reference"}, "positions stop at 15: a table frozen at 16 positions"),
    ("rope", "wrapped"): ({"shift", "reference"}, "positions begin again after 16: a table frozen at 16 positions"),
    ("rope", "cut"): (set(), "no text of more than 16 tokens is read: a table ends there"),
    ("rope", "baked"): (set(), "only texts of 16 tokens are read: the length of the example is frozen"),
    ("rope", "zero"): ({"positions.matter", "reference"}, "all tokens stand at position 0: positions are lost"),
    ("rope", "lost"): (CACHED, CALLS),
    ("rope", "maskless"): (UNEQUAL | {"padding.left.mask", "padding.left.positions", "padding.content"}, PADS),
    ("rope", "no past"): (CACHED | UNEQUAL, UNSEEN),
    ("rope", "unpermuted"): ({"reference"}, "q and k are not permuted"),
    ("rope", "another base"): ({"reference"}, "the base is 10,000 in place of 500,000"),
    ("yarn", "no yarn"): ({"reference"}, "the scaling 'yarn' is dropped"),
    ("yarn", "no temperature"): ({"reference"}, "YaRN without its attention factor"),
    ("learned", "clamped"): ({"reference"}, "positions stop at 15: a table frozen at 16 positions"),
    ("learned", "lost"): (CACHED | {"padding.left.mask"}, "the pads are counted: positions begin at the first pad"),
    ("learned", "first row"): ({"cache.prefill", "cache.rollback_rows"}, "rows get the positions or the mask of"),
    ("learned", "late"): ({"length.claimed", "length.mask", "reference"}, "positions begin 2 too late"),
}
"""What each fault breaks, "reference" for the comparison with it, and the words that name it."""
FAST = [("rope", "clamped"), ("rope", "lost"), ("rope", "unpermuted"), ("yarn", "no yarn"), ("learned", "late")]


@cache
def model(kind: str, seed: int = 0) -> Any:
    return make(MODELS[kind](), seed)


def check(kind: str, fault: str, folder: Path, small: bool, seed: int = 0) -> tuple[Result, Deviation | None]:
    changed = CHANGED[fault](model(kind, seed)) if fault in CHANGED else model(kind, seed)
    path = export(changed, folder / "model.onnx", "sound" if fault in CHANGED else fault)
    reference = make_subjects.from_model(model(kind, seed))[0]
    subject = open_program(str(quantise(path) if small else path), reference=reference)
    result = check_subject(subject)
    return result, None if result.fault else compare_subjects(subject, reference)


def list_failed(result: Result, deviation: Deviation | None) -> set[str]:
    failed = {outcome.check for outcome in result.outcomes if outcome.verdict == "FAIL"}
    return failed if deviation is None or deviation.same else failed | {"reference"}


def check_fault(kind: str, fault: str, folder: Path, small: bool) -> None:
    (result, deviation), (laws, words) = check(kind, fault, folder, small), FAULTS[kind, fault]
    assert list_failed(result, deviation) == laws and result.failed == (laws != {"reference"})
    causes = {outcome.cause for outcome in result.outcomes if outcome.verdict == "FAIL"} | {result.fault}
    assert any(words in cause for cause in causes | {deviation.explanation if deviation else ""}), causes


@pytest.mark.parametrize("small", [False, True], ids=["float32", "int8"])
@pytest.mark.parametrize("kind", MODELS)
def test_a_sound_export_raises_no_alarm(kind: str, small: bool, tmp_path: Path) -> None:
    result, deviation = check(kind, "sound", tmp_path, small)
    warned = {outcome.check: outcome.verdict for outcome in result.outcomes if outcome.verdict not in ("PASS", "N/A")}
    assert warned == ({"shift": "PROPERTY", "length.beyond": "WARN"} if kind == "learned" else {}), result.as_dict()
    assert deviation is not None and deviation.same and result.rely()["cached decoding"] is True
    assert result.count("PASS") >= 29


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 8))
@pytest.mark.parametrize("small", [False, True], ids=["float32", "int8"])
@pytest.mark.parametrize("kind", MODELS)
def test_no_sound_export_raises_an_alarm(kind: str, small: bool, seed: int, tmp_path: Path) -> None:
    assert list_failed(*check(kind, "sound", tmp_path, small, seed)) == set()


@pytest.mark.parametrize(("kind", "fault"), FAST)
def test_a_fault_of_the_export_is_named(kind: str, fault: str, tmp_path: Path) -> None:
    check_fault(kind, fault, tmp_path, small=False)


@pytest.mark.slow
@pytest.mark.parametrize("small", [False, True], ids=["float32", "int8"])
@pytest.mark.parametrize(("kind", "fault"), FAULTS)
def test_every_fault_of_an_export_is_named(kind: str, fault: str, small: bool, tmp_path: Path) -> None:
    check_fault(kind, fault, tmp_path, small)


def test_the_command_checks_an_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = model("rope")
    original.save_pretrained(tmp_path / "llama")
    sound = str(export(original, tmp_path / "sound.onnx"))
    assert main(["check", sound, "--against", str(tmp_path / "llama"), "--report", str(tmp_path / "page")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "the logits are the same, within" in out
        and f"PASS {sound}: no fault of its own" in out
        and "onnxruntime" in out
    )
    assert "Does it compute what" in (tmp_path / "page" / "index.html").read_text("utf8")
    broken = str(export(unpermuted(original), tmp_path / "broken.onnx"))
    assert main(["check", broken]) == 0
    assert main(["check", broken, "--against", str(tmp_path / "llama")]) == 1
    assert "q and k are not permuted" in capsys.readouterr().out
    assert main(["check", broken, "--tiny"]) == 2
    assert "does not go with --tiny" in capsys.readouterr().err


def test_what_is_no_export_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "none.onnx")]) == 2
    assert "none.onnx is no file" in capsys.readouterr().err
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    assert main(["check", str(broken)]) == 1
    assert "cannot be opened by ONNX Runtime" in capsys.readouterr().err
    assert main(["check", str(broken), "--only", "cache.stps"]) == 2
    assert "did you mean 'cache.steps'" in capsys.readouterr().err


def test_a_graph_with_other_inputs_is_refused(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    kind = TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(name, kind, [1]) for name in ("pixels", "scores")]
    graph = helper.make_graph([helper.make_node("Identity", ["pixels"], ["scores"])], "g", ends[:1], ends[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "image.onnx")
    with pytest.raises(CheckpointError, match="has no input_ids and has no logits and needs pixels"):
        OnnxProgram(str(tmp_path / "image.onnx"))


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    from clockhands.errors import UsageError

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match=r"needs the package 'onnxruntime'.*pip install '\.\[engines\]'"):
        OnnxProgram("model.onnx")
