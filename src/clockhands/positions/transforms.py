"""Changes of positions that a configuration names: shifted (SHAPE), randomised, CAPE's augmentation, scaled, drawn.

A transform is a ``Transform`` and a frozen dataclass; its fields are its options. It is called with the positions, the
mask of tokens, whether the model trains, and a generator for what training draws::

    pos_BS = transform(pos_BS, mask_BS, training=True, generator=generator)

Outside training a transform is a fixed function of the positions, so that one token at a time gives the same as all at
once; the exceptions say so through ``depends_on_length``.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from clockhands.catalogue import Catalogue
from clockhands.errors import ConfigError, PositionError
from clockhands.options import (
    AtLeastOne,
    Count,
    FromZero,
    NotNegative,
    Positive,
    Seed,
    check_options,
    check_value,
    options_of,
)
from clockhands.positions.making import TokenMask, centre, interpolate, shift
from clockhands.shapes import Float, Int, Num, Tensor


@dataclass(frozen=True)
class TransformContext:
    """What a transform is told besides the positions.

    ``mask_BS`` is False at padding; None: there is none. ``generator`` draws what training draws; None: PyTorch's own.
    """

    mask_BS: TokenMask | None = None
    training: bool = False
    generator: torch.Generator | None = None


class Transform(ABC):
    """A change of positions. A subclass is a frozen dataclass whose fields are its options, and has ``apply``.

    Raises ConfigError for options out of the range that their annotation says.
    """

    def __post_init__(self) -> None:
        faults = self.find_faults()
        if faults:
            raise ConfigError(faults, "the transform of positions")

    @classmethod
    def get_name(cls) -> str:
        """Return the name that configurations have for it: ``random-float``."""
        return re.sub("(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()

    def find_faults(self) -> list[str]:
        """Return what is wrong with the options, one sentence each."""
        options = options_of(type(self)).values()
        values = ((f"{self.get_name()}.{option.name}", getattr(self, option.name), option.type) for option in options)
        return [fault for value in values for fault in check_value(*value)]

    @property
    def depends_on_length(self) -> bool:
        """Whether a token's new position depends on the tokens after it, so that cached keys become stale."""
        return False

    @property
    def real_valued(self) -> bool:
        """Whether the new positions lie between the integers: tables cannot take them."""
        return False

    @abstractmethod
    def apply(self, pos: Num[Tensor, "B S *A"], context: TransformContext) -> Num[Tensor, "B S *A"]:
        """Return the positions to use in place of ``pos``."""

    def __call__(
        self,
        pos: Num[Tensor, "B S *A"],
        mask_BS: TokenMask | None = None,
        *,
        training: bool = False,
        generator: torch.Generator | None = None,
    ) -> Num[Tensor, "B S *A"]:
        """Return the positions to use in place of ``pos``; the arguments are those of ``TransformContext``."""
        return self.apply(pos, TransformContext(mask_BS, training, generator))


@dataclass(frozen=True)
class Shifted(Transform):
    """SHAPE (Kiyono et al. 2021, section 3): p + k, with one k ~ U{0, ..., maximum} for each row in training.

    ``test``: the offset outside training; None is ``maximum``, as in the authors' code (their paper uses 0).
    """

    maximum: FromZero = 100
    test: int | None = None

    def apply(self, pos: Num[Tensor, "B S *A"], context: TransformContext) -> Num[Tensor, "B S *A"]:
        if not context.training:
            return shift(pos, self.maximum if self.test is None else self.test)
        offset_B = torch.randint(0, self.maximum + 1, (pos.shape[0],), generator=context.generator)
        return shift(pos, offset_B.to(pos.device))


