"""Swin's biases for two-dimensional positions: a table of offsets, and a network over their logarithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

import torch
from torch import nn

from clockhands.errors import PositionError
from clockhands.options import Count
from clockhands.schemes.bias.mlp import Perceptron
from clockhands.schemes.distance import DistanceBias
from clockhands.schemes.position_checks import can_read, check_integer, is_traced
from clockhands.schemes.scheme import AttentionInputs, Bias, Declares, KeyPositions, QueryPositions
from clockhands.shapes import Float, Int, Num, Tensor


class _GridBias(DistanceBias):
    """A bias that is a function of two-dimensional offsets. A subclass gives ``surface``.

    Rows laid end to end, each followed by as many empty places as keep offsets apart, make a line: the offset (Δrow,
    Δcolumn) is the distance Δrow·step + Δcolumn, |Δcolumn| <= step/2.
    """

    name: ClassVar[str]

    def surface(self, offset_R2: Num[Tensor, "R 2"]) -> Float[Tensor, "H R"]:
        """Return the bias at each offset query - key, (row, column): [H, R]."""
        raise NotImplementedError(f"{type(self).__name__} must give its surface")

    def place_on_line(
        self, qpos: QueryPositions, kpos: KeyPositions
    ) -> tuple[Int[Tensor, "B S"], Int[Tensor, "B T"], Callable[[Tensor], Tensor]]:
        """Put the cells of the grid on a line, on which a distance stands for one offset."""
        for pos in (qpos, kpos):
            _check_row_and_column(pos, self.name)
            check_integer(pos, self.name)
        batch = qpos.shape[0]
        if qpos.stride(0) == 0 and kpos.stride(0) == 0:
            qpos, kpos = qpos[:1], kpos[:1]
        (q_low, q_high), (k_low, k_high) = qpos[..., 1].aminmax(dim=1), kpos[..., 1].aminmax(dim=1)
        reach = max(int((q_high - k_low).max()), int((k_high - q_low).max()))
        # row·step + column with a step wider than any difference of columns: one number for both offsets.
        step = 2 * reach + 1

        def curve(distance_R: Int[Tensor, " R"]) -> Float[Tensor, "H R"]:
            # Back from the number to the two offsets.
            row_R = (distance_R + reach).div(step, rounding_mode="floor")
            return self.surface(torch.stack([row_R, distance_R - row_R * step], dim=-1))

        q_BS = qpos[..., 0] * step + qpos[..., 1]
        k_BT = kpos[..., 0] * step + kpos[..., 1]
        return q_BS.expand(batch, -1), k_BT.expand(batch, -1), curve

    def bias(self, at: AttentionInputs) -> Bias:
        for pos in (at.qpos, at.kpos):
            _check_row_and_column(pos, self.name)
        if not (at.qpos.is_floating_point() or is_traced()):
            return super().bias(at)
        offset_BSTA = at.qpos[:, :, None] - at.kpos[:, None]
        flat_HR = self.surface(offset_BSTA.reshape(-1, 2))
        return flat_HR.unflatten(1, offset_BSTA.shape[:3]).transpose(0, 1)


def _check_row_and_column(pos: Num[Tensor, "*any"], scheme: str) -> None:
    """Raise PositionError for positions that are not pairs of row and column."""
    if pos.dim() != 3 or pos.shape[-1] != 2:
        raise PositionError(
            f"{scheme} needs two coordinates a token, [B, S, 2], and got {list(pos.shape)}; see positions.make_grid"
        )


@final
class SwinTable(_GridBias):
    """A learned number for each head and each two-dimensional offset inside a window (Liu et al. 2021, equation 4).

    Args:
        num_heads: H.
        rows: rows of the window; offsets beyond it raise PositionError.
        columns: columns of the window; None: as many as rows.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import SwinTable
        >>> SwinTable(num_heads=2).surface(torch.tensor([[0, 0], [1, -2]])).shape
        torch.Size([2, 2])
    """

    equation = r"\ell_{ij} \mathrel{+}= B_h[\Delta\mathrm{row}, \Delta\mathrm{column}]"
    source = "Liu et al. 2021 (Swin), equation 4"
    peers = ("transformers SwinRelativePositionBias", "timm RelPosBias")
    models = ("Swin",)
    name = "swin"
    per_layer = True

    def __init__(self, num_heads: int, *, rows: Count = 7, columns: Count | None = None) -> None:
        super().__init__()
        self.window = (rows, rows if columns is None else columns)
        self.table_RH = nn.Parameter(torch.empty((2 * self.window[0] - 1) * (2 * self.window[1] - 1), num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table from N(0, 0.02²), cut at two standard deviations."""
        nn.init.trunc_normal_(self.table_RH, std=0.02)

    declares = Declares(translation_invariant=True, axes=2, beyond="raise")

    def to_hf_config(self) -> dict[str, Any] | None:
        return {"window_size": self.window[0]} if self.window[0] == self.window[1] else None

    def surface(self, offset_R2: Num[Tensor, "R 2"]) -> Float[Tensor, "H R"]:
        check_integer(offset_R2, self.name)
        rows, columns = self.window
        if can_read(offset_R2):
            reach = offset_R2.abs().amax(0).tolist()
            if reach[0] >= rows or reach[1] >= columns:
                raise PositionError(
                    f"tokens are {reach[0]} rows and {reach[1]} columns apart, but the window of swin is "
                    f"{rows} x {columns}; enlarge it or split the input into windows"
                )
        # The place of (Δrow, Δcolumn), each moved to begin at 0, in a table whose rows have 2C - 1 numbers.
        index_R = (offset_R2[:, 0] + rows - 1) * (2 * columns - 1) + offset_R2[:, 1] + columns - 1
        return nn.functional.embedding(index_R, self.table_RH).float().T


