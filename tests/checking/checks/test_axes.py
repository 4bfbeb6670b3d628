"""Positions on several axes: a sound model passes, and each mistake that is planted in Qwen2-VL is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel, Qwen2VLTextModel

from clockhands.checking.checks.axes import grid_positions
from clockhands.checking.checks.check import select
from clockhands.checking.models.make_subjects import from_build
from clockhands.checking.models.tiny import find
from clockhands.checking.verdict.judge import run_checks

Patch = pytest.MonkeyPatch
CHECKS = {check.name: check for check in select(["axes"])}


def test_the_grid_is_numbered_as_the_model_itself_numbers_an_image() -> None:
    """An image of 4 by 6 merged patches between 5 and 6 tokens of text, by the library's own function."""
    (subject,) = from_build(find("qwen2_vl")[0])
    model, config = subject.get_module().model, subject.get_module().config
    kinds = torch.tensor([[0] * 5 + [1] * 24 + [0] * 6])
    ids = torch.where(kinds == 1, config.image_token_id, 20)
    grid = torch.tensor([[1, 8, 12]])
    positions, _ = model.get_rope_index(input_ids=ids, mm_token_type_ids=kinds, image_grid_thw=grid)
    assert torch.equal(positions, grid_positions(5, (4, 6), 6))


def failing() -> set[str]:
    (subject,) = from_build(find("qwen2_vl")[0])
    return {name for name, check in CHECKS.items() if not check.measure(subject.copy_untouched()).expected}


def change(patch: Patch, owner: type, adjust: Callable[[Any], Any]) -> None:
    """The positions that ``owner`` is given are others."""
    original = owner.forward  # type: ignore[attr-defined]

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        if named.get("position_ids") is not None and named["position_ids"].dim() == 3:
            named["position_ids"] = adjust(named["position_ids"])
        return original(self, *given, **named)

    patch.setattr(owner, "forward", forward)


def one_axis_lost(positions: torch.Tensor) -> torch.Tensor:
    lost = positions.clone()
    lost[-1] = lost[-2]
    return lost


PLANTED: dict[str, tuple[type, Callable[[Any], Any], set[str]]] = {
    "positions dropped": (Qwen2VLModel, lambda _: None, {"axes.heard", "axes.packing"}),
    "the third axis read from the second": (Qwen2VLModel, one_axis_lost, {"axes.heard"}),
    "the first row's positions for all": (Qwen2VLTextModel, lambda p: p[:, :1].expand_as(p), {"axes.rows"}),
    "the row of documents dropped": (Qwen2VLModel, lambda p: p[-3:], {"axes.packing"}),
    "an axis that starts at one": (
        Qwen2VLModel,
        lambda p: p + torch.tensor([0] * (len(p) - 1) + [1]).view(-1, 1, 1) * p,
        {"axes.equal"},
    ),
    "the axes of a piece counted from 0": (Qwen2VLTextModel, lambda p: p - p[..., :1], {"axes.pieces"}),
}


def test_a_sound_model_passes_and_each_planted_mistake_is_found(monkeypatch: Patch) -> None:
    assert failing() == set()
    for owner, adjust, names in PLANTED.values():
        with monkeypatch.context() as patch:
            change(patch, owner, adjust)
            assert names <= failing()
    assert set().union(*(names for _, _, names in PLANTED.values())) == set(CHECKS)


def test_a_model_with_one_axis_is_not_asked() -> None:
    (subject,) = from_build(find("llama:causal")[0])
    outcomes = run_checks(subject, CHECKS.values(), "llama:causal")
    assert {(outcome.verdict, outcome.reason) for outcome in outcomes} == {("N/A", "the model takes no axes")}
