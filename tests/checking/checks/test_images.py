"""Images in the text of Qwen2-VL: sound once its three faults are mended, and each mistake that is planted is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLForConditionalGeneration, Qwen2VLModel

from clockhands.checking.checks.check import select
from clockhands.checking.models.builds import find
from clockhands.checking.models.make_subjects import from_build
from clockhands.checking.verdict.run import run_checks
from clockhands.model.huggingface_cache import CACHE_NAME

from .prompts import drop_mask, drop_positions, find_failing

Patch = pytest.MonkeyPatch
CHECKS = {check.name: check for check in select(["images"])}
FAULTS = {"images.late", "images.stale", "images.mask"}


def mended(self: Any, attention_mask: Any = None, **given: Any) -> Any:
    """Positions go on from the cache, deltas are those of the row and of this text alone."""
    cache = given.get(CACHE_NAME)
    past = 0 if cache is None else cache.get_seq_length()
    rows, length = given["inputs_embeds"].shape[:2]
    before = self.rope_deltas if past and self.rope_deltas is not None else torch.zeros(rows, 1, dtype=torch.long)
    if given["image_grid_thw"] is not None or given["video_grid_thw"] is not None:
        kept = {name: given[name] for name in ("input_ids", "image_grid_thw", "video_grid_thw", "mm_token_type_ids")}
        own = None if attention_mask is None else attention_mask[:, -length:]
        positions, deltas = self.get_rope_index(**kept, attention_mask=own)
        self.rope_deltas = before + deltas
        return positions + past + before
    self.rope_deltas = before
    line = torch.arange(past, past + length).expand(rows, -1)
    if attention_mask is not None:
        line = (attention_mask.long().cumsum(-1) - 1)[:, -length:].clamp(min=0)
    return (line + before).expand(3, -1, -1)


def test_a_model_whose_faults_are_mended_passes_every_check(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Qwen2VLModel, "compute_3d_position_ids", mended)
    assert find_failing(CHECKS, CHECKS) == set()


def test_the_faults_of_the_library_are_named() -> None:
    (subject,) = from_build(find("qwen2_vl")[0])
    found = {outcome.check: outcome for outcome in run_checks(subject, CHECKS.values(), "qwen2_vl:causal")}
    assert {name for name, outcome in found.items() if outcome.verdict == "LIBRARY"} == FAULTS
    assert all(found[name].where.startswith("modeling_qwen2_vl.py:") for name in FAULTS)
    assert {outcome.verdict for name, outcome in found.items() if name not in FAULTS} == {"PASS"}


def share_deltas(patch: Patch) -> None:
    """All rows get the first row's distance."""
    original = Qwen2VLModel.get_rope_index

    def first_row(self: Any, *given: Any, **named: Any) -> Any:
        positions, deltas = original(self, *given, **named)
        return positions, deltas[:1].expand_as(deltas)

    patch.setattr(Qwen2VLModel, "get_rope_index", first_row)


def lose_deltas(patch: Patch) -> None:
    """An image counts by its tokens once it is read."""
    original = Qwen2VLModel.get_rope_index

    def no_deltas(self: Any, *given: Any, **named: Any) -> Any:
        positions, deltas = original(self, *given, **named)
        return positions, deltas * 0

    patch.setattr(Qwen2VLModel, "get_rope_index", no_deltas)


def drop_first_row(patch: Patch) -> None:
    """Three axes are kept, and the row that counts the tokens of each document is not."""
    original = Qwen2VLModel.forward

    def forward(self: Any, *given: Any, position_ids: Any = None, **named: Any) -> Any:
        return original(self, *given, position_ids=None if position_ids is None else position_ids[-3:], **named)

    patch.setattr(Qwen2VLModel, "forward", forward)


def keep_deltas(patch: Patch) -> None:
    """The last token of a text, and what is generated, has the distance of the image that was read before."""
    owner = Qwen2VLForConditionalGeneration
    original = owner._prepare_position_ids_for_generation

    def stale(self: Any, inputs: Any, named: Any) -> Any:
        kept, positions = self.model.rope_deltas, original(self, inputs, named).clone()
        if kept is not None and named.get("image_grid_thw") is None:
            positions[..., -1:] -= kept
        return positions

    patch.setattr(owner, "_prepare_position_ids_for_generation", stale)


PLANTED: dict[str, tuple[Callable[[Patch], None], set[str]]] = {
    "first row's deltas for all": (share_deltas, {"images.batch"}),
    "deltas lost": (lose_deltas, {"images.steps", "images.batch", "images.resume"}),
    "positions dropped": (drop_positions, {"images.chunks", "images.packing"}),
    "row of documents dropped": (drop_first_row, {"images.packing"}),
    "mask dropped": (drop_mask, {"images.left_padded"}),
    "stale deltas in generate": (keep_deltas, {"images.generate"}),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_each_planted_mistake_is_found(bug: str, monkeypatch: Patch) -> None:
    plant, names = PLANTED[bug]
    plant(monkeypatch)
    assert find_failing(CHECKS, names) == names


def test_every_check_is_broken_by_a_mistake() -> None:
    assert FAULTS.union(*(names for _, names in PLANTED.values())) == set(CHECKS)


def test_a_model_that_reads_no_images_is_not_asked() -> None:
    (subject,) = from_build(find("llama:causal")[0])
    outcomes = run_checks(subject, CHECKS.values(), "llama:causal")
    assert {(outcome.verdict, outcome.reason) for outcome in outcomes} == {("N/A", "the model takes no images")}
