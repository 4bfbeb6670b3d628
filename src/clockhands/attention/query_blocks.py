"""Attention by blocks of queries for any bias: a block's bias is made, used, and made again in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from clockhands.attention import fused_kernel
from clockhands.attention.request import FEW_QUERIES, AttentionRequest, refuse_second_derivative
from clockhands.shapes import Float, Tensor

ROWS = 256
"""The most queries of a block."""
MANY_PAIRS = 1 << 22
"""With no more entries of the whole bias [B, H, S, T] than this it is made in one piece."""


def serves(request: AttentionRequest) -> bool:
    """Return whether all pairs are many, and each row of logits needs its own query alone.

    It serves where a bias would have as many entries, and with sinks where the fused kernel would make all weights.
    """
    pairs = request.q_BHSK.shape[0] * request.q_BHSK.shape[1] * request.num_queries * request.num_keys
    return (
        ("bias" in request.hooks or (request.sink_H is not None and not fused_kernel.fuses_sinks(request)))
        and request.scheme.rowwise
        and pairs > MANY_PAIRS
        and request.num_queries > FEW_QUERIES
    )


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute attention some queries at a time: [B, H, S, Kv].

    A block has ``ROWS`` queries at most, and about ``ELEMENTS`` logits (a processor's cache; a GPU wants more at once),
    so that its memory does not grow with the text. Under a causal mask it has only the keys up to its last query.
    Gradients reach q, k, v, positions, sinks and the scheme's parameters.
    """
    seed = int(torch.randint(1 << 62, ()).item()) if request.dropout else 0
    parameters: list[Tensor] = [parameter for parameter in request.scheme.parameters() if parameter.requires_grad]
    if request.sink_H is not None and request.sink_H.requires_grad:
        parameters.append(request.sink_H)
    inputs = (request.q_BHSK, request.k_BHTK, request.v_BHTK, request.qpos, request.kpos)
    out: Tensor = _Blockwise.apply(_Blocks(request, seed), *inputs, *parameters)
    return out


@dataclass(frozen=True)
class _Blocks:
    """A request that is computed block by block, and the seed of the dropout that all blocks share."""

    request: AttentionRequest
    seed: int

    def cut(self, *inputs: Tensor) -> Iterator[tuple[int, list[Tensor]]]:
        """Yield the first query of each block, and its part of q, k, v and the positions."""
        q, k, v, qpos, kpos = inputs
        axis = 2 if qpos.dim() == 4 else 1
        for start, count in self.request.list_blocks(ROWS):
            last = self.request.count_keys(start + count)
            parts = [q.narrow(2, start, count), k.narrow(2, 0, last), v.narrow(2, 0, last)]
            yield start, [*parts, qpos.narrow(axis, start, count), kpos.narrow(axis, 0, last)]

    def compute(self, start: int, q: Tensor, k: Tensor, v: Tensor, qpos: Tensor, kpos: Tensor) -> Tensor:
        """Compute a block's values; the same weights are dropped whenever it is computed."""
        dropout, whole = self.request.dropout, self.request.take_queries(start, q.shape[2])
        block = replace(whole, q_BHSK=q, k_BHTK=k, v_BHTK=v, qpos=qpos, kpos=kpos)
        with torch.random.fork_rng([q.device] if q.device.type == "cuda" else [], enabled=dropout > 0):
            if dropout:
                torch.manual_seed(self.seed + start)
            return fused_kernel.compute(block)


class _Blockwise(torch.autograd.Function):
    """Attention by blocks with its gradient; the backward pass computes each block again, with its bias."""

    @staticmethod
    def forward(ctx: Any, blocks: _Blocks, *inputs: Tensor) -> Tensor:
        q, v = inputs[0], inputs[2]
        ctx.blocks = blocks
        ctx.save_for_backward(*inputs)
        out = v.new_empty(*q.shape[:3], v.shape[-1])
        # With gradients, so that the same kernel serves as in the backward pass.
        with torch.set_grad_enabled(any(ctx.needs_input_grad)):
            # One block at a time: nothing is kept of it but its values.
            for start, parts in blocks.cut(*inputs[:5]):
                leaves = _make_leaves(parts, ctx.needs_input_grad[1:])
                out.narrow(2, start, leaves[0].shape[2]).copy_(blocks.compute(start, *leaves).detach())
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        refuse_second_derivative()
        blocks, inputs, wanted = ctx.blocks, ctx.saved_tensors, ctx.needs_input_grad[1:]
        totals = [torch.zeros_like(x) if want else None for x, want in zip(inputs, wanted, strict=True)]
        # ``cut`` narrows the inputs to those of a block, and the sums of their gradients likewise.
        sums = [x if total is None else total for x, total in zip(inputs[:5], totals, strict=False)]
        for (start, parts), (_, places) in zip(blocks.cut(*inputs[:5]), blocks.cut(*sums), strict=True):
            leaves = [*_make_leaves(parts, wanted), *inputs[5:]]
            with torch.enable_grad():
                out = blocks.compute(start, *leaves[:5])
            leaves_wanted = [leaf for leaf, want in zip(leaves, wanted, strict=True) if want]
            grad = grads[0].narrow(2, start, out.shape[2])
            gradients = iter(torch.autograd.grad(out, leaves_wanted, grad, allow_unused=True))
            for total, want in zip([*places, *totals[5:]], wanted, strict=True):
                gradient = next(gradients) if want else None
                if total is not None and gradient is not None:
                    total += gradient
        return None, *totals


def _make_leaves(parts: list[Tensor], wanted: tuple[bool, ...]) -> list[Tensor]:
    """Return the parts as leaves of a graph of their own, so that gradients stop there."""
    return [part.detach().requires_grad_(want) for part, want in zip(parts, wanted, strict=False)]
