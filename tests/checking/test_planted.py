"""For every check a correct model passes, and the same model with one planted bug fails where it should, only there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.checking.adapter import ModuleAdapter
from clockhands.checking.builds import loud
from clockhands.checking.runner import run, select
from clockhands.checking.subjects import from_model
from tests.checking import planted as p

STEPS = {"cache.steps", "cache.chunks"}
LEFT = {"padding.left.mask", "padding.left.positions", "padding.content", "cache.padded"}

# What each bug must break: FAIL unless noted. Nothing else may fail.
PLANTED: dict[type[p.Correct], set[str]] = {
    p.NoCausalMask: STEPS | {"causal.future", "causal.prefix", "cache.rollback", "cache.padded", "packing.block_mask"},
    p.OffsetDropped: STEPS | {"cache.rollback"},
    p.PadsRead: LEFT,
    p.PadsReadByEncoder: LEFT - {"cache.padded"} | {"padding.right"},
    p.PositionsDropped: {"positions.matter", "cache.steps", "cache.chunks", "cache.rollback", "cache.padded"},
    p.OnePositionForAllRows: {"cache.padded"},
    p.DraftsStay: {"cache.rollback"},
    p.WindowCut: STEPS | {"cache.padded"},
    p.BagOfWords: {"order.matters", "positions.matter"},
    p.RowTable: {"batch.alone", "batch.order", "causal.future"},
    p.MismatchedPairs: {"shift"},
    p.OneDocument: {"packing.positions"},
    p.BlockMaskFlattened: {"packing.block_mask"},
    p.GapsAreBorders: {"packing.gaps"},
    p.TableFollowsTheCast: {"precision.to"},
    p.AnglesInLowPrecision: {"precision.distance"},
    p.TableNotSaved: {"load.meta"},
    p.GrowingTable: {"load.state"},
    p.StretchedForGood: {"state.short", "state.medium"},
    p.ExplicitOffByOne: {"positions.explicit", "padding.left.positions", "cache.padded"},
    p.ScaledByLength: LEFT - {"padding.content"}
    | STEPS
    | {"causal.prefix", "padding.right", "cache.rollback", "packing.positions", "packing.block_mask"},
    p.TableTooShort: {"length.claimed"},
}


def adapter(kind: type[p.Correct], seed: int = 0) -> ModuleAdapter:
    torch.manual_seed(seed)
    made = ModuleAdapter(loud(kind(), seed), p.VOCABULARY)
    made.fresh = lambda: ModuleAdapter(kind(), p.VOCABULARY)
    return made


def verdicts(kind: type[p.Correct], only: list[str] | None = None, **extra: Any) -> dict[str, str]:
    made = adapter(kind)
    for name, value in extra.items():
        setattr(made, name, value)
    (subject,) = from_model(made, kind.__name__)
    return {outcome.check: outcome.verdict for outcome in run(subject, select(only))}


def named(found: dict[str, str], verdict: str) -> set[str]:
    return {check for check, each in found.items() if each == verdict}


@pytest.mark.parametrize("kind", [p.Correct, p.Absolute, p.Encoder])
def test_a_correct_model_passes(kind: type[p.Correct]) -> None:
    found = verdicts(kind)
    assert named(found, "FAIL") == set()
    assert named(found, "WARN") == set()
    properties = {"shift"} if kind is p.Absolute else set()
    assert named(found, "PROPERTY") == properties
    assert len(named(found, "PASS")) >= 18


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_one_bug_fails_its_checks_and_no_others(kind: type[p.Correct]) -> None:
    assert named(verdicts(kind), "FAIL") == PLANTED[kind]


def test_dropout_left_on_is_no_determinism() -> None:
    assert verdicts(p.DropoutLeftOn, ["deterministic"])["deterministic"] == "FAIL"


def test_absolute_positions_that_count_the_pads_are_a_property_and_no_fault() -> None:
    found = verdicts(p.CountedFromTheFirstPad, ["padding"])
    assert found["padding.left.mask"] == "PROPERTY"
    assert found["padding.left.positions"] == "PASS"


def test_a_bare_index_error_beyond_the_table_is_a_warning() -> None:
    assert verdicts(p.BareIndexError, ["length"]) == {"length.claimed": "PASS", "length.beyond": "WARN"}
    assert verdicts(p.Absolute, ["length"])["length.beyond"] == "PASS"


def test_what_an_adapter_does_not_take_is_not_judged() -> None:
    found = verdicts(p.Encoder, ["cache", "causal"])
    assert set(found.values()) == {"N/A"}
