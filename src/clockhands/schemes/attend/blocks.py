"""Attention by blocks of queries for any bias: a block's bias is made, used, and made again in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from clockhands.schemes.attend.reference import Visible
from clockhands.schemes.attend.whole import whole
from clockhands.schemes.base import KeyPositions, Positions, Scheme
from clockhands.shapes import Float, Tensor

ROWS, ELEMENTS, ELEMENTS_OF_A_GPU = 256, 1 << 19, 1 << 24


def blockwise(
    scheme: Scheme,
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T Kv"],
    qpos_BS: Positions,
    kpos_BT: KeyPositions,
    visible_BHST: Visible | None,
    causal: bool,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B H S Kv"]:
    """Attention with ``scheme.bias``, some queries at a time; under a causal mask with the keys up to the last.

    A block has ``ROWS`` queries at most, and about ``ELEMENTS`` logits (a processor's cache; a GPU wants more at once),
    so that its memory does not grow with the text. Gradients reach q, k, v, positions and the scheme's parameters.
    """
    seed = int(torch.randint(1 << 62, ()).item()) if dropout else 0
    blocks = _Blocks(scheme, visible_BHST, causal, scale, dropout, seed)
    parameters = [parameter for parameter in scheme.parameters() if parameter.requires_grad]
    out: Tensor = _Blockwise.apply(blocks, q_BHSK, k_BHTK, v_BHTK, qpos_BS, kpos_BT, *parameters)
    return out


@dataclass(frozen=True)
class _Blocks:
    """What all blocks share."""

    scheme: Scheme
    visible: Tensor | None
    causal: bool
    scale: float
    dropout: float
    seed: int

    def parts(self, *inputs: Tensor) -> Iterator[tuple[int, list[Tensor]]]:
        """The first query of each block, and its part of q, k, v and the positions."""
        q, k, v, qpos, kpos = inputs
        queries, keys = q.shape[2], k.shape[2]
        room = ELEMENTS if q.device.type == "cpu" else ELEMENTS_OF_A_GPU
        rows = min(ROWS, max(16, room // max(1, q.shape[0] * q.shape[1] * keys)))
        axis = 2 if qpos.dim() == 4 else 1
        for start in range(0, queries, rows):
            count = min(rows, queries - start)
            last = keys - queries + start + count if self.causal else keys
            mine = [q.narrow(2, start, count), k.narrow(2, 0, last), v.narrow(2, 0, last)]
            yield start, [*mine, qpos.narrow(axis, start, count), kpos.narrow(axis, 0, last)]

    def attended(self, start: int, q: Tensor, k: Tensor, v: Tensor, qpos: Tensor, kpos: Tensor) -> Tensor:
        """A block's values; the same weights are dropped whenever it is computed."""
        visible = self.visible
        if visible is not None:
            rows = slice(start, start + q.shape[2]) if visible.shape[2] > 1 else slice(None)
            visible = visible[:, :, rows, : k.shape[2]]
        with torch.random.fork_rng([q.device] if q.device.type == "cuda" else [], enabled=self.dropout > 0):
            if self.dropout:
                torch.manual_seed(self.seed + start)
            bias = self.scheme.bias(q, k, qpos, kpos)
            return whole(q, k, v, bias, visible, self.causal, self.scale, self.dropout)


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, blocks: _Blocks, *inputs: Tensor) -> Tensor:
        q, v = inputs[0], inputs[2]
        ctx.blocks = blocks
        ctx.save_for_backward(*inputs)
        out = v.new_empty(*q.shape[:3], v.shape[-1])
        # With gradients, so that the same kernel serves as in the backward pass.
        with torch.set_grad_enabled(any(ctx.needs_input_grad)):
            for start, parts in blocks.parts(*inputs[:5]):
                leaves = _leaves(parts, ctx.needs_input_grad[1:])
                out.narrow(2, start, leaves[0].shape[2]).copy_(blocks.attended(start, *leaves).detach())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        blocks, inputs, wanted = ctx.blocks, ctx.saved_tensors, ctx.needs_input_grad[1:]
        totals = [torch.zeros_like(x) if want else None for x, want in zip(inputs, wanted, strict=True)]
        # The same narrowing finds a block's part of its inputs and of their gradients.
        sums = [x if total is None else total for x, total in zip(inputs[:5], totals, strict=False)]
        for (start, parts), (_, places) in zip(blocks.parts(*inputs[:5]), blocks.parts(*sums), strict=True):
            leaves = [*_leaves(parts, wanted), *inputs[5:]]
            with torch.enable_grad():
                out = blocks.attended(start, *leaves[:5])
            asked = [leaf for leaf, want in zip(leaves, wanted, strict=True) if want]
            found = iter(torch.autograd.grad(out, asked, grads[0].narrow(2, start, out.shape[2]), allow_unused=True))
            for total, want in zip([*places, *totals[5:]], wanted, strict=True):
                gradient = next(found) if want else None
                if total is not None and gradient is not None:
                    total += gradient
        return None, *totals


def _leaves(parts: list[Tensor], wanted: tuple[bool, ...]) -> list[Tensor]:
    """The parts as inputs of a graph of their own."""
    return [part.detach().requires_grad_(want) for part, want in zip(parts, wanted, strict=False)]
