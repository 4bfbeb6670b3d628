"""What is known: entries that speak of checks that exist and of code that is there, and evidence before belief."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path

import pytest
import torch
import transformers

from clockhands.checking.checks.check import CHECKS
from clockhands.checking.models.adapter import ModuleAdapter
from clockhands.checking.models.builds import find
from clockhands.checking.models.make_subjects import from_build, from_model
from clockhands.checking.models.tiny import make_position_audible
from clockhands.checking.verdict import known_faults as known
from clockhands.checking.verdict.evidence import EVIDENCE, mask_calls
from clockhands.checking.verdict.outcome import Outcome
from tests.checking.checks import planted

MATRIX = Path(__file__).parents[3] / "docs/conformance/matrix.json"
PLACE = re.compile(r"[\w/]+\.py:\d+")


def names(architecture: str, check: str) -> list[str]:
    return [entry.name for entry in known.find_entries(architecture, check)]


def subject(name: str):  # type: ignore[no-untyped-def]
    return from_build(find(name)[0])[0]


@pytest.mark.parametrize("entry", known.read_entries(), ids=lambda entry: entry.name)
def test_an_entry_speaks_of_checks_evidence_and_code_that_exist(entry: known.KnownFault) -> None:
    for pattern in entry.checks:
        assert fnmatch.filter(CHECKS, pattern), f"no check fits {pattern}"
    assert not entry.evidence or entry.evidence in EVIDENCE
    assert entry.code or entry.evidence, "neither a line nor evidence"
    assert entry.verdict in ("PROPERTY", "WARN") or entry.thread, "a fault says whether a thread was found"
    if transformers.__version__ == entry.traced:
        for each in entry.types:
            assert len(entry.find_lines(each)) == len(entry.code), "a line of code is not there"


def test_the_line_of_a_text_is_found_and_none_for_what_is_not_there(tmp_path: Path) -> None:
    place = known.find_line("masking_utils.py", "def find_packed_sequence_indices(")
    file, _, number = place.partition(":")
    source = (Path(transformers.__file__).parent / file).read_text().splitlines()
    assert source[int(number) - 1].startswith("def find_packed_sequence_indices(")
    assert known.find_line("masking_utils.py", "def of_no_such_name(") == ""
    assert known.find_line("no_such_file.py", "x") == ""


def test_an_entry_is_for_its_architecture_and_variant() -> None:
    assert names("dbrx:causal", "config.theta") == ["dbrx-theta"]
    assert names("falcon:causal", "attention.sdpa") == []
    assert names("falcon+alibi:causal", "attention.sdpa") == ["falcon-alibi-eager"]


def test_the_masks_a_model_makes_are_seen_with_their_lines() -> None:
    (bare,) = mask_calls(subject("opt:causal"))
    assert (bare.maker, bare.positioned) == ("create_causal_mask", False)
    assert re.fullmatch(r"modeling_opt\.py:\d+", bare.line)
    assert all(call.positioned for call in mask_calls(subject("llama:causal")))
    (all_kinds,) = mask_calls(subject("gemma3:causal"))
    assert (all_kinds.maker, all_kinds.positioned) == ("create_masks_for_generate", True)


def test_a_shared_cause_is_not_told_of_a_model_that_does_not_show_it() -> None:
    """A plain module that cuts at gaps does so by its own code, not by that of transformers."""
    torch.manual_seed(0)
    (plain,) = from_model(ModuleAdapter(make_position_audible(planted.GapsAreBorders()), planted.VOCABULARY))
    gaps = Outcome("packing.gaps", "FAIL", 1.0)
    assert known.find_fault(plain, gaps, "GapsAreBorders") is None
    entry, where = known.find_fault(subject("llama:causal"), gaps, "llama:causal") or pytest.fail("not found")
    assert "border of a document" in entry.cause
    assert re.fullmatch(r"modeling_llama\.py:\d+ create_causal_mask, masking_utils\.py:\d+", where)


def test_where_the_library_makes_the_table_is_told() -> None:
    outcome = Outcome("precision.to", "FAIL", 1.0)
    _, where = known.find_fault(subject("llama:causal"), outcome, "llama:causal") or pytest.fail("not found")
    assert re.fullmatch(r"modeling_llama\.py:\d+ LlamaRotaryEmbedding", where)


def test_every_failure_of_the_shipped_matrix_has_its_line() -> None:
    data = json.loads(MATRIX.read_text("utf8"))
    failing = [data["verdicts"].index(verdict) for verdict in ("FAIL", "LIBRARY")]
    cells = [(row["model"], check, cell) for row in data["rows"] for check, cell in row["cells"].items()]
    failures = [(model, check, cell) for model, check, cell in cells if cell[0] in failing]
    assert len(failures) == data["counts"]["FAIL"] + data["counts"]["LIBRARY"] > 200
    for model, check, (_, _, _, _, cause, _, where, thread) in failures:
        assert data["texts"][cause], f"{model} {check}: no cause"
        assert PLACE.search(data["texts"][where]), f"{model} {check}: no line"
        assert data["texts"][thread], f"{model} {check}: not said whether a thread was found"
    assert [row["model"] for row in data["rows"] if row["fault"]] == []