@final
class LogCPB(_GridBias):
    """Log-spaced continuous position bias (Liu et al. 2022, Swin V2, section 3.3): 16·σ(MLP(Δ')) for each head.

    Each coordinate of Δ is divided by the window's reach (rows - 1, columns - 1), multiplied by 8, and becomes
    sign(Δ)·log2(1 + |Δ|)/log2(8). The network is 2 → hidden → H with ReLU, and no bias at the end.

    Args:
        num_heads: H.
        rows: rows of the window of pre-training, which sets the unit of offsets.
        columns: its columns; None: as many as rows.
        hidden: width of the hidden layer.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import LogCPB
        >>> LogCPB(num_heads=2).surface(torch.tensor([[0, 0], [1, -2]])).shape
        torch.Size([2, 2])
    """

    equation = r"\ell_{ij} \mathrel{+}= 16\,\sigma(\mathrm{MLP}_h(\mathrm{sign}(\Delta) \log_2(1 + 8|\Delta|) / 3))"
    source = "Liu et al. 2022 (Swin V2), equations 4 and 5"
    peers = ("transformers Swinv2SelfAttention", "timm RelPosMlp")
    models = ("Swin V2",)
    name = "log-cpb"
    per_layer = True

    def __init__(self, num_heads: int, *, rows: Count = 8, columns: Count | None = None, hidden: Count = 512) -> None:
        super().__init__()
        self.window = (rows, rows if columns is None else columns)
        self.mlp = Perceptron(2, hidden, num_heads, activation=nn.ReLU, last_bias=False)

    declares = Declares(translation_invariant=True, axes=2, real_valued=True)

    def surface(self, offset_R2: Num[Tensor, "R 2"]) -> Float[Tensor, "H R"]:
        reach = torch.tensor([max(side - 1, 1) for side in self.window], device=offset_R2.device)
        scaled_R2 = offset_R2 / reach * 8
        # log2(1 + 8|Δ|)/log2(8): 0 at no distance, and about 1 at the edge of the window; log2(8) is 3.
        scaled_R2 = scaled_R2.sign() * torch.log2(scaled_R2.abs() + 1) / 3
        # Bounded as the authors bound it: between 0 and 16.
        return 16 * torch.sigmoid(self.mlp(scaled_R2)).T
