"""Judges larger grids: the loss of the right class on larger pictures, beside what small pictures lose by them.

The rule is that of texts. A grid passes the guard if its cost on pictures of the trained size, blown up to the new one,
is shown to be below ``GUARD`` of the loss, or of a nat, which is more where nearly every class is named. Of those that
pass and are not shown to read larger pictures worse than the model reads them at its own size, the one with the
smallest loss is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F

from clockhands.comparison.simultaneous import compare_with_baseline
from clockhands.comparison.statistics import Difference
from clockhands.extension.judge import GUARD
from clockhands.extension.pictures.model import PictureModel, lengthen
from clockhands.extension.pictures.reading import Pictures, prepare, resize
from clockhands.extension.pictures.tables import GRIDS
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float, Tensor

__all__ = ["JudgedGrid", "JudgedGrids", "judge_grids", "score_pictures"]

BATCH_PATCHES = 4_096


@dataclass(frozen=True)
class JudgedGrid:
    """One way to make a grid larger.

    Args:
        way: a key of ``GRIDS``.
        loss: the mean loss of the right class on larger pictures, in nats.
        right: the share of them whose class is named.
        gain: the loss on larger pictures less that of the model as it is on the same ones at its own size, paired.
        cost: the loss on small pictures blown up, less that of the model as it is on the small ones, paired.
    """

    way: str
    loss: float
    right: float
    gain: Difference
    cost: Difference


@dataclass(frozen=True)
class JudgedGrids:
    """All ways beside the model as it is.

    Args:
        side, longest: pixels of the trained and of the larger pictures.
        classes: how many there are.
        loss, right: of the model as it is, on pictures of its own size.
        grids: the ways.
        chosen: one of them; None for the model as it is.
    """

    side: int
    longest: int
    classes: int
    loss: float
    right: float
    grids: tuple[JudgedGrid, ...]
    chosen: JudgedGrid | None

    @property
    def allowed(self) -> float:
        """The nats that a way may cost on small pictures."""
        return GUARD * max(self.loss, 1.0)

    def passes(self, grid: JudgedGrid) -> bool:
        """Whether the cost of a way on small pictures is shown to be below ``allowed``."""
        return grid.cost.inner[1] < self.allowed


def judge_grids(
    model: PictureModel, pictures: Pictures, longest: int, progress: CountProgress = ignore_count
) -> JudgedGrids:
    """Measure every way to make the grid read pictures of ``longest`` pixels, and choose one.

    Intervals are simultaneous over ways, for gains and costs together; pictures are the sample. Raises UsageError for a
    size that is no multiple of the patch.
    """
    total = 1 + 2 * len(GRIDS)

    own_N, right_N = score_pictures(model, pictures, model.side)
    scored: list[tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]] = []
    small: list[Float[np.ndarray, " N"]] = []
    for number, way in enumerate(GRIDS):
        progress("judging grids", 1 + 2 * number, total)
        longer = lengthen(model, longest, way)
        scored.append(score_pictures(longer, pictures, longest))
        progress("judging grids", 2 + 2 * number, total)
        small.append(score_pictures(longer, pictures, model.side, longest)[0])
    progress("judging grids", total, total)
    ours = [loss_N[:, None] for loss_N in (*(loss_N for loss_N, _ in scored), *small)]
    differences = compare_with_baseline(ours, [own_N[:, None]] * len(ours))
    grids = tuple(
        JudgedGrid(way, float(loss_N.mean()), float(named_N.mean()), gain, cost)
        for way, (loss_N, named_N), gain, cost in zip(
            GRIDS, scored, differences[: len(GRIDS)], differences[len(GRIDS) :], strict=True
        )
    )
    classes = int(model.model.config.num_labels)
    judged = JudgedGrids(model.side, longest, classes, float(own_N.mean()), float(right_N.mean()), grids, None)
    return replace(judged, chosen=_choose(judged))


def _choose(judged: JudgedGrids) -> JudgedGrid | None:
    able = [grid for grid in judged.grids if judged.passes(grid) and not grid.gain.low > 0]
    return min(able, key=lambda grid: grid.loss, default=None)


def score_pictures(
    model: PictureModel, pictures: Pictures, *sides: int
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Return the loss of the right class of each picture, and whether it is named.

    ``sides``: the pixels to which a picture is resized before it is read, one after the other.
    """
    batch = max(1, BATCH_PATCHES // (model.side // model.patch) ** 2)
    losses: list[Tensor] = []
    named: list[Tensor] = []
    for first in range(0, len(pictures), batch):
        sized = list(pictures.pictures[first : first + batch])
        for side in sides:
            sized = [resize(picture_CSS, side) for picture_CSS in sized]
        logits_BK = model.compute_logits(prepare(model, sized)).double()
        right_B = torch.tensor(_slice(pictures.classes, first, batch))
        losses.append(F.cross_entropy(logits_BK, right_B, reduction="none"))
        named.append((logits_BK.argmax(1) == right_B).double())
    return torch.cat(losses).numpy(), torch.cat(named).numpy()


def _slice(values: Sequence[int], first: int, count: int) -> list[int]:
    return list(values[first : first + count])