@dataclass(frozen=True)
class _Drawn(Transform):
    """Replaces position p by the p-th smallest of ``length`` numbers, drawn once for a batch."""

    maximum: Positive
    length: Count | None = None
    seed: Seed = 0

    @property
    def depends_on_length(self) -> bool:
        """Whether ``length`` is None: then a later token changes every position."""
        return self.length is None

    def apply(self, pos: Int[Tensor, "B S"], context: TransformContext) -> Num[Tensor, "B S"]:
        needed = int(pos.max()) + 1
        length = needed if self.length is None else self.length
        whole = isinstance(self, Randomised)
        if needed > length or (whole and length > self.maximum):
            raise PositionError(
                f"{needed} positions do not fit {length} draws out of {self.maximum}; "
                f"raise {self.get_name()}.{'maximum' if self.length is None else 'length'}"
            )
        if not context.training:
            drawn_L = _draw_once(float(self.maximum), length, self.seed, whole)
        elif whole:
            drawn_L = torch.randperm(int(self.maximum), generator=context.generator)[:length].sort().values
        else:
            uniform_L = torch.rand(length, generator=context.generator, dtype=torch.float64)
            drawn_L = (uniform_L * self.maximum).sort().values
        return drawn_L.to(pos.device)[pos]


@lru_cache(maxsize=64)
def _draw_once(maximum: float, length: int, seed: int, whole: bool) -> Num[Tensor, " L"]:
    """Draw the sorted numbers that are used outside training: [L], the same for the same arguments."""
    state = np.random.RandomState(seed)
    drawn = state.permutation(int(maximum))[:length] if whole else state.uniform(0, maximum, length)
    with torch.inference_mode(False):
        return torch.as_tensor(np.sort(drawn), dtype=torch.int64 if whole else torch.float64, device="cpu")


@dataclass(frozen=True)
class Randomised(_Drawn):
    """Replace position p by the p-th smallest of a random subset of {0, ..., maximum - 1} (Ruoss et al. 2023).

    The subset is drawn without replacement, once for a batch, in training and, as in the paper, at test time too. It
    has ``length`` members; None is as many as the batch's longest row counts, as in the authors' code: then a later
    token changes every position, and decoding needs ``length`` to be fixed (the largest length to be decoded).
    Outside training the draw is a function of ``seed``, so that it stays the same from step to step.

    Raises PositionError where a position does not fit the subset.
    """

    maximum: Count = 2048

    def find_faults(self) -> list[str]:
        faults = super().find_faults()
        if not faults and (self.length or 1) > self.maximum:
            return [f"randomised.length is {self.length}, but must be at most maximum, which is {self.maximum}"]
        return faults


@dataclass(frozen=True)
class RandomFloat(_Drawn):
    """Random float sampling (Shimizu et al. 2026): position p is the p-th smallest of uniform draws from [0, maximum).

    As ``randomised``, but between the integers: in training and at test time, ``length`` and ``seed`` too.

    Raises PositionError where a position does not fit the draws.
    """

    maximum: Positive = 512.0
    real_valued = True


@dataclass(frozen=True)
class Cape(Transform):
    """CAPE's augmentation (Likhomanenko et al. 2021, section 3): (p - mean + Δ + ε_p)·λ in training.

    Δ ~ U(-max_global_shift, max_global_shift) for each row and axis, ε_p ~ U(-max_local_shift, max_local_shift) for
    each token and axis, log λ ~ U(-log max_scale, log max_scale) for each row, one for all axes. With
    ``max_local_shift`` of at most 0.5 order is kept. ``centre``: subtract the mean position of the row's tokens, in
    training and after it, as in the paper; the mean is not known while decoding token by token, so a decoder needs
    ``centre`` off.
    """

    max_global_shift: NotNegative = 5.0
    max_local_shift: NotNegative = 0.5
    max_scale: AtLeastOne = 1.03
    centre: bool = True
    real_valued = True

    @property
    def depends_on_length(self) -> bool:
        """Whether positions are centred: then a later token changes their mean."""
        return self.centre

    def apply(self, pos: Num[Tensor, "B S *A"], context: TransformContext) -> Float[Tensor, "B S *A"]:
        pos = centre(pos, context.mask_BS) if self.centre else pos.float()
        if not context.training:
            return pos

        def uniform(*shape: int) -> Tensor:
            return (torch.rand(*shape, generator=context.generator) * 2 - 1).to(pos.device)

        # λ = e^U(-ln s, ln s): texts are stretched as often as they are shrunk.
        batch, length, *axes = pos.shape
        jitter = uniform(batch, 1, *axes) * self.max_global_shift + uniform(batch, length, *axes) * self.max_local_shift
        return (pos + jitter) * torch.exp(uniform(batch, 1, *[1] * len(axes)) * math.log(self.max_scale))


