"""Fit how an attention turns its queries or keys: which channels in pairs, and by which angle at each position.

Of rows of one token each, a query at position p is a linear map of the query at position 0. A rotation mixes each
channel with one partner, so that the map is two numbers for each channel and position: amplitude · cosine and sine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

Layout = Literal["halves", "pairs"]
CHANNEL_LAYOUTS: tuple[Layout, ...] = ("halves", "pairs")
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Rotation:
    """How vectors of ``width`` channels turn: ``count`` of them from ``start``, laid out in halves or pairs.

    ``first_SC`` and ``second_SC`` are the angles of the first and second member of each pair at S positions; they are
    equal in a rotation. ``amplitude_C`` is the length after turning over that before. ``count`` is 0 where nothing
    turns. All channels are ``gain`` times as long as those of the plain vectors, ``amplitude_C`` aside.
    """

    width: int
    start: int
    count: int
    layout: Layout
    first_SC: Tensor
    second_SC: Tensor
    amplitude_C: Tensor
    gain: float = 1.0

    @property
    def channels(self) -> tuple[Tensor, Tensor]:
        """The first and the second member of each pair."""
        return find_pairs(self.start, self.count, self.layout)

    @property
    def speeds_C(self) -> Tensor:
        """The angle of each pair from one position to the next: near positions say which turn, far ones how exactly."""
        return fit_speeds(self.first_SC)

    @property
    def is_rotation(self) -> bool:
        """Whether both members of every pair turn by one angle."""
        return same_angles(self.first_SC, self.second_SC)

    @property
    def rotates(self) -> bool:
        """Whether it is a rotation, and not of no channel."""
        return self.count > 0 and self.is_rotation

    @property
    def rotated_SC(self) -> Tensor:
        """The angles since position 0."""
        return self.first_SC - self.first_SC[:1]

    def keeps(self, speeds_C: Tensor) -> bool:
        """Whether every angle since position 0 is that of its position, at one speed for each pair."""
        places = torch.arange(len(self.first_SC), dtype=torch.float64, device=speeds_C.device)[:, None]
        return self.is_rotation and same_angles(self.rotated_SC, places * speeds_C)

    def matrices(self) -> Tensor:
        """Return the linear map of each position, [S, width, width]."""
        length = len(self.first_SC)
        maps = torch.eye(self.width, dtype=torch.float64, device=self.first_SC.device).repeat(length, 1, 1)
        if not self.count:
            return maps * self.gain
        a, b = self.channels
        maps[:, a, a] = self.first_SC.cos() * self.amplitude_C
        maps[:, a, b] = -self.first_SC.sin() * self.amplitude_C
        maps[:, b, b] = self.second_SC.cos() * self.amplitude_C
        maps[:, b, a] = self.second_SC.sin() * self.amplitude_C
        return maps * self.gain

    def matrices_at(self, places: Tensor) -> Tensor:
        """Return the linear map of each place, [..., width, width], also of places beyond those that were read."""
        flat = places.flatten().double()[:, None]
        first, second = (part[:1] + flat * _sharpen(fit_speeds(part)) for part in (self.first_SC, self.second_SC))
        return replace(self, first_SC=first, second_SC=second).matrices().unflatten(0, places.shape)

    def move(self, x_BHSK: Tensor, by_BS: Tensor) -> Tensor:
        """Rotate vectors further, by so many places."""
        a, b = self.channels
        angles = by_BS[:, None, :, None].double() * self.speeds_C
        moved, first, second = x_BHSK.double().clone(), x_BHSK[..., a].double(), x_BHSK[..., b].double()
        moved[..., a] = first * angles.cos() - second * angles.sin()
        moved[..., b] = first * angles.sin() + second * angles.cos()
        return moved


def find_pairs(start: int, count: int, layout: Layout) -> tuple[Tensor, Tensor]:
    """Return the channels of the first and second members of the pairs."""
    if layout == "pairs":
        return torch.arange(start, start + count, 2), torch.arange(start + 1, start + count, 2)
    half = count // 2
    return torch.arange(start, start + half), torch.arange(start + half, start + count)


def fit_rotation(x_NSK: Tensor, plain_NK: Tensor | None = None) -> Rotation | None:
    """Fit how N vectors of one token each turn over S positions, from ``plain_NK`` (default: those at position 0).

    None where they do otherwise than mix pairs of channels: other positions enter, or the map is no rotation.
    """
    x = x_NSK.double()
    plain = x[:, 0] if plain_NK is None else plain_NK.double()
    size = plain.abs().max().clamp(min=1e-12)
    width, length = x.shape[-1], x.shape[1]
    moved = ((x - x[:, :1]).abs().amax((0, 1)) / size > 2e-6).nonzero().flatten()
    if not len(moved):
        ratio = _ratio(x[:, 0], plain)
        empty = torch.zeros(length, 0, dtype=torch.float64, device=x.device)
        return None if ratio is None else Rotation(width, 0, 0, "halves", empty, empty, empty[0], ratio)
    for start, count in _ranges(int(moved[0]), int(moved[-1]) + 1, width):
        for layout in CHANNEL_LAYOUTS:
            fitted = _fit_pairs(x, plain, size, start, count, layout)
            if fitted is not None:
                return fitted
    return None


def _ranges(first: int, last: int, width: int) -> list[tuple[int, int]]:
    """Which channels may turn: those that were seen to, and a few more, since slow ones hardly move."""
    seen = last - first + (last - first) % 2
    sizes = [seen, *(n for n in (width // 4, width // 2, 3 * width // 4, width) if n > seen and n % 2 == 0)]
    return [(start, n) for n in sizes for start in dict.fromkeys((first, 0, width - n)) if start + n <= width]


def _ratio(x: Tensor, plain: Tensor) -> float | None:
    """How many times as long vectors are as others; None if they point elsewhere."""
    ratio = float((x * plain).sum() / (plain * plain).sum())
    return ratio if float((x - ratio * plain).abs().max()) < _TOLERANCE * float(plain.abs().max()) else None


def _fit_pairs(x: Tensor, plain: Tensor, size: Tensor, start: int, count: int, layout: Layout) -> Rotation | None:
    a, b = find_pairs(start, count, layout)
    rest = torch.ones(x.shape[-1], dtype=torch.bool)
    rest[a], rest[b] = False, False
    gain = _ratio(x[..., rest], plain[:, None, rest].expand_as(x[..., rest])) if rest.any() else 1.0
    if gain is None:
        return None
    x = x / gain
    first, second = _fit_member(x[..., a], plain[:, a], plain[:, b]), _fit_member(x[..., b], plain[:, b], plain[:, a])
    if max(first[2], second[2]) > _TOLERANCE * size:
        return None
    angles = torch.atan2(-first[1], first[0]), torch.atan2(second[1], second[0])
    lengths = [torch.hypot(*item[:2]) for item in (first, second)]
    amplitude = lengths[0].mean(0)
    if any(float((length - amplitude).abs().max()) > 10 * _TOLERANCE for length in lengths):
        return None
    return Rotation(x.shape[-1], start, count, layout, *angles, amplitude, gain)


def _fit_member(x_NSC: Tensor, own_NC: Tensor, other_NC: Tensor) -> tuple[Tensor, Tensor, float]:
    """Least squares of each channel on its own and its partner's value at position 0: two factors, the largest rest."""
    aa, bb, ab = (own_NC**2).sum(0), (other_NC**2).sum(0), (own_NC * other_NC).sum(0)
    xa, xb = (x_NSC * own_NC[:, None]).sum(0), (x_NSC * other_NC[:, None]).sum(0)
    determinant = (aa * bb - ab * ab).clamp(min=1e-12)
    own, other = (xa * bb - xb * ab) / determinant, (xb * aa - xa * ab) / determinant
    rest = x_NSC - own * own_NC[:, None] - other * other_NC[:, None]
    return own, other, float(rest.abs().max())


