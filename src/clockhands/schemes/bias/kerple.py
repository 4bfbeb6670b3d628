"""KERPLE: a learned penalty that grows with the logarithm, or with a power, of the distance."""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import nn

from clockhands.schemes.distance import Curves, DistanceBias, Distances
from clockhands.schemes.scheme import Declares
from clockhands.shapes import Float, Tensor

SMALLEST = 1e-2


def _clamp_keeping_gradient(
    parameter_H: Float[Tensor, " H"], low: float, high: float | None = None
) -> Float[Tensor, " H"]:
    """Bound a parameter in the forward pass, and leave its gradient as if there were no bounds.

    The authors clamp the parameter in place, so that a step may leave the bound again; this does the same without
    writing to a parameter in a forward pass.
    """
    value_H = parameter_H.float()
    # Forward the clamped value, backward the gradient of the value itself (straight through).
    return value_H + (value_H.clamp(low, high) - value_H).detach()


@final
class Kerple(DistanceBias):
    """Kernelised relative position embedding (Chi et al. 2022, section 4): conditionally positive definite kernels.

    ``log``: -r1·ln(1 + r2·|i - j|), r1, r2 > 0. ``power``: -r1·|i - j|^r2, r1 > 0, 0 < r2 <= 2. Both parameters are
    learned for each head, shared by the layers, and kept at 0.01 or more, as in the authors' code.

    Args:
        num_heads: H.
        form: ``log`` or ``power``.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Kerple
        >>> Kerple(num_heads=2).compute_curve(torch.arange(3)).shape
        torch.Size([2, 3])
    """

    equation = r"\ell_{ij} \mathrel{+}= -r_1 \log(1 + r_2 |i - j|) \quad\text{or}\quad -r_1 |i - j|^{r_2}"
    source = "Chi et al. 2022, equations 6 and 7"
    peers = ("chijames/KERPLE (the authors' code; in no library)",)

    def __init__(self, num_heads: int, *, form: Literal["log", "power"] = "log") -> None:
        super().__init__()
        self.form = form
        self.size_H = nn.Parameter(torch.empty(num_heads))
        self.shape_H = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw as the authors do. Log: r1 from U(0, 2), r2 from U(0, 1). Power: r1 from U(0, 1), r2 from U(0, 2)."""
        nn.init.uniform_(self.size_H, 0, 2 if self.form == "log" else 1)
        nn.init.uniform_(self.shape_H, 0, 1 if self.form == "log" else 2)

    declares = Declares(translation_invariant=True, real_valued=True)

    def compute_curve(self, distance_R: Distances) -> Curves:
        # The paper's kernel is symmetric; the mask makes it causal.
        far_R = distance_R.abs().float()
        size_H1 = _clamp_keeping_gradient(self.size_H, SMALLEST)[:, None]
        if self.form == "log":
            # log1p keeps the digits of ln(1 + x) where x is small.
            return -size_H1 * torch.log1p(_clamp_keeping_gradient(self.shape_H, SMALLEST)[:, None] * far_R)
        return -size_H1 * far_R ** _clamp_keeping_gradient(self.shape_H, SMALLEST, 2.0)[:, None]
