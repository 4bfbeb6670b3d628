"""ALiBi on a grid: a straight penalty on the distance between cells."""

from __future__ import annotations

from typing import Literal, final

from clockhands.options import Count
from clockhands.schemes.bias.alibi import alibi_slopes
from clockhands.schemes.frequencies import check_axes, choose_angle_dtype
from clockhands.schemes.scheme import AttentionInputs, Bias, Declares, Scheme


@final
class AlibiAxes(Scheme):
    """2D-ALiBi (Fuller et al. 2023): -m_h·|p_i - p_j| with the distance between the cells of a grid.

    Args:
        num_heads: H; the slopes m_h are those of ``alibi``.
        axes: coordinates of a position.
        norm: ``euclidean`` distance (CROMA) or ``manhattan``, the sum over the axes.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import AlibiAxes, AttentionInputs
        >>> q, pos = torch.ones(1, 1, 2, 4), torch.tensor([[[0, 0], [3, 4]]])
        >>> AlibiAxes(num_heads=1).bias(AttentionInputs(q, q, pos, pos))[0, 0, 0].tolist()
        [-0.0, -0.01953125]
    """

    equation = r"\ell_{ij} = q_i \cdot k_j / \sqrt{d_h} - m_h \lVert p_i - p_j \rVert"
    source = "Fuller et al. 2023 (CROMA, 2311.00566)"
    peers = ("antofuller/CROMA (the authors' code)",)
    models = ("CROMA",)

    def __init__(
        self, num_heads: int, *, axes: Count = 2, norm: Literal["euclidean", "manhattan"] = "euclidean"
    ) -> None:
        super().__init__()
        self.num_heads, self.axes, self.norm = num_heads, axes, norm

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True, real_valued=True, axes=self.axes)

    def bias(self, at: AttentionInputs) -> Bias:
        dtype = choose_angle_dtype(at.q.device)
        q = check_axes(at.qpos, self.axes, "alibi-axes").to(dtype)
        k = check_axes(at.kpos, self.axes, "alibi-axes").to(dtype)
        apart = (q[..., :, None, :] - k[..., None, :, :]).abs()
        # |Δ|_1 or |Δ|_2 of the coordinates; neither wraps around at an edge.
        distance = apart.sum(-1) if self.norm == "manhattan" else apart.square().sum(-1).sqrt()
        distance_BHST = distance if distance.dim() == 4 else distance[:, None]
        # Distances in float64: differences of large coordinates would lose digits.
        slopes_H = alibi_slopes(self.num_heads, device=distance.device).to(dtype)
        return (-slopes_H[:, None, None] * distance_BHST).float()
