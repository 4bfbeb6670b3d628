"""A window: keys that are too far away are masked."""

from __future__ import annotations

import math
from typing import Any, final

import torch

from clockhands.errors import ConfigError
from clockhands.schemes.distance import DistanceBias
from clockhands.schemes.scheme import Declares
from clockhands.shapes import Float, Num, Tensor

__all__ = ["Window"]


@final
class Window(DistanceBias):
    """Sliding window attention (Beltagy et al. 2020, section 3.1) without any other position: 0 inside, -∞ outside.

    While a model generates, layers that have it keep only the keys that it can still show.

    Args:
        num_heads: H.
        left: how many tokens to the left may be attended to, the query's own not counted.
        right: how many to the right; None: as many as to the left.

    Example:
        >>> import torch
        >>> from clockhands.schemes import Window
        >>> Window(num_heads=1, left=1).compute_curve(torch.arange(3))
        tensor([[0., 0., -inf]])
    """

    equation = r"\ell_{ij} \mathrel{+}= 0 \text{ if } -\mathrm{right} \le i - j \le \mathrm{left} \text{ else } -\infty"
    source = "Beltagy et al. 2020, section 3.1"
    peers = ("transformers sliding_window (left = sliding_window - 1)",)
    models = ("Longformer", "Mistral", "Gemma 3", "gpt-oss", "ModernBERT", "OLMo 3")
    masks = True

    def __init__(self, num_heads: int, *, left: int = 127, right: int | None = None) -> None:
        super().__init__()
        self.left, self.right = left, left if right is None else right
        if self.left < 0 or self.right < 0:
            raise ConfigError(
                [f"a window of {self.left} left and {self.right} right; both must be 0 or more"], "window"
            )
        self.num_heads = num_heads

    @property
    def declares(self) -> Declares:
        """The promises of a window: only distances matter, and they may be real-valued."""
        return Declares(translation_invariant=True, real_valued=True)

    def to_hf_config(self) -> dict[str, Any] | None:
        """Return ``sliding_window``, as in Mistral, which counts the query's own token.

        What the window reaches to the right is left out: there a causal mask hides all keys.
        """
        return {"sliding_window": self.left + 1}

    def compute_curve(self, distance_R: Num[Tensor, " R"]) -> Float[Tensor, "H R"]:
        """Return 0 at distances inside the window and -∞ outside: [H, R]."""
        inside_R = (distance_R <= self.left) & (distance_R >= -self.right)
        bias_R = torch.zeros(inside_R.shape, device=distance_R.device).masked_fill(~inside_R, -math.inf)
        return bias_R.expand(self.num_heads, -1)
