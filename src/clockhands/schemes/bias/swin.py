"""Swin's biases for two-dimensional positions: a table of offsets, and a network over their logarithms."""

from __future__ import annotations

from typing import final

import torch
from torch import nn

from clockhands.errors import ConfigError, PositionError
from clockhands.schemes.base import Declares, KeyPositions, Positions, Scheme, check_integer
from clockhands.schemes.bias.mlp import Perceptron
from clockhands.shapes import Float, Int, Num, Tensor


def offsets(qpos_BSA: Num[Tensor, "B S 2"], kpos_BTA: Num[Tensor, "B T 2"]) -> Num[Tensor, "#B S T 2"]:
    """query - key for each coordinate; one row instead of B where all rows are alike by construction."""
    if qpos_BSA.shape[0] > 1 and qpos_BSA.stride(0) == 0 and kpos_BTA.stride(0) == 0:
        qpos_BSA, kpos_BTA = qpos_BSA[:1], kpos_BTA[:1]
    return qpos_BSA[:, :, None] - kpos_BTA[:, None]


def check_axes(pos: Num[Tensor, "*any"], scheme: str) -> None:
    """Raise PositionError for positions that are not pairs of row and column."""
    if pos.dim() != 3 or pos.shape[-1] != 2:
        shape = list(pos.shape)
        raise PositionError(f"{scheme} needs two coordinates a token, [B, S, 2], and got {shape}; see positions.grid")


@final
class SwinTable(Scheme):
    """A learned number for each head and each two-dimensional offset inside a window (Liu et al. 2021, equation 4).

    Args:
        num_heads: H.
        rows: rows of the window; offsets beyond it raise PositionError.
        columns: columns of the window; None: as many as rows.
    """

    equation = r"\ell_{ij} \mathrel{+}= B_h[\Delta\mathrm{row}, \Delta\mathrm{column}]"
    source = "Liu et al. 2021 (Swin), equation 4"
    peers = ("transformers SwinRelativePositionBias", "timm RelPosBias")
    per_layer = True

    def __init__(self, num_heads: int, *, rows: int = 7, columns: int | None = None) -> None:
        super().__init__()
        self.window = (rows, rows if columns is None else columns)
        if min(self.window) < 1:
            raise ConfigError([f"a window of {self.window[0]} x {self.window[1]}; both must be at least 1"], "swin")
        self.table_RH = nn.Parameter(torch.empty((2 * self.window[0] - 1) * (2 * self.window[1] - 1), num_heads))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """A normal distribution of standard deviation 0.02, cut at two of them."""
        nn.init.trunc_normal_(self.table_RH, std=0.02)

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True, axes=2, beyond="raise")

    def index(self, offset_BSTA: Int[Tensor, "B S T 2"]) -> Int[Tensor, "B S T"]:
        """Rows of the table. Raises PositionError for an offset that the window does not have."""
        rows, columns = self.window
        if not torch.compiler.is_compiling() and offset_BSTA.numel():
            reach = offset_BSTA.abs().amax((0, 1, 2)).tolist()
            if reach[0] >= rows or reach[1] >= columns:
                raise PositionError(
                    f"tokens are {reach[0]} rows and {reach[1]} columns apart, but the window of swin is "
                    f"{rows} x {columns}; enlarge it or split the input into windows"
                )
        return (offset_BSTA[..., 0] + rows - 1) * (2 * columns - 1) + offset_BSTA[..., 1] + columns - 1

    def bias(
        self,
        q_BHSK: Float[Tensor, "B H S K"],
        k_BHTK: Float[Tensor, "B H T K"],
        qpos_BS: Positions,
        kpos_BT: KeyPositions,
    ) -> Float[Tensor, "#B H S T"]:
        check_axes(qpos_BS, "swin")
        check_integer(qpos_BS, "swin")
        return nn.functional.embedding(self.index(offsets(qpos_BS, kpos_BT)), self.table_RH).permute(0, 3, 1, 2)


@final
class LogCPB(Scheme):
    """Log-spaced continuous position bias (Liu et al. 2022, Swin V2, section 3.3): 16·σ(MLP(Δ')) for each head.

    Each coordinate of Δ is divided by the window's reach (rows - 1, columns - 1), multiplied by 8, and becomes
    sign(Δ)·log2(1 + |Δ|)/log2(8). The network is 2 → hidden → H with ReLU, and no bias at the end.

    Args:
        num_heads: H.
        rows: rows of the window of pre-training, which sets the unit of offsets.
        columns: its columns; None: as many as rows.
        hidden: width of the hidden layer.
    """

    equation = r"\ell_{ij} \mathrel{+}= 16\,\sigma(\mathrm{MLP}_h(\mathrm{sign}(\Delta) \log_2(1 + 8|\Delta|) / 3))"
    source = "Liu et al. 2022 (Swin V2), equations 4 and 5"
    peers = ("transformers Swinv2SelfAttention", "timm RelPosMlp")
    per_layer = True

    def __init__(self, num_heads: int, *, rows: int = 8, columns: int | None = None, hidden: int = 512) -> None:
        super().__init__()
        self.window = (rows, rows if columns is None else columns)
        if min(self.window) < 1:
            raise ConfigError([f"a window of {self.window[0]} x {self.window[1]}; both must be at least 1"], "log-cpb")
        self.mlp = Perceptron(2, hidden, num_heads, activation=nn.ReLU, last_bias=False)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """PyTorch's own draw for linear layers."""
        self.mlp.reset_parameters()

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True, axes=2, real_valued=True)

    def bias(
        self,
        q_BHSK: Float[Tensor, "B H S K"],
        k_BHTK: Float[Tensor, "B H T K"],
        qpos_BS: Positions,
        kpos_BT: KeyPositions,
    ) -> Float[Tensor, "#B H S T"]:
        check_axes(qpos_BS, "log-cpb")
        offset_BSTA = offsets(qpos_BS, kpos_BT)
        if offset_BSTA.is_floating_point() or torch.compiler.is_compiling():
            return self.curve(offset_BSTA)
        unique_R2, index = torch.unique(offset_BSTA.reshape(-1, 2), dim=0, return_inverse=True)
        curve_RH = self.curve(unique_R2[None, :, None])[0, :, :, 0].T
        return nn.functional.embedding(index.view(offset_BSTA.shape[:3]), curve_RH).permute(0, 3, 1, 2)

    def curve(self, offset_BSTA: Num[Tensor, "B S T 2"]) -> Float[Tensor, "B H S T"]:
        """The network's answers for offsets."""
        reach = torch.tensor([max(side - 1, 1) for side in self.window], device=offset_BSTA.device)
        scaled = offset_BSTA / reach * 8
        scaled = scaled.sign() * torch.log2(scaled.abs() + 1) / 3
        return 16 * torch.sigmoid(self.mlp(scaled)).permute(0, 3, 1, 2)
