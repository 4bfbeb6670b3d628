"""LieRE and ComRoPE: positions of several coordinates turn whole blocks of channels by learned rotations."""

from __future__ import annotations

import warnings
from typing import Literal, final

import torch
from torch import nn

from clockhands.errors import ClockhandsWarning, refuse_faults
from clockhands.options import Count, FromTwo, NotNegative
from clockhands.schemes.frequencies import check_axes, choose_angle_dtype, choose_working_dtype, take_shared_row
from clockhands.schemes.position_checks import is_traced
from clockhands.schemes.scheme import Declares, KeyPositions, Keys, Queries, QueryPositions, Rotated, Scheme
from clockhands.shapes import Float, Num, Tensor

LARGE = 2**27
"""Numbers in the rotations of one call, 1 GiB of float64, from which a warning says how large they are."""


@final
class LieRE(Scheme):
    """Lie rotations (Ostmeier et al. 2025): a token at p is rotated by exp(Σ_a p_a A_a), where each axis has a learned
    skew-symmetric A_a for each head, in blocks of channels.

    Every token needs matrices of its own: B·H·S·d_head·block numbers in float64, and their exponential. A grid of 64 x
    64 patches with 12 heads of 64 in whole heads takes 1.6 GB an image and layer, in blocks of 8 an eighth of it.

    Args:
        num_heads: every head learns its own rotations.
        head_dim: width of a head; a multiple of ``block``.
        axes: coordinates of a position.
        block: channels that are rotated together (LieRE-8; LieRE-64 is a whole head).
        form: ``free``: A_a without ties (LieRE); where several axes do not commute, the logits depend on more than
            differences of positions. ``partition``: each block follows one axis, in turn, and ``dependent``: A_a =
            θ_a·A in each block (ComRoPE-AP and ComRoPE-LD, Yu et al. 2025): both commute, and only differences matter.
        std: of the numbers of A at the start, radians a position.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import LieRE
        >>> q, pos = torch.randn(1, 2, 3, 8), torch.tensor([[[0, 0], [0, 1], [1, 0]]])
        >>> torch.equal(LieRE(num_heads=2, head_dim=8).rotate(q, q, pos, pos)[0][:, :, 0], q[:, :, 0])
        True
    """

    equation = r"q_p \mapsto \exp\big(\textstyle\sum_a p_a A_a\big) q_p, \quad A_a^\top = -A_a \text{ learned}"
    source = "Ostmeier et al. 2025 (LieRE, 2406.10322); Yu et al. 2025 (ComRoPE, CVPR)"
    peers = ("StanfordMIMI/LieRE", "Longin-Yu/ComRoPE (the authors' code; in no library)")
    per_layer = True
    rotates_by_head = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        axes: Count = 2,
        block: FromTwo = 8,
        form: Literal["free", "partition", "dependent"] = "free",
        std: NotNegative = 0.1,
    ) -> None:
        super().__init__()
        blocks = head_dim // block if head_dim % block == 0 else 0
        refuse_faults(
            (not blocks, f"liere.block is {block}, but must divide head_dim, which is {head_dim}"),
            (
                form == "partition" and blocks < axes,
                f"liere.form 'partition' gives each of {axes} axes a block, and there are {blocks} of {block}",
            ),
        )
        self.axes, self.block, self.form, self.std = axes, block, form, std
        several = axes if form == "free" else 1
        self.generator_HANCC = nn.Parameter(torch.empty(num_heads, several, blocks, block, block))
        self.rate_HAN = nn.Parameter(torch.empty(num_heads, axes, blocks)) if form == "dependent" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.generator_HANCC, std=self.std)
        if self.rate_HAN is not None:
            nn.init.normal_(self.rate_HAN)

    @property
    def declares(self) -> Declares:
        commutes = self.form != "free" or self.axes == 1
        return Declares(translation_invariant=commutes, real_valued=True, axes=self.axes)

    def rotate(self, q_BHSK: Queries, k_BHTK: Keys, qpos: QueryPositions, kpos: KeyPositions) -> Rotated:
        rotations = self.compute_rotations(qpos)
        others = rotations if qpos is kpos else self.compute_rotations(kpos)
        return self._rotate(q_BHSK, rotations), self._rotate(k_BHTK, others)

    def compute_rotations(self, pos: Num[Tensor, "B ..."]) -> Float[Tensor, "#B H S N C C"]:
        """Return every token's rotation of each block, in float64: [#B, H, S, N, C, C]."""
        own = take_shared_row(check_axes(pos, self.axes, "liere"))
        own = own if own.dim() == 4 else own[:, None]
        heads, _, blocks, width, _ = self.generator_HANCC.shape
        numbers = own.shape[0] * own.shape[2] * heads * blocks * width * width
        if numbers > LARGE and not is_traced():
            said = f"liere makes rotations of {numbers:,} numbers in one call, {numbers / 2**27:.1f} GiB"
            warnings.warn(f"{said}; a smaller block or fewer tokens need less", ClockhandsWarning, stacklevel=3)
        dtype = choose_angle_dtype(own.device)
        half_HANCC = self.generator_HANCC.to(dtype)
        # e^A is a rotation where A is skew-symmetric.
        skew_HANCC = half_HANCC - half_HANCC.transpose(-1, -2)
        if self.form == "free":
            # Σ_a p_a A_a: generators of the axes need not commute, and then only each axis alone is relative.
            generator = (own.to(dtype) @ skew_HANCC.flatten(2)).unflatten(-1, (blocks, width, width))
        else:
            angle_BHSN = own.to(dtype) @ self._weigh_axes(dtype)
            generator = angle_BHSN[..., None, None] * skew_HANCC[:, 0, None]
        # Of each block alone: the exponential of a matrix of blocks is the matrix of their exponentials.
        return torch.linalg.matrix_exp(generator)

    def _weigh_axes(self, dtype: torch.dtype) -> Float[Tensor, "H A N"]:
        """Return how much each axis turns each block, where its blocks have one generator."""
        heads, _, blocks, _, _ = self.generator_HANCC.shape
        if self.rate_HAN is not None:
            return self.rate_HAN.to(dtype)
        axis_of_N = torch.arange(blocks, device=self.generator_HANCC.device) % self.axes
        return nn.functional.one_hot(axis_of_N, self.axes).T.to(dtype).expand(heads, -1, -1)

    def _rotate(self, x_BHSK: Tensor, rotations: Tensor) -> Tensor:
        dtype = choose_working_dtype(x_BHSK.dtype)
        parts = x_BHSK.to(dtype).unflatten(-1, (-1, self.block))
        rotated = rotations.to(dtype) @ parts[..., None]
        return rotated[..., 0].flatten(-2).to(x_BHSK.dtype)
