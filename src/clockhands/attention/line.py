"""How tokens stand on a line: in one run of neighbours, as a text, or in runs at equal distances, as a grid."""

from __future__ import annotations

from typing import NamedTuple

import torch

from clockhands.schemes.scheme import KeyPositions, Positions
from clockhands.shapes import Int, Tensor


class Line(NamedTuple):
    """Runs of ``run`` neighbours that begin ``step`` apart. A text is one run; a grid has one for each of its rows."""

    run: int
    step: int

    def get_offset(self, token: int) -> int:
        """Return how far a token, counted from 0, stands from the first."""
        return token // self.run * self.step + token % self.run

    def list_offsets(self, tokens: int, device: torch.device) -> Int[Tensor, " N"]:
        """Return how far each of so many tokens stands from the first: [N]."""
        token_N = torch.arange(tokens, device=device)
        return token_N // self.run * self.step + token_N % self.run

    def count_runs(self, tokens: int) -> tuple[int, int]:
        """Return the number of runs that so many tokens fill, and the tokens in each."""
        return (1, tokens) if tokens < self.run else (tokens // self.run, self.run)


def find_line(q_BS: Positions, k_BT: KeyPositions) -> Line | None:
    """Find how tokens at these positions stand, if all rows of the batch stand alike; None otherwise.

    Either all keys are in one run, and the queries may be some of them, or queries and keys both stand in runs of one
    length and distance.
    """
    if q_BS.dim() != 2:
        return None
    # A batch with stride 0 is one row expanded to all, so that one row is compared instead of all.
    q_BS = q_BS[:1] if q_BS.stride(0) == 0 else q_BS
    k_BT = k_BT[:1] if k_BT.stride(0) == 0 else k_BT
    first_B, queries, keys = q_BS[:, 0] - k_BT[:, 0], q_BS.shape[1], k_BT.shape[1]
    # The first jump in the positions of the keys ends the first run, and the next position begins the second.
    jumps = (k_BT[0].diff() != 1).nonzero()
    run = int(jumps[0]) + 1 if len(jumps) else keys
    line = Line(run, int(k_BT[0, run] - k_BT[0, 0])) if run < keys else Line(max(queries, keys), 1)
    if run < keys and (queries != keys or keys % run or line.step < run):
        return None
    offset_N = line.list_offsets(max(queries, keys), q_BS.device)
    alike = all(bool((x - x[:, :1] == offset_N[: x.shape[1]]).all()) for x in (q_BS, k_BT))
    return line if alike and bool((first_B == first_B[0]).all()) else None
