"""Changes of positions that a configuration names: shifted (SHAPE), randomised, CAPE's augmentation, scaled, drawn.

A transform is a ``Transform`` and a frozen dataclass; its fields are its options. It is called with the positions, the
mask of tokens, whether the model trains, and a generator for what training draws::

    pos_BS = transform(pos_BS, mask_BS, training=True, generator=generator)

Outside training a transform is a fixed function of the positions, so that one token at a time gives the same as all at
once; the exceptions say so through ``depends_on_length``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from clockhands.catalogue import Catalogue
from clockhands.errors import ConfigError, PositionError
from clockhands.options import Seed, check_options, options_of
from clockhands.positions.drawn import Jittered, RandomFloat, Skipping
from clockhands.positions.faults import refuse_faults
from clockhands.positions.making import centre, interpolate, shift
from clockhands.positions.transform import Transform, TransformContext
from clockhands.shapes import Float, Int, Num, Tensor


@dataclass(frozen=True)
class Shifted(Transform):
    """SHAPE (Kiyono et al. 2021, section 3): p + k, with one k ~ U{0, ..., maximum} for each row in training.

    ``test``: the offset outside training; None is ``maximum``, as in the authors' code (their paper uses 0).
    """

    maximum: int = 100
    test: int | None = None

    def __post_init__(self) -> None:
        refuse_faults("shifted", (self.maximum < 0, f"maximum is {self.maximum}, but must be 0 or more"))

    def apply(self, pos_BS: Num[Tensor, "B S *A"], context: TransformContext) -> Num[Tensor, "B S *A"]:
        """Add the row's offset to every position."""
        if not context.training:
            return shift(pos_BS, self.maximum if self.test is None else self.test)
        offset_B = torch.randint(0, self.maximum + 1, (pos_BS.shape[0],), generator=context.generator)
        return shift(pos_BS, offset_B.to(pos_BS.device))


@dataclass(frozen=True)
class Randomised(Transform):
    """Replace position p by the p-th smallest of a random subset of {0, ..., maximum - 1} (Ruoss et al. 2023).

    The subset is drawn without replacement, once for a batch, in training and, as in the paper, at test time too. It
    has ``length`` members; None is as many as the batch's longest row counts, as in the authors' code: then a later
    token changes every position, and decoding needs ``length`` to be fixed (the largest length to be decoded).
    Outside training the draw is a function of ``seed``, so that it stays the same from step to step.

    Raises PositionError where a position does not fit the subset.
    """

    maximum: int = 2048
    length: int | None = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        length = 1 if self.length is None else self.length
        refuse_faults(
            "randomised",
            (self.maximum < 1, f"maximum is {self.maximum}, but must be at least 1"),
            (length < 1, f"length is {length}, but must be at least 1"),
            (length > self.maximum >= 1, f"length is {length}, but must be at most maximum, which is {self.maximum}"),
        )

    @property
    def depends_on_length(self) -> bool:
        """Whether ``length`` is None: then a later token changes every position."""
        return self.length is None

    def apply(self, pos_BS: Int[Tensor, "B S"], context: TransformContext) -> Int[Tensor, "B S"]:
        """Replace positions by numbers of the subset: [B, S]. Raises PositionError where one does not fit."""
        needed = int(pos_BS.max()) + 1
        length = needed if self.length is None else self.length
        if length > self.maximum or needed > length:
            raise PositionError(
                f"{needed} positions cannot become different ones of a subset of {length} out of {self.maximum}; "
                f"raise randomised.{'maximum' if self.length is None else 'length'}"
            )
        if context.training:
            subset_L = torch.randperm(self.maximum, generator=context.generator)[:length].sort().values
        else:
            subset_L = _draw_subset_once(self.maximum, length, self.seed)
        return subset_L.to(pos_BS.device)[pos_BS]


@lru_cache(maxsize=64)
def _draw_subset_once(maximum: int, length: int, seed: int) -> Int[Tensor, " L"]:
    """Draw the sorted subset that is used outside training: [L], the same for the same arguments."""
    chosen = np.sort(np.random.RandomState(seed).permutation(maximum)[:length])
    with torch.inference_mode(False):
        return torch.as_tensor(chosen, dtype=torch.int64, device="cpu")


@dataclass(frozen=True)
class Cape(Transform):
    """CAPE's augmentation (Likhomanenko et al. 2021, section 3): (p - mean + Δ + ε_p)·λ in training.

    Δ ~ U(-max_global_shift, max_global_shift) for each row and axis, ε_p ~ U(-max_local_shift, max_local_shift) for
    each token and axis, log λ ~ U(-log max_scale, log max_scale) for each row, one for all axes. With
    ``max_local_shift`` of at most 0.5 order is kept. ``centre``: subtract the mean position of the row's tokens, in
    training and after it, as in the paper; the mean is not known while decoding token by token, so a decoder needs
    ``centre`` off.
    """

    max_global_shift: float = 5.0
    max_local_shift: float = 0.5
    max_scale: float = 1.03
    centre: bool = True
    real_valued = True

    def __post_init__(self) -> None:
        shifts = (self.max_global_shift, self.max_local_shift)
        refuse_faults(
            "cape",
            (not all(largest >= 0 for largest in shifts), f"the largest shifts are {shifts}, but must be 0 or more"),
            (not self.max_scale >= 1, f"max_scale is {self.max_scale}, but must be at least 1"),
        )

    @property
    def depends_on_length(self) -> bool:
        """Whether positions are centred: then a later token changes their mean."""
        return self.centre

    def apply(self, pos_BS: Num[Tensor, "B S *A"], context: TransformContext) -> Float[Tensor, "B S *A"]:
        """Centre positions, and in training shift, jitter and stretch them, in float32."""
        pos = centre(pos_BS, context.mask_BS) if self.centre else pos_BS.float()
        if not context.training:
            return pos

        def uniform(*shape: int) -> Tensor:
            return (torch.rand(*shape, generator=context.generator) * 2 - 1).to(pos.device)

        batch, length, *axes = pos.shape
        jitter = uniform(batch, 1, *axes) * self.max_global_shift + uniform(batch, length, *axes) * self.max_local_shift
        return (pos + jitter) * torch.exp(uniform(batch, 1, *[1] * len(axes)) * math.log(self.max_scale))


@dataclass(frozen=True)
class Scaled(Transform):
    """Position interpolation (Chen et al. 2023, equation 4): p / factor, so that longer texts fit."""

    factor: float = 1.0
    real_valued = True

    def __post_init__(self) -> None:
        refuse_faults("scaled", (not self.factor > 0, f"factor is {self.factor}, but must be above 0"))

    def apply(self, pos_BS: Num[Tensor, "B S *A"], context: TransformContext) -> Float[Tensor, "B S *A"]:
        """Divide positions by ``factor``."""
        return interpolate(pos_BS, self.factor)


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
