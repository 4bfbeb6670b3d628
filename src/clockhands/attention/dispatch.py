"""``attend``: the first kernel that serves a request computes it. Each gives what ``attend_reference`` gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch

from clockhands.attention import (
    by_distance,
    causal_tiles,
    extra_channel,
    far_blocks,
    flex,
    fused_kernel,
    query_blocks,
    reference,
    window_blocks,
)
from clockhands.attention.request import AttentionRequest, Mask
from clockhands.schemes.scheme import KeyPositions, Positions, Scheme
from clockhands.shapes import Float, Tensor

__all__ = ["KERNELS", "Kernel", "attend"]


class Kernel(Protocol):
    """A module that computes attention in one way, up to the scheme's hook ``rotate_back``, which ``attend`` calls."""

    def serves(self, request: AttentionRequest) -> bool:
        """Return whether this kernel can compute the request, and faster than every kernel after it in ``KERNELS``."""

    def compute(self, request: AttentionRequest) -> Tensor:
        """Compute the attended values: [B, H, S, Kv]."""


KERNELS: tuple[Kernel, ...] = (
    far_blocks,
    reference,
    window_blocks,
    by_distance,
    extra_channel,
    flex,
    query_blocks,
    causal_tiles,
    fused_kernel,
)
"""The kernels in the order in which they are asked; the last serves every request."""


def attend(
    scheme: Scheme,
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B G T K"],
    v_BHTK: Float[Tensor, "B G2 T Kv"],
    qpos_BS: Positions,
    kpos_BT: KeyPositions,
    mask_BHST: Mask | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    rotated: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "B H S Kv"]:
    """Compute attention with a scheme by the fastest kernel that serves (Vaswani et al. 2017, equation 1).

    ``mask_BHST`` is True where a query may attend to a key (None: everywhere; one row of it serves all queries).
    ``causal`` adds the mask of the last S of T tokens (query s attends to keys up to T - S + s) and lets kernels skip
    what it hides. ``scale`` multiplies q·k; None: ``scheme.scale(K)``. ``rotated`` says that q and k have been
    through ``scheme.rotate``, and v through ``scheme.rotate_values``. ``dropout`` acts on the weights; pass 0 outside
    training.
    Keys and values may have G heads, fewer than H: each is that of H/G consecutive query heads.
    Returns [B, H, S, Kv]. Raises PositionError for positions that the scheme does not take, UsageError for key heads
    whose number does not divide H.
    """
    if not q_BHSK.numel():
        # No query, nothing to encode; the sums of nothing keep the result in the graph of all three.
        return q_BHSK[..., :1].expand(*q_BHSK.shape[:3], v_BHTK.shape[-1]) + 0 * (k_BHTK.sum() + v_BHTK.sum())
    request = reference.make_request(
        scheme, q_BHSK, k_BHTK, v_BHTK, qpos_BS, kpos_BT, mask_BHST,
        causal=causal, scale=scale, rotated=rotated, dropout=dropout,
    )  # fmt: skip
    if (recorder := reference.get_recorder()) is not None:
        return reference.compute_recorded(request, recorder)
    rotates_back = "rotate_back" in request.hooks
    request = _simplify(request)
    out_BHSK = next(kernel for kernel in KERNELS if kernel.serves(request)).compute(request)
    return scheme.rotate_back(out_BHSK, qpos_BS, kpos_BT) if rotates_back else out_BHSK


def _simplify(request: AttentionRequest) -> AttentionRequest:
    """Return a request for what is left to do after ``rotate``, with sinks apart from the scheme if kernels may serve.

    Where another part needs whole rows, they stay in the scheme, for the reference.
    """
    scheme = request.scheme.after_rotation()
    split = scheme.split_sinks()
    if split is not None and not split[0].active_hooks() & reference.WHOLE_ROWS:
        scheme, sink_H = split
        request = replace(request, sink_H=sink_H.to(torch.promote_types(request.q_BHSK.dtype, torch.float32)))
    return request if scheme is request.scheme else replace(request, scheme=scheme, hooks=scheme.active_hooks())
