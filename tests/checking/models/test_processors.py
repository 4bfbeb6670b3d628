"""What stands in for an image processor counts as the library's own does, which reads and resizes pictures."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from PIL import Image

from clockhands.checking.checks.check import select
from clockhands.checking.models.builds import find
from clockhands.checking.models.make_subjects import from_build
from clockhands.checking.models.processors import _Patches
from clockhands.checking.models.shrinking import tiny_config
from clockhands.checking.verdict.measure import measure

OWN = {"qwen2_vl": "Qwen2VLImageProcessorPil", "glm4v": "Glm4vImageProcessorPil"}


@pytest.mark.parametrize("name", OWN)
def test_a_picture_has_the_patches_that_the_librarys_processor_cuts(name: str) -> None:
    module = importlib.import_module(f"transformers.models.{name}.image_processing_pil_{name}")
    (build,) = (build for build in find(name) if build.name == f"{name}:causal")
    ours = _Patches(tiny_config(build))
    size, merge = ours.patch_size, ours.merge_size
    own = getattr(module, OWN[name])(
        patch_size=size, temporal_patch_size=ours.frames, merge_size=merge, min_pixels=1, max_pixels=10**6,
        size={"shortest_edge": 1, "longest_edge": 10**6},
    )  # fmt: skip
    for height, width in ((2, 3), (4, 2)):
        shape = (merge * height * size, merge * width * size)
        pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
        cut = own(Image.fromarray(pixels), return_tensors="pt")
        drawn = ours([torch.randn(3, *shape)])
        assert torch.equal(cut["image_grid_thw"], drawn["image_grid_thw"])
        assert cut["pixel_values"].shape == drawn["pixel_values"].shape
        named = ours(images=[torch.randn(3, *shape)])  # as the processors of Qwen 2.5 Omni do until transformers 5.22
        assert torch.equal(named["image_grid_thw"], drawn["image_grid_thw"])
        # A picture that is no multiple is resized to one by the library's processor alone.
        odd = own(Image.fromarray(pixels[:-1, 1:]), return_tensors="pt")
        assert torch.equal(odd["image_grid_thw"], cut["image_grid_thw"])


def test_a_processor_that_cannot_take_what_stands_in_is_no_fault_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until transformers 5.22 two processors passed pictures by name, which was charged to their models."""
    (subject,), (check,) = from_build(find("qwen2_vl:causal")[0]), select(["images.packing"])
    assert measure(subject, check).first is not None

    def refuse(patches: _Patches, /) -> None:
        raise AssertionError("never reached: it is given pictures")

    monkeypatch.setattr(_Patches, "__call__", refuse)
    evidence = measure(subject, check)
    assert "its processor makes no prompt" in evidence.inapplicable and "TypeError" in evidence.inapplicable
    assert not evidence.raised
