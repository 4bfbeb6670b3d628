"""M-RoPE: one spectrum whose hands are dealt out to time, height and width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

import torch

from clockhands.errors import refuse
from clockhands.options import Positive
from clockhands.schemes.frequencies import check_axes, compute_frequencies, take_shared_row
from clockhands.schemes.rotary.rotation import Layout, Rotary, check_pairs
from clockhands.schemes.scheme import Declares, QueryPositions
from clockhands.shapes import Float, Tensor


@final
class MRoPE(Rotary):
    """Multimodal RoPE (Qwen2-VL, Wang et al. 2024): positions (t, h, w), one hand of RoPE's spectrum each.

    Text has t = h = w (``positions.repeat_on_axes``) and is rotated as under ``rope``; what follows an image continues
    after its largest coordinate (``positions.make_segments``).

    Args:
        head_dim: width of a head; even.
        base: θ_c = base^(-2c/d).
        layout: pairs ``half`` or ``interleaved``, as in ``rope``.
        sections: how many of the d/2 hands follow t, h and w; by default, in blocks, a quarter and three eighths twice
            (16, 24, 24 of 64); interleaved, three eighths and five sixteenths twice (24, 20, 20 of 64).
        order: ``block`` (t's hands first, then h's, then w's: Qwen2-VL) or ``interleaved`` (t, h, w, t, h, w, ...: the
            axes share slow and fast hands; Qwen3-VL).

    Examples:
        >>> import torch
        >>> from clockhands.schemes import MRoPE
        >>> MRoPE(head_dim=16).list_axes_of_pairs()
        [0, 0, 1, 1, 1, 2, 2, 2]
        >>> MRoPE(head_dim=16, order="interleaved").list_axes_of_pairs()
        [0, 1, 2, 0, 1, 2, 0, 0]
    """

    equation = r"\theta(p)_c = p_{a(c)} \, b^{-2c/d}, \quad a(c) \in \{t, h, w\}"
    source = "Wang et al. 2024 (Qwen2-VL), section 2.1; Qwen3-VL 2025"
    peers = ("transformers Qwen2-VL and Qwen3-VL", "timm RotaryEmbeddingMRope")
    models = ("Qwen2-VL", "Qwen3-VL")

    def __init__(
        self,
        head_dim: int,
        *,
        base: Positive = 10_000.0,
        layout: Layout = "half",
        sections: Sequence[int] | None = None,
        order: Literal["block", "interleaved"] = "block",
    ) -> None:
        super().__init__(layout)
        check_pairs("mrope", head_dim, "head_dim")
        pairs = head_dim // 2
        # Three eighths are more than the third that an axis can have when the three take turns.
        side = 3 * pairs // 8 if order == "block" else 5 * pairs // 16
        chosen = tuple(sections) if sections is not None else (pairs - 2 * side, side, side)
        refuse(
            len(chosen) != 3 or sum(chosen) != pairs or min(chosen) < 0,
            f"mrope.sections is {list(chosen)}, but must be 3 numbers that add up to {pairs} pairs",
        )
        refuse(
            order == "interleaved" and 3 * max(chosen[1:]) > pairs,
            f"mrope.sections {list(chosen)} cannot be interleaved: h and w get every third of {pairs} pairs",
        )
        self.head_dim, self.base, self.sections, self.order = head_dim, base, chosen, order

    declares = Declares(translation_invariant=True, real_valued=True, axes=3)

    def list_axes_of_pairs(self) -> list[int]:
        """Return for each pair the coordinate that rotates it: 0 t, 1 h, 2 w."""
        if self.order == "block":
            return [axis for axis, count in enumerate(self.sections) for _ in range(count)]
        return [
            next((axis for axis in (1, 2) if c % 3 == axis and c < 3 * self.sections[axis]), 0)
            for c in range(self.head_dim // 2)
        ]

    def angles(self, pos: QueryPositions) -> Float[Tensor, "*B S F"]:
        own = take_shared_row(check_axes(pos, 3, "mrope"))
        omega_F = compute_frequencies(self.head_dim, self.base, device=own.device)
        axis_of_F = torch.tensor(self.list_axes_of_pairs(), device=own.device)
        # Every pair turns by the one coordinate that it was dealt.
        return own[..., axis_of_F].to(omega_F.dtype) * omega_F

    def to_hf_config(self) -> dict[str, Any] | None:
        parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": self.base}
        parameters["mrope_section"] = list(self.sections)
        return {"rope_parameters": parameters}