@dataclass(frozen=True)
class Scaled(Transform):
    """Position interpolation (Chen et al. 2023, equation 4): p / factor, so that longer texts fit."""

    factor: Positive = 1.0
    real_valued = True

    def apply(self, pos: Num[Tensor, "B S *A"], context: TransformContext) -> Float[Tensor, "B S *A"]:
        return interpolate(pos, self.factor)


@dataclass(frozen=True)
class Skipping(Transform):
    """PoSE's skip-wise positions (Zhu et al. 2024, section 3): a short text stands in pieces all over a longer one.

    In training a row's tokens are cut into ``chunks`` at random places, and chunk n gets p + u_n with 0 = u_0 <= u_1 <=
    ..., each drawn from {u_(n-1), ..., maximum - L}, where L is the row's own length: positions below ``maximum``, the
    length to be extended to, are all met, in windows of the trained length. Outside training nothing changes.

    Raises PositionError for a text that is longer than ``maximum``, and for positions of several coordinates.
    """

    maximum: Count = 2048
    chunks: Count = 2

    def apply(self, pos: Int[Tensor, "B S *A"], context: TransformContext) -> Int[Tensor, "B S"]:
        if pos.dim() != 2:
            raise PositionError(
                f"skipping takes positions of one coordinate, [B, S], and these have the shape {list(pos.shape)}; "
                f"choose another transform, such as shifted or cape"
            )
        if not context.training:
            return pos
        rows = [self._skip(length, context.generator) for length in (pos.amax(-1) + 1).tolist()]
        added_BP = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(pos.device)
        return pos + added_BP.gather(1, pos)

    def _skip(self, length: int, generator: torch.Generator | None) -> Int[Tensor, " L"]:
        """Return what is added to each position of a row of this length."""
        room = self.maximum - length
        if room < 0:
            raise PositionError(f"a text of {length} tokens does not fit skipping.maximum, which is {self.maximum}")
        cuts = torch.randint(0, length + 1, (self.chunks - 1,), generator=generator).sort().values.tolist()
        added_L, least = torch.zeros(length, dtype=torch.int64), 0
        for start in cuts:
            least = int(torch.randint(least, room + 1, (1,), generator=generator))
            # Each u is drawn from the last one on, so that no chunk overtakes the one before.
            added_L[start:] = least
        return added_L


@dataclass(frozen=True)
class Jittered(Transform):
    """DINOv3's augmentation of coordinates in [-1, 1] (Siméoni et al. 2025), in training: shift, jitter, rescale.

    Each is None, or draws once for a batch: a shift from U(-shift, shift) and a factor e^U(-ln jitter, ln jitter) for
    each axis, and one factor e^U(-ln rescale, ln rescale) for all. Positions are those of ``make_patch_centres``;
    outside training nothing changes.
    """

    shift: NotNegative | None = None
    jitter: AtLeastOne | None = None
    rescale: AtLeastOne | None = 2.0
    real_valued = True

    def apply(self, pos: Num[Tensor, "B S *A"], context: TransformContext) -> Float[Tensor, "B S *A"]:
        pos = pos.float()
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


TRANSFORMS: Catalogue[type[Transform]] = Catalogue(
    "position transform",
    {
        "shifted": Shifted,
        "randomised": Randomised,
        "random-float": RandomFloat,
        "skipping": Skipping,
        "cape": Cape,
        "jittered": Jittered,
        "scaled": Scaled,
    },
)


def make_transform(name: str, options: Mapping[str, Any] | None = None) -> Transform:
    """Make a transform by name with its options. Raises UnknownNameError, and ConfigError naming every fault."""
    values, faults = check_options(options or {}, options_of(TRANSFORMS[name]), name)
    if faults:
        raise ConfigError(faults, f"position transform {name!r}")
    return TRANSFORMS[name](**values)
