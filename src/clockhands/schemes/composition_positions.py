"""Which positions each part of a composition reads: its own coordinates, where the parts do not read all the same."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.schemes.composition_rules import combine_declarations, list_schemes_of_fewer_axes
from clockhands.schemes.frequencies import check_axes, drop_axis
from clockhands.schemes.position_checks import check_integer
from clockhands.schemes.scheme import Places, Positions, Scheme, States
from clockhands.shapes import Float, Tensor


class PartPositions:
    """The positions that the parts of a composition read.

    Attention has one tensor of positions. If a part places tokens and another one reads where the model placed them,
    that tensor holds both: the coordinates of the part that places tokens, and behind them the model's own. If a part
    reads a coordinate behind those of the others (the option ``axis`` of a window), the others read those before it.

    Args:
        parts: the parts of the composition, of which at most one places tokens.
    """

    def __init__(self, parts: Sequence[Scheme]) -> None:
        self.parts = tuple(parts)
        self._reading_fewer = list_schemes_of_fewer_axes(parts)
        self.locating = tuple(part for part in parts if "locate" in part.active_hooks())
        self.holds_both = bool(self.locating) and any(
            part.declares.axes is not None for part in parts if part not in self.locating
        )

    @property
    def axes(self) -> int:
        """The number of coordinates that the parts read."""
        return combine_declarations(self.parts).axes or 1

    def locate(self, x_BSD: States, pos_BS: Positions, past_BHTA: Places | None) -> Float[Tensor, "B H S A"] | None:
        """Return the coordinates that the arguments of ``Scheme.locate`` give, with the model's own behind them.

        None if no part places tokens. Raises PositionError for real-valued positions where a part takes whole ones, and
        for several coordinates where they are read as one.
        """
        if not self.locating:
            return None
        (part,) = self.locating
        for other in self.parts:
            if not other.declares.real_valued and other.active_hooks() != {"encode"}:
                check_integer(pos_BS, type(other).__name__.lower())
        axes = self.axes
        if self.holds_both and axes == 1:
            pos_BS = drop_axis(pos_BS, "composition")
        past = past_BHTA[..., :-axes] if self.holds_both and past_BHTA is not None else past_BHTA
        located = part.locate(x_BSD, pos_BS, past)
        if located is None or not self.holds_both:
            return located
        pos_BSA = pos_BS[..., None] if pos_BS.dim() == 2 else pos_BS
        counted_BHSA = pos_BSA[:, None].to(located.dtype).expand(*located.shape[:3], axes)
        return torch.cat([located, counted_BHSA], dim=-1)

    def select(self, part: Scheme, *pos: Tensor) -> list[Tensor]:
        """Return, for each tensor of positions, those that a part reads: its own coordinates, or the model's.

        Raises PositionError for another number of coordinates than a part that reads fewer needs beside the others.
        """
        if not self.holds_both or pos[0].dim() < 4:
            return [self._drop_axes_of_others(part, place) for place in pos]
        axes = self.axes
        if part in self.locating:
            return [located[..., :-axes] for located in pos]
        counted = [located[:, 0, :, -axes:] for located in pos]
        counted = [place if part.declares.real_valued else place.round().long() for place in counted]
        counted = [place[..., 0] for place in counted] if axes == 1 else counted
        return [self._drop_axes_of_others(part, place) for place in counted]

    def _drop_axes_of_others(self, part: Scheme, pos: Positions) -> Positions:
        if part not in self._reading_fewer:
            return pos
        own = part.declares.axes or 1
        pos_BSA = check_axes(pos, self.axes, "composition")
        return pos_BSA[..., 0] if own == 1 else pos_BSA[..., :own]
