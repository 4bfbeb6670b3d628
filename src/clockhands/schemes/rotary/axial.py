"""Rotary embedding of several coordinates: each axis rotates its own pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

import torch

from clockhands.errors import ConfigError
from clockhands.options import Count, Positive
from clockhands.schemes.frequencies import check_axes, compute_cos_sin, compute_frequencies, take_shared_row
from clockhands.schemes.rotary.rotation import CosSin, Layout, Rotary, add_head_axis
from clockhands.schemes.scheme import Declares
from clockhands.shapes import Float, Num, Tensor


def _split_channels(head_dim: int, axes: int) -> tuple[int, ...]:
    """Return how many channels each axis rotates: as equal as pairs allow, and the first axis takes the rest.

    128 channels over time, height and width are 44, 42 and 42, as in Wan 2.1.
    """
    # Whole pairs for each axis; what is left goes to the first.
    equal_share = 2 * (head_dim // (2 * axes))
    return head_dim - equal_share * (axes - 1), *[equal_share] * (axes - 1)


@final
class Axial(Rotary):
    """Axial RoPE (Heo et al. 2024, section 3.1): the pairs are split over the axes, each with its whole spectrum.

    Args:
        head_dim: width of a head; even, and at least 2·axes.
        axes: coordinates of a position.
        base: θ_c = base^(-2c/d_a) on every axis, with d_a the channels of the axis (100 for grids of patches).
        layout: pairs ``half`` or ``interleaved``, as in ``rope``.
        unit: radians by which a position of 1 rotates the fastest pair (DINOv3: 2π, coordinates in [-1, 1]).
        shares: channels that each axis rotates, even numbers that add up to head_dim (FLUX: 16, 56, 56); None: as equal
            as pairs allow, and the first axis takes the rest (Wan 2.1: 44, 42, 42).
        bases: a base for each axis in place of ``base``.
        grid: ``own``: every axis has a spectrum of its own width, from fast to slow; ``dealt``: one spectrum of the
            whole head is dealt out in turn, so that axis a has the frequencies a, a + A, a + 2A, ... (Pixtral: rows
            take ``f[::2]`` and columns ``f[1::2]``).

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Axial
        >>> q, pos = torch.ones(1, 1, 2, 4), torch.tensor([[[0, 0], [0, 1]]])
        >>> Axial(head_dim=4).rotate(q, q, pos, pos)[0][0, 0]
        tensor([[ 1.0000,  1.0000,  1.0000,  1.0000],
                [ 1.0000,  1.0000, -0.3012,  1.3818]])
    """

    equation = (
        r"\theta(p) = [p_1 \theta_1, \dots, p_1 \theta_{d_1/2}, p_2 \theta_1, \dots], \quad \theta_c = b^{-2c/d_a}"
    )
    source = "Heo et al. 2024 (RoPE-ViT), section 3.1"
    peers = (
        "rotary-embedding-torch get_axial_freqs",
        "timm RotaryEmbeddingCat",
        "transformers DINOv3",
        "transformers Pixtral (grid='dealt')",
    )
    models = ("DINOv3", "Pixtral", "FLUX.1", "Wan 2.1", "HunyuanVideo", "CogVideoX")

    def __init__(
        self,
        head_dim: int,
        *,
        axes: Count = 2,
        base: Positive = 100.0,
        layout: Layout = "interleaved",
        unit: float = 1.0,
        shares: Sequence[int] | None = None,
        bases: Sequence[float] | None = None,
        grid: Literal["own", "dealt"] = "own",
    ) -> None:
        super().__init__(layout)
        self.head_dim, self.axes, self.base, self.unit = head_dim, axes, base, unit
        self.bases, self.grid = (tuple(bases) if bases is not None else (base,) * axes), grid
        wrong = _find_size_faults(head_dim, axes, shares, bases)
        if not wrong and grid == "dealt" and (bases is not None or shares is not None or head_dim % (2 * axes)):
            wrong = [
                f"axial.grid is 'dealt', which deals one spectrum out in turn: it takes no shares and no bases, and "
                f"head_dim must be a multiple of 2 x {axes} axes; it is {head_dim}"
            ]
        if wrong:
            raise ConfigError(wrong, "the scheme")
        self.shares = tuple(shares) if shares is not None else _split_channels(head_dim, axes)

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True, real_valued=True, axes=self.axes)

    def frequencies(self, axis: int, device: torch.device | str | None = None) -> Float[Tensor, " F"]:
        """Return the radians by which a position of 1 on an axis rotates each of its pairs, in float64: [F]."""
        if self.grid == "dealt":
            # Every A-th frequency of one spectrum, from the axis's own on.
            return compute_frequencies(self.head_dim, self.base, device=device)[axis :: self.axes] * self.unit
        # θ_c = base^(-2c/d_a): each axis runs from fast to slow within its own channels.
        return compute_frequencies(self.shares[axis], self.bases[axis], device=device) * self.unit

    def compute_cos_sin(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype) -> CosSin:
        own = take_shared_row(check_axes(pos, self.axes, "axial"))
        waves = [
            compute_cos_sin(own[..., axis], self.frequencies(axis, own.device), dtype) for axis in range(self.axes)
        ]
        return add_head_axis(torch.cat([cos for cos, _ in waves], -1), torch.cat([sin for _, sin in waves], -1))


def _find_size_faults(
    head_dim: int, axes: int, shares: Sequence[int] | None, bases: Sequence[float] | None
) -> list[str]:
    """Return what is wrong with the channels and bases of the axes, one sentence each."""
    if head_dim % 2 or head_dim < 2 * axes:
        return [f"axial shares pairs of channels out: head_dim {head_dim} has none for each of {axes} axes, or is odd"]
    wrong = []
    if shares is not None and (len(shares) != axes or sum(shares) != head_dim or any(d < 2 or d % 2 for d in shares)):
        wrong.append(
            f"axial.shares is {list(shares)}, but must be {axes} even numbers above 0 that add up to head_dim, which "
            f"is {head_dim}"
        )
    if bases is not None and (len(bases) != axes or min(bases, default=0) <= 0):
        wrong.append(f"axial.bases is {list(bases)}, but must be {axes} numbers above 0")
    return wrong