def fit_speeds(angles_SC: Tensor) -> Tensor:
    """Return the angle of each pair a position: from the first step, and made exact step by step further out."""
    rotated = angles_SC - angles_SC[:1]
    speed = _wrap(rotated[1])
    for place in range(2, len(rotated)):
        speed = speed + _wrap(rotated[place] - place * speed) / place
    return speed


def _sharpen(speeds_C: Tensor) -> Tensor:
    """Return speeds that are powers of a base as exact powers: far out, at place 40,000, what is read is too coarse."""
    places = torch.arange(8, dtype=torch.float64, device=speeds_C.device)[:, None]
    base = find_base(speeds_C.abs(), places * speeds_C.abs())
    if base is None:
        return speeds_C
    powers = torch.arange(len(speeds_C), dtype=torch.float64, device=speeds_C.device) / len(speeds_C)
    return speeds_C.sign() * base**-powers


def _wrap(angle: Tensor) -> Tensor:
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi


def same_angles(ours: Tensor, other: Tensor) -> bool:
    """Whether two tables of angles [S, C] are equal, whole turns aside."""
    return ours.shape == other.shape and bool((_wrap(ours - other).abs() < _TOLERANCE).all())


def find_base(speeds_C: Tensor, angles_SC: Tensor) -> float | None:
    """Return the base of which the speeds are powers, base^(-2c/width); None if they are none."""
    count = len(speeds_C)
    if count < 2 or bool((speeds_C <= 0).any()) or abs(float(speeds_C[0]) - 1) > 1e-4:
        return None
    exponents = torch.arange(count, dtype=torch.float64, device=speeds_C.device) / count
    weights = speeds_C**2 * exponents**2  # an angle is known to within a constant, so a slow pair says less
    logarithm = float(-(weights * speeds_C.log() / exponents.clamp(min=1e-9))[1:].sum() / weights[1:].sum())
    base = float(f"{math.exp(logarithm):.4g}")
    places = torch.arange(len(angles_SC), dtype=torch.float64, device=speeds_C.device)[:, None]
    for candidate in (float(f"{base:.2g}"), float(f"{base:.3g}"), base):
        wanted = places * candidate**-exponents
        if same_angles(angles_SC - angles_SC[:1], wanted):
            return candidate
    return None
