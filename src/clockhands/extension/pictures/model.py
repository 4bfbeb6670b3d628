"""A model of transformers that names pictures, whose patches have a square grid of learned positions."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from clockhands.devices import choose_device
from clockhands.errors import CheckpointError, UsageError
from clockhands.extension.pictures.tables import stretch_grid
from clockhands.pretrained import load_configuration, read_json
from clockhands.runs import load_foreign_model, read_checked_config
from clockhands.runs.foreign import measure_weight_files
from clockhands.shapes import Float, Tensor

__all__ = ["PROCESSOR", "PictureModel", "lengthen", "open_picture_model"]

PROCESSOR = "preprocessor_config.json"
"""The file that says how pictures become numbers for a model."""


@dataclass(frozen=True)
class PictureModel:
    """A model that names the class of a picture.

    Args:
        source: the folder or hub name that it was opened from.
        model: a model of transformers for classes of images, in evaluation mode.
        processor: what its ``preprocessor_config.json`` says; empty where there is none.
    """

    source: str
    model: Any
    processor: Mapping[str, Any]

    @property
    def vision(self) -> Any:
        """The part of the configuration that describes the reader of pictures."""
        return _get_vision(self.model.config)

    @property
    def side(self) -> int:
        """The pixels of a side of the pictures that it reads."""
        return int(self.vision.image_size)

    @property
    def patch(self) -> int:
        """The pixels of a side of a patch."""
        return int(self.vision.patch_size)

    @cached_property
    def table(self) -> tuple[str, int, int]:
        """The name of its table of positions, the rows before the grid's, and the side of the grid in patches.

        Raises UsageError where there is no such table.
        """
        side = self.side // self.patch
        for name, weight in self.model.named_parameters():
            rows = weight.shape[-2] if weight.ndim in (2, 3) else 0
            # Before the grid stand tokens that are no patch: of the class, and of a teacher (DeiT).
            if "position" in name and 0 <= rows - side**2 <= 2 and math.prod(weight.shape[:-2]) == 1:
                return name, rows - side**2, side
        raise UsageError(f"{self.source} ({self.model.config.model_type}) has no grid of learned positions")

    @torch.inference_mode()
    def compute_logits(self, pixels_BCHW: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Compute the logits of the classes in float32."""
        logits: Tensor = self.model(pixel_values=pixels_BCHW.to(self.model.device, self.model.dtype)).logits
        return logits.float().cpu()


def _get_vision(config: Any) -> Any:
    """Return the part of a configuration that describes the reader of pictures."""
    return getattr(config, "vision_config", None) or config


def open_picture_model(source: str | Path, *, device: str | None = None) -> PictureModel:
    """Open a folder or hub name with a model of transformers that names pictures, such as a ViT.

    Raises CheckpointError for what cannot be opened, UsageError for a model that names no pictures, that reads pictures
    that are not square, or that has no grid of learned positions.
    """
    from transformers import AutoModelForImageClassification
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES

    raw = read_checked_config(source)
    declared = " ".join(raw.get("architectures") or ())
    if raw.get("model_type") not in MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES or "Classification" not in declared:
        raise UsageError(
            f"{source} ({declared or raw.get('model_type')}) names no pictures; with --pictures this needs a model for "
            "classes of images, such as ViTForImageClassification"
        )
    measure_weight_files(source, raw)  # refuses weights that are pickled, missing or damaged
    config = load_configuration(source)
    _check_configuration(source, config)
    loaded = load_foreign_model(AutoModelForImageClassification, source, dtype=torch.float32, config=config)
    processor = _read_processor(source, _get_vision(config).num_channels)
    model = PictureModel(str(source), loaded.to(choose_device(device)).eval(), processor)
    _ = model.table
    return model


def _check_configuration(source: str | Path, config: Any) -> None:
    """Refuse sizes, colours and classes that no model of square pictures has."""
    vision = _get_vision(config)
    sizes: list[Any] = [getattr(vision, field, None) for field in ("image_size", "patch_size")]
    if not all(isinstance(size, int) for size in sizes):
        raise UsageError(f"{source} reads pictures of {sizes[0]} in patches of {sizes[1]}; both have to be square here")
    if min(sizes) < 1:
        raise CheckpointError(
            f"{source} reads pictures of {sizes[0]} pixels in patches of {sizes[1]}; both have to be above 0"
        )
    if sizes[1] > sizes[0]:
        raise CheckpointError(f"{source}: no patch of {sizes[1]} pixels fits into pictures of {sizes[0]}")
    channels = getattr(vision, "num_channels", None)
    if channels not in (1, 3):
        raise CheckpointError(f"{source} reads pictures of {channels} channels; grey ones have 1, coloured ones 3")
    if strange := sorted(number for number in config.id2label if not 0 <= int(number) < config.num_labels):
        raise CheckpointError(f"{source}: id2label has the class {strange[0]}; there are {config.num_labels} classes")


def _read_processor(source: str | Path, channels: int) -> Mapping[str, Any]:
    """Return what the file beside a model says of pictures; nothing for a name on the hub."""
    path = Path(source) / PROCESSOR
    if not path.is_file():
        return {}
    read = read_json(path)
    for key in ("image_mean", "image_std"):
        values = read.get(key)
        if values is not None and not (isinstance(values, list) and all(isinstance(v, int | float) for v in values)):
            raise CheckpointError(f"{path}: {key} is {values!r}, no list of numbers")
        if values and not all(map(math.isfinite, values)):
            raise CheckpointError(f"{path}: {key} is {values!r}; each has to be finite")
        if values and len(values) != 1 and len(values) < channels:
            raise CheckpointError(f"{path}: {key} has {len(values)} numbers; give one, or one for each of {channels}")
    if any(not value > 0 for value in read.get("image_std") or ()):
        raise CheckpointError(
            f"{path}: image_std is {read['image_std']!r}; pictures are divided by it, so it has to be above 0"
        )
    return read


def lengthen(model: PictureModel, side: int, way: str) -> PictureModel:
    """Return a copy that reads pictures of ``side`` pixels, with a grid made by a way of ``GRIDS``.

    Raises UsageError for a side that is no multiple of the patch.
    """
    if side % model.patch:
        raise UsageError(f"{side} pixels are no multiple of the patch, {model.patch}")
    name, before, old = model.table
    config = copy.deepcopy(model.model.config)
    _get_vision(config).image_size = side
    longer = type(model.model)(config)
    state = {key: weight for key, weight in model.model.state_dict().items() if not key.endswith("position_ids")}
    rows_PD = state[name].reshape(-1, state[name].shape[-1])
    grid_SSD = stretch_grid(rows_PD[before:].reshape(old, old, -1), side // model.patch, way).to(rows_PD.dtype)
    made_PD = torch.cat([rows_PD[:before], grid_SSD.flatten(0, 1)])
    state[name] = made_PD.reshape(*state[name].shape[:-2], *made_PD.shape)
    report = longer.load_state_dict(state, strict=False)
    faults = [key for key in (*report.missing_keys, *report.unexpected_keys) if not key.endswith("position_ids")]
    if faults:
        raise CheckpointError(f"{model.source} has other weights at {side} pixels: {', '.join(faults)}")
    return replace(model, model=longer.to(model.model.device, model.model.dtype).eval())
