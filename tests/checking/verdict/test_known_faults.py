"""What is known: entries that speak of checks that exist and of code that is there, and evidence before belief."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest
import torch
import transformers
from transformers.models.zamba2 import modeling_zamba2

from clockhands.checking.checks.check import CHECKS
from clockhands.checking.models.adapter import ModuleAdapter
from clockhands.checking.models.make_subjects import from_build, from_model
from clockhands.checking.models.tiny import find, make_position_audible
from clockhands.checking.verdict import known_faults as known
from clockhands.checking.verdict.known_faults import EVIDENCE, mask_calls
from clockhands.checking.verdict.outcome import Outcome
from tests.checking.checks import planted
from tests.conformance.scripts import matrix

FOLDER = Path(__file__).parents[3] / "docs" / "conformance"
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


def copies(code: str) -> int:
    """In how many folders of models a line stands; a line outside of that folder is everybody's."""
    file, _, text = code.partition(": ")
    root = Path(transformers.__file__).parent
    if not file.startswith("models/"):
        return len(list((root / "models").iterdir()))
    return len({path.parent for path in (root / "models").glob("*/modeling_*.py") if text in path.read_text("utf8")})


def test_what_is_called_the_fault_of_the_library_is_code_that_many_models_share() -> None:
    """Five types of models at least, by its entries or by the copies of its lines, or a file that is no model's."""
    for cause in {entry.cause for entry in known.read_entries() if entry.verdict == "LIBRARY"}:
        entries = [entry for entry in known.read_entries() if entry.cause == cause]
        types = {each for entry in entries for each in entry.types}
        lines = [copies(code) for entry in entries for code in entry.code]
        assert "*" in types or len(types) >= 5 or min(lines) >= 5, cause


def test_no_cause_of_the_shipped_matrix_is_called_a_models_own_that_five_builds_have() -> None:
    data = matrix.read_matrix(FOLDER)
    own = {cause["cause"]: cause["models"] for cause in data["causes"] if not cause["library"]}
    assert max(len(models) for models in own.values()) < 5
    shared = {cause["cause"] for cause in data["causes"] if cause["library"]}
    assert not shared & set(own), "one cause is one finding"


def test_roberta_generates_from_zero_and_another_fault_of_generation_is_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = Outcome("generate.forward", "FAIL", 1.0)
    assert known.find_fault(subject("roberta:causal"), outcome, "roberta:causal") is not None
    assert EVIDENCE["generates_from_zero"](subject("bert:causal"), "generate.forward") is None
    owner = type(subject("roberta:causal").module)
    original = owner._prepare_position_ids_for_generation
    monkeypatch.setattr(owner, "_prepare_position_ids_for_generation", lambda self, *given: original(self, *given) + 1)
    assert known.find_fault(subject("roberta:causal"), outcome, "roberta:causal") is None


def test_frequencies_that_the_library_keeps_are_told_from_those_of_a_models_own_code() -> None:
    shown = EVIDENCE["keeps_stretched"]
    assert shown(subject("llama+dynamic:causal"), "state.medium") == ""
    assert shown(subject("llama+yarn:causal"), "state.medium") is None
    (plain,) = from_model(ModuleAdapter(planted.GapsAreBorders(), planted.VOCABULARY))
    plain.module.rope_type, plain.module.max_seq_len_cached = "dynamic", 44
    assert shown(plain, "state.medium") is None


def test_a_cache_that_is_wrong_by_more_than_the_clamp_is_the_models_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = EVIDENCE["scan_alone_clamps"]
    assert shown(subject("zamba2:causal"), "cache.steps") == ""
    assert shown(subject("llama:causal"), "cache.steps") is None
    original = modeling_zamba2.mamba2_selective_state_update
    monkeypatch.setattr(
        modeling_zamba2,
        "mamba2_selective_state_update",
        lambda state, *given, **named: original(state.zero_(), *given, **named),
    )
    assert shown(subject("zamba2:causal"), "cache.steps") is None


def test_every_failure_of_the_shipped_matrix_has_its_line() -> None:
    data = matrix.read_matrix(FOLDER)
    failing = [data["verdicts"].index(verdict) for verdict in ("FAIL", "LIBRARY")]
    cells = [(row["model"], check, cell) for row in data["rows"] for check, cell in row["cells"].items()]
    failures = [(model, check, cell) for model, check, cell in cells if cell[0] in failing]
    assert len(failures) == data["counts"]["FAIL"] + data["counts"]["LIBRARY"] > 200
    for model, check, (_, _, _, _, cause, _, where, thread) in failures:
        assert data["texts"][cause], f"{model} {check}: no cause"
        assert PLACE.search(data["texts"][where]), f"{model} {check}: no line"
        assert data["texts"][thread], f"{model} {check}: not said whether a thread was found"
    assert [row["model"] for row in data["rows"] if row["fault"]] == []
