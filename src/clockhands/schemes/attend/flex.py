"""FlexAttention on a GPU: the bias is computed inside the kernel, from the scheme's ``score_mod``."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from clockhands.schemes.base import KeyPositions, Positions, Scheme
from clockhands.shapes import Float, Tensor


def flexes(scheme: Scheme, q_BHSK: Float[Tensor, "B H S K"], v_BHTK: Float[Tensor, "B H T Kv"], dropout: float) -> bool:
    """Whether FlexAttention serves: on CUDA, for many queries (compiling costs seconds, and a short bias is small),
    without dropout (it has none), and for schemes whose ``score_mod`` needs no whole bias."""
    return (
        q_BHSK.device.type == "cuda"
        and not torch.compiler.is_compiling()
        and not dropout
        and scheme.lean_score_mod
        and q_BHSK.shape[2] >= 1024
        and q_BHSK.shape[-1] >= 16
        and q_BHSK.dtype != torch.float64
        and q_BHSK.shape[-1] == v_BHTK.shape[-1]
    )


@cache
def _compiled() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def flexed(
    scheme: Scheme,
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T Kv"],
    qpos_BS: Positions,
    kpos_BT: KeyPositions,
    visible_BHST: Tensor | None,
    causal: bool,
    scale: float,
) -> Float[Tensor, "B H S Kv"]:
    """Attention through the compiled FlexAttention kernel, with a block mask for what is hidden."""
    from torch.nn.attention.flex_attention import create_block_mask

    queries, keys = q_BHSK.shape[2], k_BHTK.shape[2]
    modify = scheme.score_mod(qpos_BS, kpos_BT, q_BHSK, k_BHTK)
    mask = None
    if causal or visible_BHST is not None:
        whole = None if visible_BHST is None else visible_BHST.expand(q_BHSK.shape[0], -1, queries, keys)

        def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            seen = j <= i + (keys - queries) if causal else j >= 0
            return seen if whole is None else seen & whole[b, 0 if whole.shape[1] == 1 else h, i, j]

        batch = None if whole is None else q_BHSK.shape[0]
        heads = None if whole is None or whole.shape[1] == 1 else q_BHSK.shape[1]
        mask = create_block_mask(sees, batch, heads, queries, keys, device=q_BHSK.device)
    out: Tensor = _compiled()(q_BHSK, k_BHTK, v_BHTK, score_mod=modify, block_mask=mask, scale=scale)
    return out
