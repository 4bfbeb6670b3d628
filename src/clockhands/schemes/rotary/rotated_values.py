"""Values that are rotated as keys are, and attention outputs that are rotated back: the output side of RoPE."""

from __future__ import annotations

import torch

from clockhands.errors import UsageError
from clockhands.schemes.frequencies import Memo, choose_working_dtype
from clockhands.schemes.rotary.base import CosSin, Rotary
from clockhands.schemes.rotary.rotation import Layout, RotationTable, make_table, rotate_heads
from clockhands.schemes.scheme import KeyPositions, Positions
from clockhands.shapes import Float, Tensor

__all__ = ["VALUE_HOOKS", "RotatedValues"]

VALUE_HOOKS = frozenset({"rotate_values", "rotate_back"})
"""The hooks that are needed only where values are rotated."""
Tables = tuple[RotationTable, RotationTable]
"""Rotation by the angles of positions, and back by them."""


class RotatedValues(Rotary):
    """Base of a rotary scheme that can rotate values too (DeepSeek-V4, model code of 2026).

    The value at position t_j is rotated by R(t_j), as its key is, and the output of the query at t_i by R(-t_i): what
    arrives of a value is R(t_j - t_i) v_j, which depends on the distance alone. Both act outside of the softmax, so
    that every kernel serves. A subclass gives the angles (``compute_value_cos_sin``).

    ``rotates_values``: whether values are rotated; if not, the scheme has neither hook.
    """

    def __init__(self, layout: Layout, *, rotates_values: bool) -> None:
        super().__init__(layout)
        self.rotates_values = rotates_values
        hooks = type(self).hooks()
        self._hooks = hooks if rotates_values else hooks - VALUE_HOOKS
        self._value_memo = Memo()

    def active_hooks(self) -> frozenset[str]:
        """Return ``rotate``, and the two hooks of values where they are rotated."""
        return self._hooks

    def compute_value_cos_sin(self, own: Positions, other: KeyPositions, dtype: torch.dtype) -> CosSin:
        """Return cosine and sine of the angles of values at the positions ``own``: [#B, #H, S, F], in ``dtype``.

        ``other`` are the positions of the other side, queries or keys, for frequencies that depend on the length.
        """
        raise NotImplementedError(f"{type(self).__name__} must give the angles of values")

    def rotate_values(
        self, v_BHTK: Float[Tensor, "B H T Kv"], qpos_BS: Positions, kpos_BT: KeyPositions
    ) -> Float[Tensor, "B H T Kv"]:
        """Rotate values [B, H, T, Kv] to their positions, if they are to be rotated; [B, H, T, Kv].

        Raises PositionError for positions of several coordinates, UsageError for values that are too narrow.
        """
        return self._rotate_one_way(v_BHTK, kpos_BT, qpos_BS, back=False) if self.rotates_values else v_BHTK

    def rotate_back(
        self, out_BHSK: Float[Tensor, "B H S Kv"], qpos_BS: Positions, kpos_BT: KeyPositions
    ) -> Float[Tensor, "B H S Kv"]:
        """Rotate outputs [B, H, S, Kv] back by the angles of their queries, if values are rotated; [B, H, S, Kv].

        Raises what ``rotate_values`` raises.
        """
        return self._rotate_one_way(out_BHSK, qpos_BS, kpos_BT, back=True) if self.rotates_values else out_BHSK

    def _rotate_one_way(self, x_BHSK: Tensor, own: Positions, other: KeyPositions, *, back: bool) -> Tensor:
        width, dtype = x_BHSK.shape[-1], x_BHSK.dtype

        def compute() -> Tables:
            cos, sin = self.compute_value_cos_sin(own, other, choose_working_dtype(dtype))
            if 2 * cos.shape[-1] > width:
                raise UsageError(
                    f"values have {width} channels and {2 * cos.shape[-1]} are to be rotated; lower fraction, or leave "
                    f"values = true out"
                )
            forward, backward = (make_table(cos, signed, self.layout, width, dtype) for signed in (sin, -sin))
            return forward, backward

        # Angles that depend on the length of the row depend on both sides, and the memo knows one.
        memoised = self.memoised and not self.declares.depends_on_length
        tables = self._value_memo(own, (dtype, width), compute) if memoised else compute()
        return rotate_heads(tables[1 if back else 0], x_BHSK)[0]
