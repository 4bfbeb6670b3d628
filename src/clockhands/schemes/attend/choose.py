"""Which kernel serves: the fastest that computes the same as ``attend_reference``, the short, slow path."""

from __future__ import annotations

import torch

from clockhands.schemes.attend.blocks import blockwise
from clockhands.schemes.attend.flex import flexed, flexes
from clockhands.schemes.attend.reference import Visible, attend_reference, listener
from clockhands.schemes.attend.tiles import tiled
from clockhands.schemes.attend.whole import LOW, whole
from clockhands.schemes.base import DistanceBias, KeyPositions, Positions, Scheme
from clockhands.shapes import Float, Tensor

FEW_ROWS, SHORT, MANY_PAIRS = 16, 128, 1 << 22


def attend(
    scheme: Scheme,
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T Kv"],
    qpos_BS: Positions,
    kpos_BT: KeyPositions,
    visible_BHST: Visible | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    rotated: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "B H S Kv"]:
    """Attended values by the fastest path that gives what ``attend_reference`` gives.

    ``visible_BHST`` is True where a query may look (None: everywhere; one row of it serves all queries). ``causal``
    adds the mask of the last S of T tokens (query s sees keys up to T - S + s) and lets kernels skip what it hides.
    ``scale`` multiplies q·k: ``scheme.scale(K)`` of the unrotated width unless given. ``rotated`` says that q and k
    have been through ``scheme.rotate``. ``dropout`` acts on the weights; pass 0 outside training.
    """
    scale = scheme.scale(q_BHSK.shape[-1]) if scale is None else scale
    listening, hooks = listener(), scheme.active_hooks()
    if listening is not None or hooks & {"logits", "weigh", "values"}:
        attended = attend_reference(
            scheme, q_BHSK, k_BHTK, v_BHTK, qpos_BS, kpos_BT, visible_BHST,
            causal=causal, scale=scale, rotated=rotated, dropout=0.0 if listening is not None else dropout,
        )  # fmt: skip
        if listening is not None:
            listening(attended)
        return attended.out_BHSK
    q, k = (q_BHSK, k_BHTK) if rotated else scheme.rotate(q_BHSK, k_BHTK, qpos_BS, kpos_BT)
    if "bias" in hooks:
        return _biased(scheme, q, k, v_BHTK, qpos_BS, kpos_BT, visible_BHST, causal, scale, dropout)
    if causal and visible_BHST is None and _long_and_low(q, k):
        return tiled(q, k, v_BHTK, _steps(q, k), None, scale, dropout)
    return whole(q, k, v_BHTK, None, visible_BHST, causal, scale, dropout)


def _biased(
    scheme: Scheme,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    qpos: Positions,
    kpos: KeyPositions,
    visible: Visible | None,
    causal: bool,
    scale: float,
    dropout: float,
) -> Tensor:
    """Tiles where the distance is all there is to know, FlexAttention on a GPU, blocks of queries where the whole bias
    would be large, and otherwise the whole bias."""
    if q.device.type == "cpu" and isinstance(scheme, DistanceBias):
        first = _run(qpos, kpos)
        if first is not None and (k.shape[2] > SHORT or scheme.learned):
            curve = scheme.kernel(torch.arange(first - k.shape[2] + 1, first + q.shape[2], device=q.device))
            if causal:
                curve = curve + _steps(q, k)
            return tiled(q, k, v, curve, visible, scale, dropout)
    if flexes(scheme, q, v, dropout):
        return flexed(scheme, q, k, v, qpos, kpos, visible, causal, scale)
    pairs = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    if scheme.rowwise and not torch.compiler.is_compiling() and pairs > MANY_PAIRS and q.shape[2] > 2 * FEW_ROWS:
        return blockwise(scheme, q, k, v, qpos, kpos, visible, causal, scale, dropout)
    return whole(q, k, v, scheme.bias(q, k, qpos, kpos), visible, causal, scale, dropout)


def _run(qpos: Positions, kpos: KeyPositions) -> int | None:
    """The distance of the first query and the first key, if positions are integers in one run, the same for all rows:
    then the distance of query s and key t is that number plus s - t. None otherwise, and for few queries."""
    if torch.compiler.is_compiling() or qpos.dim() != 2 or qpos.is_floating_point() or kpos.is_floating_point():
        return None
    if qpos.shape[1] < FEW_ROWS:
        return None
    if qpos.stride(0) == 0 and kpos.stride(0) == 0:
        qpos, kpos = qpos[:1], kpos[:1]
    first_B = qpos[:, 0] - kpos[:, 0]
    runs = (qpos.diff(dim=1) == 1).all() & (kpos.diff(dim=1) == 1).all() & (first_B == first_B[0]).all()
    return int(first_B[0]) if bool(runs) else None


def _steps(q: Tensor, k: Tensor) -> Float[Tensor, "1 N"]:
    """The causal mask as a curve of distances, for ``tiled``: 0 where a query may look, -inf to the right of it."""
    queries, keys = q.shape[2], k.shape[2]
    curve_N = torch.zeros(queries + keys - 1, device=q.device)
    curve_N[: queries - 1] = -torch.inf
    return curve_N[None]


def _long_and_low(q: Tensor, k: Tensor) -> bool:
    """Where tiles beat the fused kernel without any bias: bfloat16 on a CPU from 512 tokens on."""
    return (
        q.device.type == "cpu"
        and q.dtype in LOW
        and q.shape[2] >= 512
        and k.shape[2] >= q.shape[2]
        and not torch.compiler.is_compiling()
    )
