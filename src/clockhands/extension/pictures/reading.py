"""Pictures of known classes from a folder, as numbers between 0 and 1, and as a model takes them at a size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from clockhands.errors import DataError, UsageError
from clockhands.extension.pictures.model import PictureModel
from clockhands.shapes import Float, Tensor

__all__ = ["FEWEST", "Pictures", "prepare", "read_pictures", "resize"]

FEWEST = 8
"""Pictures; fewer give no interval that is worth printing."""
SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
HALF = (0.5, 0.5, 0.5)
"""Mean and deviation of a model whose files say none."""


@dataclass(frozen=True)
class Pictures:
    """Square pictures with the class of each.

    Args:
        source: the folder.
        pictures: each [C, S, S] with values from 0 to 1; sides may differ.
        classes: the number of the class of each.
    """

    source: str
    pictures: tuple[Float[Tensor, "C S S"], ...]
    classes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.pictures)

    def count_smaller(self, side: int) -> int:
        """Return how many have fewer pixels than ``side``: to them a larger size adds nothing."""
        return sum(picture.shape[-1] < side for picture in self.pictures)


def read_pictures(folder: str | Path, model: PictureModel, most: int, *, largest: int | None = None) -> Pictures:
    """Read up to ``most`` pictures, evenly over the files; each class is a folder with its name or its number.

    Pictures are cut to their square middle, and made smaller where that has more than ``largest`` pixels a side: five
    hundred whole photographs would fill the memory. Raises UsageError for a missing folder and a class that the model
    does not have, DataError for too few pictures and for a file that holds none.
    """
    place = Path(folder)
    if not place.is_dir():
        raise UsageError(f"--pictures {folder}: there is no such folder")
    known = _list_classes(model)
    files = [path for path in sorted(place.glob("*/*")) if path.suffix.lower() in SUFFIXES and path.is_file()]
    if len(files) < FEWEST:
        raise DataError(
            f"{folder} has {len(files)} pictures in folders of their classes; at least {FEWEST} are needed for an "
            "interval"
        )
    strange = sorted({path.parent.name for path in files} - known.keys())
    if strange:
        raise UsageError(
            f"{folder} has a folder {strange[0]!r}, and that is no class of {model.source}; it has "
            f"{_list_some(list(model.model.config.id2label.values()))}"
        )
    chosen = [files[place] for place in np.linspace(0, len(files) - 1, min(most, len(files))).astype(int)]
    channels = int(model.vision.num_channels)
    return Pictures(
        str(folder),
        tuple(_read(path, channels, largest) for path in chosen),
        tuple(known[path.parent.name] for path in chosen),
    )


def _list_classes(model: PictureModel) -> dict[str, int]:
    """Return the number of each class by its name, and by the number as text."""
    names = {int(number): str(name) for number, name in model.model.config.id2label.items()}
    return {str(number): number for number in names} | {name: number for number, name in names.items()}


def _list_some(names: Sequence[str]) -> str:
    """Return a few names, and how many more there are."""
    return ", ".join(map(str, names[:5])) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def _read(path: Path, channels: int, largest: int | None) -> Float[Tensor, "C S S"]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            side = min(image.size)
            left, top = ((size - side) // 2 for size in image.size)
            square = image.convert("L" if channels == 1 else "RGB").crop((left, top, left + side, top + side))
            values_SSC = np.array(square, dtype=np.float32).reshape(side, side, -1) / 255
    except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError) as fault:
        raise DataError(f"{path} cannot be read as a picture: {fault}") from fault
    picture_CSS = torch.from_numpy(values_SSC).permute(2, 0, 1)
    return picture_CSS if largest is None or side <= largest else resize(picture_CSS, largest)


def resize(picture_CSS: Float[Tensor, "C S S"], side: int) -> Float[Tensor, "C T T"]:
    """Return a picture with ``side`` pixels a side, by cubic interpolation; smoothed first where it gets smaller."""
    if picture_CSS.shape[-1] == side:
        return picture_CSS
    sized = F.interpolate(picture_CSS[None], (side, side), mode="bicubic", align_corners=False, antialias=True)
    return sized[0].clamp(0, 1)


def prepare(model: PictureModel, pictures: Sequence[Float[Tensor, "C S S"]]) -> Float[Tensor, "B C S S"]:
    """Return pictures of one size as a model takes them: less the mean, over the deviation of its processor."""
    batch_BCSS = torch.stack(list(pictures))
    channels = batch_BCSS.shape[1]
    mean, deviation = (
        torch.tensor(list(model.processor.get(key) or HALF)[:channels]).view(-1, 1, 1)
        for key in ("image_mean", "image_std")
    )
    return (batch_BCSS - mean) / deviation
