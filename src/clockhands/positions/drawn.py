"""Transforms that draw positions which the text never had: real ones, skipping ones, and a grid moved as a whole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from clockhands.errors import PositionError
from clockhands.options import Seed
from clockhands.positions.faults import refuse_faults
from clockhands.positions.transform import Transform, TransformContext
from clockhands.shapes import Float, Int, Num, Tensor


@dataclass(frozen=True)
class RandomFloat(Transform):
    """Random float sampling (Shimizu et al. 2026): position p is the p-th smallest of uniform draws from [0, maximum).

    As in ``randomised``, but between the integers: drawn once for a batch, in training and at test time. There are
    ``length`` draws; None is as many as the batch's longest row counts: then a later token changes every position, and
    decoding needs ``length`` to be fixed. Outside training the draw is a function of ``seed``.

    Raises PositionError where a position does not fit the draws.
    """

    maximum: float = 512.0
    length: int | None = None
    seed: Seed = 0
    real_valued = True

    def __post_init__(self) -> None:
        refuse_faults(
            "random-float",
            (not self.maximum > 0, f"maximum is {self.maximum}, but must be above 0"),
            (self.length is not None and self.length < 1, f"length is {self.length}, but must be at least 1"),
        )

    @property
    def depends_on_length(self) -> bool:
        """Whether ``length`` is None: then a later token changes every position."""
        return self.length is None

    def apply(self, pos_BS: Int[Tensor, "B S"], context: TransformContext) -> Float[Tensor, "B S"]:
        """Replace positions by sorted draws: [B, S], float64. Raises PositionError where one does not fit."""
        needed = int(pos_BS.max()) + 1
        length = needed if self.length is None else self.length
        if needed > length:
            raise PositionError(f"{needed} positions do not fit {length} draws; raise random-float.length")
        if context.training:
            drawn_L = (
                (torch.rand(length, generator=context.generator, dtype=torch.float64) * self.maximum).sort().values
            )
        else:
            drawn_L = _draw_numbers_once(self.maximum, length, self.seed)
        return drawn_L.to(pos_BS.device)[pos_BS]


@lru_cache(maxsize=64)
def _draw_numbers_once(maximum: float, length: int, seed: int) -> Float[Tensor, " L"]:
    """Draw the sorted numbers that are used outside training: [L], float64, the same for the same arguments."""
    drawn = np.sort(np.random.RandomState(seed).uniform(0, maximum, length))
    with torch.inference_mode(False):
        return torch.as_tensor(drawn, dtype=torch.float64, device="cpu")


@dataclass(frozen=True)
class Skipping(Transform):
    """PoSE's skip-wise positions (Zhu et al. 2024, section 3): a short text stands in pieces all over a longer one.

    In training a row's tokens are cut into ``chunks`` at random places, and chunk n gets p + u_n with 0 = u_0 <= u_1 <=
    ..., each drawn from {u_(n-1), ..., maximum - L}, where L is the row's own length: positions below ``maximum``, the
    length to be extended to, are all met, in windows of the trained length. Outside training nothing changes.

    Raises PositionError for a text that is longer than ``maximum``, and for positions of several coordinates.
    """

    maximum: int = 2048
    chunks: int = 2

    def __post_init__(self) -> None:
        refuse_faults(
            "skipping",
            (self.maximum < 1, f"maximum is {self.maximum}, but must be at least 1"),
            (self.chunks < 1, f"chunks is {self.chunks}, but must be at least 1"),
        )

    def apply(self, pos_BS: Int[Tensor, "B S *A"], context: TransformContext) -> Int[Tensor, "B S"]:
        """Move the chunks of every row apart: [B, S].

        Raises PositionError for a row longer than ``maximum``, and for positions of several coordinates.
        """
        if pos_BS.dim() != 2:
            raise PositionError(
                f"skipping takes positions of one coordinate, [B, S], and these have the shape {list(pos_BS.shape)}; "
                f"choose another transform, such as shifted or cape"
            )
        if not context.training:
            return pos_BS
        rows = [self._skip(length, context.generator) for length in (pos_BS.amax(-1) + 1).tolist()]
        added_BP = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(pos_BS.device)
        return pos_BS + added_BP.gather(1, pos_BS)

    def _skip(self, length: int, generator: torch.Generator | None) -> Int[Tensor, " L"]:
        """Return what is added to each position of a row of this length."""
        room = self.maximum - length
        if room < 0:
            raise PositionError(f"a text of {length} tokens does not fit skipping.maximum, which is {self.maximum}")
        cuts = torch.randint(0, length + 1, (self.chunks - 1,), generator=generator).sort().values.tolist()
        added_L, least = torch.zeros(length, dtype=torch.int64), 0
        for start in cuts:
            least = int(torch.randint(least, room + 1, (1,), generator=generator))
            added_L[start:] = least
        return added_L


@dataclass(frozen=True)
class Jittered(Transform):
    """DINOv3's augmentation of coordinates in [-1, 1] (Siméoni et al. 2025), in training: shift, jitter, rescale.

    Each is None, or draws once for a batch: a shift from U(-shift, shift) and a factor e^U(-ln jitter, ln jitter) for
    each axis, and one factor e^U(-ln rescale, ln rescale) for all. Positions are those of ``make_patch_centres``;
    outside training nothing changes.
    """

    shift: float | None = None
    jitter: float | None = None
    rescale: float | None = 2.0
    real_valued = True

    def __post_init__(self) -> None:
        refuse_faults(
            "jittered",
            (not (self.shift or 0) >= 0, f"shift is {self.shift}, but must be 0 or more"),
            *(
                (factor is not None and not factor >= 1, f"{name} is {factor}, but must be at least 1")
                for name, factor in (("jitter", self.jitter), ("rescale", self.rescale))
            ),
        )

    def apply(self, pos_BS: Num[Tensor, "B S *A"], context: TransformContext) -> Float[Tensor, "B S *A"]:
        """Move, stretch and scale all positions alike, in float32."""
        pos = pos_BS.float()
        if not context.training:
            return pos

        def draw(most: float, *shape: int) -> Tensor:
            return torch.empty(shape).uniform_(-most, most, generator=context.generator).to(pos.device)

        axes = pos.shape[2:]
        if self.shift is not None:
            pos = pos + draw(self.shift, 1, *axes)
        if self.jitter is not None:
            pos = pos * draw(math.log(self.jitter), 1, *axes).exp()
        return pos if self.rescale is None else pos * draw(math.log(self.rescale), 1).exp()
