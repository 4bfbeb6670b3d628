"""How far does adding a position move each channel of a token?

In names of tensors ``D`` are the channels of the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from clockhands.inspection.reading.capture import Capture
from clockhands.models.input_table import Tables
from clockhands.shapes import Float, Tensor

STILL = 0.1
"""A channel that positions move by less than this share of the tokens' spread hardly moves."""


@dataclass(frozen=True)
class ChannelMoves:
    """By how much positions change each channel, as a multiple of the standard deviation of the tokens there.

    ``varying_D``: the standard deviation over positions: what differs from place to place, and can be taken for another
    token. ``shift_D``: the size of the mean over positions, which every token gets alike.
    """

    varying_D: Float[Tensor, " D"]
    shift_D: Float[Tensor, " D"]

    @property
    def num_still(self) -> int:
        """The number of channels that hardly move."""
        return int((self.varying_D < STILL).sum())

    def average_part(self, start: float, end: float) -> float:
        """Return the root mean square of the varying move over the channels from one share of them to another."""
        width = len(self.varying_D)
        return float(self.varying_D[round(start * width) : round(end * width)].square().mean().sqrt())


def compute_channel_moves(positions_TD: Float[Tensor, "T D"], token_variance_D: Float[Tensor, " D"]) -> ChannelMoves:
    """Return how far position vectors move each channel, in units of the tokens' standard deviation there.

    Raises ValueError where tokens do not vary in some channel, as where positions have channels of their own.
    """
    if not bool((token_variance_D > 0).all()):
        raise ValueError("tokens do not vary in every channel, so that a move has nothing to be compared with")
    spread_D = token_variance_D.double().sqrt()
    positions = positions_TD.double()
    return ChannelMoves(positions.std(0, correction=0) / spread_D, positions.mean(0).abs() / spread_D)


def measure_channel_moves(tables: Tables, capture: Capture) -> ChannelMoves | None:
    """Return how far the positions in use move each channel of the tokens of a text; None where some do not vary.

    Tokens count as often as they occur; special tokens and position 0 are left out. Both are taken as they are added,
    before a norm.
    """
    tokens = tables.tokens_VD[capture.ids_NT[:, capture.measured_T].flatten()].double()
    variance_D = tokens.var(0, correction=0)
    if bool((variance_D <= 1e-12 * variance_D.max()).any()):
        return None
    return compute_channel_moves(tables.positions_ND[: capture.length][capture.measured_T], variance_D)
