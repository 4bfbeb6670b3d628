"""Which kernel serves: the fastest that computes the same as ``attend_reference``, the short, slow path."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from clockhands.schemes.attend.blocks import blockwise
from clockhands.schemes.attend.column import columned, fits, maskable
from clockhands.schemes.attend.flex import flexed, flexes
from clockhands.schemes.attend.reference import Visible, attend_reference, listener
from clockhands.schemes.attend.tiles import tiled
from clockhands.schemes.attend.whole import LOW, whole
from clockhands.schemes.attend.work import Line
from clockhands.schemes.base import KeyPositions, Positions, Scheme
from clockhands.schemes.distance import DistanceBias
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
        curve = _steps(q.shape[2] + k.shape[2] - 1, q.shape[2] - 1, q.device)
        return tiled(q, k, v_BHTK, curve, None, scale, dropout)
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
    """One more channel where a row of the bias stands for all, tiles where the distance is all there is to know,
    FlexAttention on a GPU, blocks of queries where the whole bias would be large, and otherwise the whole bias."""
    if isinstance(scheme, DistanceBias) and (k.shape[2] > SHORT or scheme.learned) and _tiles_serve(q, qpos, kpos):
        q_BS, k_BT, curve = scheme.line(qpos, kpos)
        line = _line(q_BS, k_BT)
        if line is not None:
            low = int(q_BS[0, 0] - k_BT[0, -1])
            curve_HN = curve(torch.arange(low, int(q_BS[0, -1] - k_BT[0, 0]) + 1, device=q.device))
            return _by_distance(scheme, curve_HN, line, q, k, v, visible, causal, scale, dropout)
    if scheme.parallel and k.shape[2] > SHORT and _takes_channel(q, k, v, visible, causal, dropout):
        row = _row(scheme, q, k, kpos)
        if bool(fits(row, q.dtype).all()) and not (row.requires_grad and q.dtype in LOW):
            return columned(q, k, v, row, visible, causal, scale)
    if flexes(scheme, q, v, dropout):
        return flexed(scheme, q, k, v, qpos, kpos, visible, causal, scale)
    pairs = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    if scheme.rowwise and not torch.compiler.is_compiling() and pairs > MANY_PAIRS and q.shape[2] > 2 * FEW_ROWS:
        return blockwise(scheme, q, k, v, qpos, kpos, visible, causal, scale, dropout)
    return whole(q, k, v, scheme.bias(q, k, qpos, kpos), visible, causal, scale, dropout)


def _by_distance(
    scheme: DistanceBias,
    curve: Tensor,
    line: Line,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Visible | None,
    causal: bool,
    scale: float,
    dropout: float,
) -> Tensor:
    """Tiles for the heads that need them, and one more channel for those whose row stands for all."""
    queries, keys = q.shape[2], k.shape[2]
    steep = torch.arange(len(curve))
    summed = scheme.learned and q.dtype in LOW
    if scheme.parallel and not summed and _takes_channel(q, k, v, visible, causal, dropout):
        row = curve[:, queries // 2 : queries // 2 + keys].flip(-1)[None]
        fit = fits(row, q.dtype)
        flat, steep = fit.nonzero()[:, 0], (~fit).nonzero()[:, 0]
    if causal:
        curve = curve + _steps(curve.shape[1], line.place(queries - 1), q.device)
    if len(steep) == len(curve):
        return tiled(q, k, v, curve, visible, scale, dropout, line)
    if not len(steep):
        return columned(q, k, v, row, visible, causal, scale)
    qkvm = (q, k, v, visible)
    (qt, kt, vt, seen_t), (qc, kc, vc, seen_c) = ([_heads(x, at) for x in qkvm] for at in (steep, flat))
    by_tiles = tiled(qt, kt, vt, curve[steep], seen_t, scale, dropout, line)
    by_channel = columned(qc, kc, vc, row[:, flat], seen_c, causal, scale)
    out, order = torch.cat([by_tiles, by_channel], dim=1), torch.cat([steep, flat])
    return out if bool((order.diff() > 0).all()) else out.index_select(1, order.argsort())


def _heads(x: Any, at: Tensor) -> Any:
    """Some heads of a tensor, as a view where they are neighbours; a mask may be the same for all, or None."""
    if x is None or x.shape[1] == 1:
        return x
    first, last = int(at[0]), int(at[-1])
    return x[:, first : last + 1] if last - first + 1 == len(at) else x.index_select(1, at)


def _takes_channel(q: Tensor, k: Tensor, v: Tensor, visible: Visible | None, causal: bool, dropout: float) -> bool:
    """Where one more channel for the fused kernel of a CPU is possible and fast. That kernel has no dropout. A GPU has
    FlexAttention, and its fused kernels want widths that 8 divides."""
    fast = q.dtype not in LOW or _fast_low()
    return (
        fast
        and q.device.type == "cpu"
        and q.shape[2] >= FEW_ROWS
        and v.shape[-1] <= q.shape[-1]
        and not dropout
        and not torch.compiler.is_compiling()
        and maskable(visible, causal, q.shape[2], k.shape[2])
    )


def _row(scheme: Scheme, q: Tensor, k: Tensor, kpos: KeyPositions) -> Float[Tensor, "#B H T"]:
    """The bias as the middle key would have it if it were a query."""
    axis, middle = (2 if kpos.dim() == 4 else 1), k.shape[2] // 2
    bias = scheme.bias(q[:, :, :1], k, kpos.narrow(axis, middle, 1), kpos)
    assert bias is not None, "a scheme without a bias has no parallel rows"
    return bias[:, :, 0]


@cache
def _fast_low() -> bool:
    """Whether this processor multiplies tiles of 16-bit numbers (Intel's AMX): its fused kernel is then the fastest in
    bfloat16 too."""
    return bool(torch.cpu._is_amx_tile_supported())


def _tiles_serve(q: Tensor, qpos: Positions, kpos: KeyPositions) -> bool:
    """Whether tiles are worth a look at the positions: on a CPU, for whole numbers and not just a few queries."""
    whole_numbers = not (qpos.is_floating_point() or kpos.is_floating_point())
    return q.device.type == "cpu" and whole_numbers and q.shape[2] >= FEW_ROWS and not torch.compiler.is_compiling()


def _line(q_BS: Positions, k_BT: KeyPositions) -> Line | None:
    """How tokens stand whose places are these numbers, if they stand alike in all rows: in one run, so that the queries
    may be some of the keys, or queries and keys both in runs of one length and distance. None otherwise."""
    if q_BS.dim() != 2:
        return None
    q_BS, k_BT = (x[:1] if x.stride(0) == 0 else x for x in (q_BS, k_BT))
    first_B, queries, keys = q_BS[:, 0] - k_BT[:, 0], q_BS.shape[1], k_BT.shape[1]
    jumps = (k_BT[0].diff() != 1).nonzero()
    run = int(jumps[0]) + 1 if len(jumps) else keys
    line = Line(run, int(k_BT[0, run] - k_BT[0, 0])) if run < keys else Line(max(queries, keys), 1)
    if run < keys and (queries != keys or keys % run or line.step < run):
        return None
    place_N = torch.arange(max(queries, keys), device=q_BS.device)
    place_N = place_N // line.run * line.step + place_N % line.run
    alike = all(bool((x - x[:, :1] == place_N[: x.shape[1]]).all()) for x in (q_BS, k_BT))
    return line if alike and bool((first_B == first_B[0]).all()) else None


def _steps(length: int, hidden: int, device: torch.device) -> Float[Tensor, "1 N"]:
    """The causal mask as a curve of distances, for ``tiled``: -inf for keys to the right of a query, 0 for the rest."""
    curve_N = torch.zeros(length, device=device)
    curve_N[:hidden] = -torch.inf
    return curve_N[None]


def _long_and_low(q: Tensor, k: Tensor) -> bool:
    """Where tiles beat the fused kernel without any bias: bfloat16 on a CPU without AMX from 512 tokens on."""
    return (
        q.device.type == "cpu"
        and q.dtype in LOW
        and q.shape[2] >= 512
        and k.shape[2] >= q.shape[2]
        and not _fast_low()
        and not torch.compiler.is_compiling()
    )
