"""ReRoPE: beyond a window every key stands at the window's edge, or moves away more slowly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch

from clockhands.options import AtLeastOne, Count, FromTwo, Positive
from clockhands.schemes.rotary.rotation import Layout
from clockhands.schemes.rotary.trained_length import choose_window
from clockhands.schemes.rotary.two_rotations import FarPairs, TwoRotations
from clockhands.schemes.scheme import Declares
from clockhands.shapes import Num, Tensor


@final
class ReRoPE(TwoRotations):
    """Rectified RoPE (Su 2023): distances r < w are RoPE's; from the window w on, every distance is w, or, in the leaky
    form, w + (r - w)/k. A model that was trained with RoPE reads longer texts so without training.

    Args:
        head_dim: width of a head; even.
        base: θ_c = base^(-2c/d).
        layout: pairs ``half`` or ``interleaved``, as in ``rope``.
        original_length: the trained length. In a new training it is the length of its texts; it may be left out where
            the window is given, which is then compared with nothing.
        window: w, in tokens, below the trained length; None: half of it (Su finds a quarter to half the best, and has
            256 for a model that was trained on 512; kexue.fm/archives/9708).
        factor: k of the leaky form; None: distances beyond the window are all w.

    Examples:
        >>> import torch
        >>> from clockhands.attention import attend_reference
        >>> from clockhands.schemes import ReRoPE
        >>> q, pos = torch.ones(1, 1, 4, 2), torch.tensor([[0, 1, 2, 3]])
        >>> scheme = ReRoPE(head_dim=2, window=2)
        >>> attend_reference(scheme, q, q, q, pos, pos, causal=True).logits_BHST[0, 0, 3]
        tensor([-0.5885, -0.5885,  0.7641,  1.4142])
    """

    equation = (
        r"\ell_{ij} = q_i^\top R(\rho(i - j)) k_j / \sqrt{d_h}, \quad "
        r"\rho(r) = r \text{ if } r < w \text{ else } w + (r - w)/k"
    )
    source = "Su 2023 (bojone/rerope, ReRoPE and Leaky ReRoPE)"
    peers = ("bojone/rerope (the author's code; in no library)", "jquesnelle/yarn LlamaReRoPE")

    def __init__(
        self,
        head_dim: int,
        *,
        base: Positive = 10_000.0,
        layout: Layout = "half",
        original_length: FromTwo | None = None,
        window: Count | None = None,
        factor: AtLeastOne | None = None,
    ) -> None:
        super().__init__("rerope", head_dim, base, layout)
        self.window, self.factor = choose_window("rerope", window, original_length), factor

    declares = Declares(translation_invariant=True, causal_only=True, real_valued=True)

    def list_far_pairs(self, qpos: Num[Tensor, "B S"], kpos: Num[Tensor, "B T"]) -> Iterator[FarPairs]:
        far_BST = qpos[:, :, None] - kpos[:, None, :] >= self.window
        if self.factor is None:
            yield torch.full_like(qpos, self.window), torch.zeros_like(kpos), far_BST
        else:
            # Beyond the window distances grow more slowly, or not at all.
            # w + (r - w)/k for r = i - j is the query at w + (i - w)/k less the key at j/k.
            new_qpos_BS = self.window + (qpos.double() - self.window) / self.factor
            yield new_qpos_BS, kpos.double() / self.factor, far_BST
