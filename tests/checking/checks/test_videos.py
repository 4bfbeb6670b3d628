"""Videos in the text of Qwen2-VL: sound once its faults are mended, and each mistake that is planted is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

from clockhands.checking.checks.check import select
from clockhands.checking.models.builds import find
from clockhands.checking.models.images import count_positions, draw_row
from clockhands.checking.models.make_subjects import from_build
from clockhands.checking.verdict.run import run_checks

from .prompts import drop_mask, drop_positions, find_failing

Patch = pytest.MonkeyPatch
CHECKS = {check.name: check for check in select(["videos"])}


def go_on_from_text(patch: Patch, owner: Any = Qwen2VLModel) -> None:
    """What is decoded goes on from the last token of the text, as the text itself does."""
    original = owner.get_rope_index

    def mended(self: Any, input_ids: Any, *given: Any, attention_mask: Any = None, **named: Any) -> Any:
        positions, _ = original(self, input_ids, *given, attention_mask=attention_mask, **named)
        lengths = input_ids.shape[1] if attention_mask is None else attention_mask.sum(-1, keepdim=True)
        return positions, positions[0, :, -1:] + 1 - lengths

    patch.setattr(owner, "get_rope_index", mended)


def test_a_model_whose_fault_is_mended_passes_every_check(monkeypatch: Patch) -> None:
    go_on_from_text(monkeypatch, Qwen2_5_VLModel)
    assert find_failing(CHECKS, CHECKS, "qwen2_5_vl") == set()


def test_the_fault_of_the_library_is_named() -> None:
    (subject,) = from_build(find("qwen2_vl")[0])
    found = {outcome.check: outcome for outcome in run_checks(subject, CHECKS.values(), "qwen2_vl:causal")}
    faults = {name for name, outcome in found.items() if outcome.verdict != "PASS"}
    assert faults == {"videos.steps", "videos.resume", "videos.time"}
    assert found["videos.steps"].verdict == "LIBRARY"
    assert found["videos.steps"].where.count("modeling_qwen2_vl.py:") == 2
    assert found["videos.time"].verdict == "N/A", "Qwen2-VL counts frames, not seconds"


PLANTED: dict[str, tuple[Callable[[Patch], None], set[str]]] = {
    "deltas from the largest position": (lambda patch: None, {"videos.steps", "videos.resume"}),
    "positions dropped": (drop_positions, {"videos.chunks", "videos.packing"}),
    "mask dropped": (drop_mask, {"videos.left_padded", "videos.batch"}),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_each_planted_mistake_is_found(bug: str, monkeypatch: Patch) -> None:
    plant, names = PLANTED[bug]
    plant(monkeypatch)
    assert find_failing(CHECKS, names) == names


def test_seconds_that_never_reach_the_positions_are_found(monkeypatch: Patch) -> None:
    original = Qwen2_5_VLModel.get_rope_index

    def timeless(self: Any, *given: Any, second_per_grid_ts: Any = None, **named: Any) -> Any:
        return original(self, *given, **named)

    monkeypatch.setattr(Qwen2_5_VLModel, "get_rope_index", timeless)
    assert find_failing(CHECKS, {"videos.time"}, "qwen2_5_vl") == {"videos.time"}


def test_every_check_is_broken_by_a_mistake() -> None:
    assert {"videos.time"}.union(*(names for _, names in PLANTED.values())) == set(CHECKS)


def test_the_positions_are_those_of_the_paper() -> None:
    """Qwen2-VL (section 2.1): text counts on all axes; a video counts frames, rows and columns from where it begins."""
    (subject,) = from_build(find("qwen2_vl")[0])
    prompt = draw_row(subject, [1, ((2, 4, 2), True), 1])
    # t17 <start> four tokens, two frames of two rows and one column <end> t42
    start = 2
    video = [[start + frame, start + row, start] for frame in range(2) for row in range(2)]
    expected = [[0] * 3, [1] * 3, *video, [start + 2] * 3, [start + 3] * 3]
    assert count_positions(subject, prompt)[:, 0].T.tolist() == expected
