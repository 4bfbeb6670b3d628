"""Prompts with images for models whose text has three axes of position: time, height and width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.models.huggingface import Held
from clockhands.checking.models.subject import Subject


@dataclass(frozen=True)
class Prompt:
    """Rows of text with images in them, as a processor gives them to the model.

    ``mm_token_type_ids`` is 1 where an image stands; ``image_grid_thw`` counts the patches of each image by axis,
    and ``pixel_values`` has a row for each patch.
    """

    input_ids: Tensor
    mm_token_type_ids: Tensor
    pixel_values: Tensor
    image_grid_thw: Tensor
    attention_mask: Tensor

    @property
    def length(self) -> int:
        """How many tokens each row has, those of images and pads included."""
        return self.input_ids.shape[1]

    def cut(self, start: int, stop: int) -> dict[str, Any]:
        """Return the arguments of a piece of one row. An image belongs to the piece in which it stands whole."""
        piece = self.mm_token_type_ids[:, start:stop]
        inputs: dict[str, Any] = {"input_ids": self.input_ids[:, start:stop]}
        if piece.any():
            inputs |= {"mm_token_type_ids": piece, "pixel_values": self.pixel_values}
            inputs["image_grid_thw"] = self.image_grid_thw
        return inputs

    def as_inputs(self) -> dict[str, Any]:
        """Return the arguments of the whole."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


def draw_prompt(subject: Subject, grid: tuple[int, int], before: int, after: int, salt: int = 0) -> Prompt:
    """Return one row: ``before`` tokens of text, an image of ``grid`` patches with its borders, ``after`` tokens."""
    module: Any = subject.module
    config = module.config
    vision = config.vision_config
    height, width = grid
    text = subject.tokens(1, before + after, salt)
    start, end = (_read(config, f"vision_{side}_token_id", f"image_{side}_token_id") for side in ("start", "end"))
    count = height * width // vision.spatial_merge_size**2
    image = [start, *[config.image_token_id] * count, end]
    ids = torch.cat([text[:, :before], text.new_tensor([image]), text[:, before:]], 1)
    channels = getattr(vision, "in_channels", None) or vision.num_channels
    width_of_patch = channels * vision.temporal_patch_size * vision.patch_size**2
    generator = torch.Generator().manual_seed(1000 * subject.seed + salt)
    pixels = torch.randn(height * width, width_of_patch, generator=generator).to(ids.device, subject.dtype)
    kinds = (ids == config.image_token_id).int()
    return Prompt(ids, kinds, pixels, torch.tensor([[1, height, width]], device=ids.device), torch.ones_like(ids))


def pad_left(prompts: Sequence[Prompt]) -> Prompt:
    """Return prompts of one row each as one batch, the shorter ones padded on the left."""
    longest = max(prompt.length for prompt in prompts)

    def join(name: str) -> Tensor:
        rows = [getattr(prompt, name) for prompt in prompts]
        return torch.cat([torch.nn.functional.pad(row, (longest - row.shape[1], 0)) for row in rows])

    images = {name: torch.cat([getattr(p, name) for p in prompts]) for name in ("pixel_values", "image_grid_thw")}
    rows = {name: join(name) for name in ("input_ids", "mm_token_type_ids", "attention_mask")}
    return Prompt(**rows, **images)


def count_positions(subject: Subject, prompt: Prompt) -> Tensor:
    """Return the positions [3, rows, tokens] that the model itself makes for a prompt, on a copy of it."""
    twin: Any = subject.copy_untouched().module
    inputs = prompt.as_inputs()
    inputs.pop("pixel_values")
    return twin.model.get_rope_index(**inputs)[0]


def read(subject: Subject, inputs: dict[str, Any], cache: Held | None = None) -> Tensor:
    """Return the logits of every token of the piece; a given ``cache`` is used and extended."""
    module: Any = subject.module
    with torch.no_grad():
        output = module(**inputs, past_key_values=cache.state if cache else None, use_cache=cache is not None)
    if cache is not None:
        cache.state = output.past_key_values
    return output.logits


def _read(config: Any, *names: str) -> int:
    return next(getattr(config, name) for name in names if getattr(config, name, None) is not None)
