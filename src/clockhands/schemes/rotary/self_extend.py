"""Self-Extend: near tokens are counted one by one, far ones in groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch

from clockhands.options import Count, FromTwo, Positive
from clockhands.schemes.rotary.rotation import Layout
from clockhands.schemes.rotary.trained_length import choose_window
from clockhands.schemes.rotary.two_rotations import FarPairs, TwoRotations
from clockhands.schemes.scheme import Declares
from clockhands.shapes import Num, Tensor


@final
class SelfExtend(TwoRotations):
    """Self-Extend (Jin et al. 2024): distances below the window W are RoPE's; beyond it, positions are
    counted in groups of G, ⌊i/G⌋ - ⌊j/G⌋ + W - ⌊W/G⌋. A model that was trained with RoPE reads texts about G times as
    long so without training.

    Args:
        head_dim: width of a head; even.
        base: θ_c = base^(-2c/d).
        layout: pairs ``half`` or ``interleaved``, as in ``rope``.
        original_length: the trained length. In a new training it is the length of its texts; it may be left out where
            the window is given, which is then compared with nothing.
        window: W, in tokens, below the trained length; None: a quarter of it (the authors' examples have 1,024 for
            Llama 2, which was trained on 4,096, and 512 for Phi-2, which was trained on 2,048).
        group: G, in tokens.

    Examples:
        >>> import torch
        >>> from clockhands.attention import attend_reference
        >>> from clockhands.schemes import SelfExtend
        >>> q, pos = torch.ones(1, 1, 4, 2), torch.tensor([[0, 1, 2, 3]])
        >>> scheme = SelfExtend(head_dim=2, window=2, group=2)
        >>> attend_reference(scheme, q, q, q, pos, pos, causal=True).logits_BHST[0, 0, 3]
        tensor([-0.5885, -0.5885,  0.7641,  1.4142])
    """

    equation = (
        r"\ell_{ij} = q_i^\top R(\rho) k_j / \sqrt{d_h}, \quad "
        r"\rho = \lfloor i/G \rfloor - \lfloor j/G \rfloor + W - \lfloor W/G \rfloor \text{ for } i - j \ge W"
    )
    source = "Jin et al. 2024 (2401.01325)"
    peers = ("datamllab/LongLM (the authors' code)", "llama.cpp --grp-attn-n, --grp-attn-w")

    def __init__(
        self,
        head_dim: int,
        *,
        base: Positive = 10_000.0,
        layout: Layout = "half",
        original_length: FromTwo | None = None,
        window: Count | None = None,
        group: Count = 8,
    ) -> None:
        super().__init__("self-extend", head_dim, base, layout)
        self.window, self.group = choose_window("self-extend", window, original_length), group

    declares = Declares(causal_only=True, real_valued=True)

    def list_far_pairs(self, qpos: Num[Tensor, "B S"], kpos: Num[Tensor, "B T"]) -> Iterator[FarPairs]:
        far_BST = qpos[:, :, None] - kpos[:, None, :] >= self.window
        qgroup_BS = torch.div(qpos, self.group, rounding_mode="floor")
        kgroup_BT = torch.div(kpos, self.group, rounding_mode="floor")
        # Groups count on where the window ends: w - w/G more, so that distances meet there.
        yield qgroup_BS + self.window - self.window // self.group, kgroup_BT, far_BST
