"""``attend``: the first kernel that serves a request computes it. Each gives what ``attend_reference`` gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Protocol

import torch

from clockhands.attention import (
    by_distance,
    far_blocks,
    flex,
    fused_kernel,
    query_blocks,
    reference,
    short_rows,
    window_blocks,
)
from clockhands.attention.reference import Recorder
from clockhands.attention.request import (
    LOW_PRECISION,
    WHOLE_ROWS,
    AttentionRequest,
    GivenKeyPositions,
    GivenPositions,
    Mask,
    check_inputs,
    lower,
    make_request,
)
from clockhands.schemes.arguments import explain_call
from clockhands.schemes.composition_rules import AFTER_ROTATE
from clockhands.schemes.position_checks import check_position_tensor, is_traced
from clockhands.schemes.scheme import AUTOCAST_DEVICES, Scheme
from clockhands.shapes import Float, Tensor


class _Kernel(Protocol):
    """A module that computes attention in one way, up to the scheme's hook ``rotate_back``, which ``attend`` calls."""

    def serves(self, request: AttentionRequest) -> bool:
        """Return whether this kernel can compute the request, and faster than every kernel after it in ``KERNELS``."""

    def compute(self, request: AttentionRequest) -> Tensor:
        """Compute the attended values: [B, H, S, Kv]."""


KERNELS: tuple[_Kernel, ...] = (
    far_blocks, reference, short_rows, window_blocks, by_distance, flex, query_blocks, fused_kernel,
)  # fmt: skip
"""The kernels in the order in which they are asked; the last serves every request."""
PLAIN_KERNELS: tuple[_Kernel, ...] = (short_rows, by_distance, fused_kernel)
"""Those for a scheme that has nothing left to do after ``rotate``: for many heads, for 16 bits, and for all else."""
TRACED_KERNELS: tuple[_Kernel, ...] = (reference, fused_kernel)
"""Those that take a bias whole, whatever it is, and that no number and no size decides: one graph for all texts."""
_recorder: ContextVar[Recorder | None] = ContextVar("clockhands_recorder", default=None)


@explain_call
def attend(
    scheme: Scheme,
    q_BHSK: Float[Tensor, "B H S K"],
    k_BGTK: Float[Tensor, "B G T K"],
    v_BGTK: Float[Tensor, "B G2 T Kv"],
    qpos: GivenPositions,
    kpos: GivenKeyPositions,
    mask_BHST: Mask | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    rotated: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "B H S Kv"]:
    """Compute attention with a scheme by the fastest kernel that serves (Vaswani et al. 2017, equation 1).

    Positions are [B, S] and [B, T] (or [S], for all texts), or have a last axis of coordinates. ``mask_BHST`` is True
    where a query may attend to a key, or has numbers that are added to the logits (None: every query may attend to
    every key; one row of it serves all queries). ``causal`` adds the mask of the last S of T tokens (query s attends to
    keys up to T - S + s) and lets kernels skip what it hides. ``scale`` multiplies q·k; None: ``scheme.scale(K)``.
    ``rotated`` says that q and k have been through ``scheme.rotate``, and v through ``scheme.rotate_values``.
    ``dropout`` acts on the weights; pass 0 outside training.
    Keys and values may have G heads, fewer than H: each is that of H/G consecutive query heads.
    Returns [B, H, S, Kv]. Raises PositionError for positions that the scheme does not take, UsageError for shapes that
    do not fit, for a mask of another kind, and for a scheme whose hooks before attention nobody has called: ``encode``
    and ``locate``, which ``Positioning`` calls.
    """
    kind = q_BHSK.device.type if isinstance(q_BHSK, Tensor) else ""
    if kind in AUTOCAST_DEVICES and torch.is_autocast_enabled(kind):
        # Queries, keys and values are lowered as autocast lowers those of SDPA, but no bias and no softmax.
        q_BHSK, k_BGTK, v_BGTK = lower(q_BHSK, k_BGTK, v_BGTK)
        with torch.autocast(kind, enabled=False):
            return attend(
                scheme, q_BHSK, k_BGTK, v_BGTK, qpos, kpos, mask_BHST,
                causal=causal, scale=scale, rotated=rotated, dropout=dropout,
            )  # fmt: skip
    tensors = isinstance(q_BHSK, Tensor) and isinstance(k_BGTK, Tensor)
    if tensors and (q_BHSK.is_meta or not (q_BHSK.numel() and k_BGTK.numel())):
        qpos, kpos = check_position_tensor(qpos, "positions"), check_position_tensor(kpos, "positions")
        check_inputs(scheme, q_BHSK, k_BGTK, v_BGTK, qpos, kpos, rotated)
        # No query, no key, or shapes alone; sums of nothing keep the result in the graph of all three.
        nothing = 0 * (q_BHSK.sum() + k_BGTK.sum() + v_BGTK.sum())
        return q_BHSK.new_zeros(*q_BHSK.shape[:3], v_BGTK.shape[-1]) + nothing
    request = make_request(
        scheme, q_BHSK, k_BGTK, v_BGTK, qpos, kpos, mask_BHST,
        causal=causal, scale=scale, rotated=rotated, dropout=dropout,
    )  # fmt: skip
    recorder = None if torch.compiler.is_compiling() else _recorder.get()
    if recorder is not None:
        attended = reference.compute_recorded(replace(request, dropout=0.0))
        recorder(attended)
        return attended.out_BHSK
    rotates_back = "rotate_back" in request.hooks
    if request.added_BHST is not None:
        # A float mask makes any bias: no kernel serves that reads the scheme's own alone.
        kernels = TRACED_KERNELS
    elif not request.hooks & AFTER_ROTATE:
        # With few heads in 32 bits, or while a program is traced, the first two never serve: they are not asked.
        may_serve = not torch.compiler.is_compiling() and (
            q_BHSK.dtype in LOW_PRECISION or q_BHSK.shape[0] * q_BHSK.shape[1] >= short_rows.MANY_HEADS
        )
        kernels = PLAIN_KERNELS if may_serve and not is_traced() else PLAIN_KERNELS[-1:]
    else:
        request, kernels = _simplify(request), TRACED_KERNELS if is_traced() else KERNELS
    chosen = kernels[-1]  # which serves every request
    for kernel in kernels[:-1]:
        if kernel.serves(request):
            chosen = kernel
            break
    out_BHSK = chosen.compute(request)
    return scheme.rotate_back(out_BHSK, request.qpos, request.kpos) if rotates_back else out_BHSK


def _simplify(request: AttentionRequest) -> AttentionRequest:
    """Return a request for what is left to do after ``rotate``, with sinks apart from the scheme if kernels may serve.

    Where another part needs whole rows, they stay in the scheme, for the reference.
    """
    scheme = request.scheme.after_rotation()
    split = scheme.split_sinks()
    if split is not None and not split[0].active_hooks() & WHOLE_ROWS:
        scheme, sink_H = split
        request = replace(request, sink_H=sink_H.to(torch.promote_types(request.q_BHSK.dtype, torch.float32)))
    return request if scheme is request.scheme else replace(request, scheme=scheme, hooks=scheme.active_hooks())


@contextmanager
def record(recorder: Recorder) -> Iterator[None]:
    """Hand every attention inside the block to ``recorder``, computed by the reference path without dropout.

    A compiled model calls no recorder: record it before compiling.
    """
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)


def get_recorder() -> Recorder | None:
    """Return the function that receives the next attention; None if there is none, and while a model is compiled."""
    return None if torch.compiler.is_compiling() else _recorder.get()
