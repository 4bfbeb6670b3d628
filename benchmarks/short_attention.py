"""Causal attention over 64 to 512 tokens with every scheme, against SDPA without positions and the best peer.

    python benchmarks/short_attention.py --rounds 15

8 heads of 64, batch 4, float32, one thread; forward, and forward with backward. Every way of a round runs once, in
turns. A peer computes the same as its users write it: rotations of transformers, rotary-embedding-torch and
x-transformers before SDPA, and biases of x-transformers, of transformers or of a table laid out by us as SDPA's mask.
``--schemes alibi t5`` measures these alone; the others stay in the results as they were.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from attention_ways import list_schemes
from timing import OURS, RESULTS, interleave, report
from torch import Tensor

from clockhands import positions
from clockhands.attention import Positioning
from clockhands.schemes import Alibi, AttentionInputs, Scheme, T5Bias

HEADS, WIDTH, BATCH = 8, 64, 4
LENGTHS = (64, 128, 256, 512)
PLAIN = "SDPA without positions"
SETTING = f"causal, batch {BATCH}, {HEADS} heads of {WIDTH}, float32, one thread, CPU time; 2 cores, no GPU"
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def list_peers(name: str, scheme: Scheme, length: int) -> dict[str, Attend]:
    """Return what does the same elsewhere, by name."""
    lower = torch.ones(length, length, dtype=torch.bool).tril()
    if name == "rope":
        return list_rotations(length)
    if name == "window":
        mask = lower & ~torch.ones_like(lower).tril(-1 - scheme.left)  # type: ignore[operator, attr-defined]
        return {"SDPA, mask made before": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)}
    if name not in ("alibi", "t5", "kerple", "fire"):
        return {}
    pos = positions.count_up(1, length)

    def lay_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        bias = scheme.bias(AttentionInputs(q, k, pos, pos)).masked_fill(~lower, -torch.inf)  # type: ignore[union-attr]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    peers: dict[str, Attend] = {"SDPA, bias laid out": lay_out}
    if isinstance(scheme, (Alibi, T5Bias)):
        from x_transformers.x_transformers import AlibiPositionalBias, RelativePositionBias

        if isinstance(scheme, Alibi):
            theirs: Any = AlibiPositionalBias(heads=HEADS, total_heads=HEADS)
            bias = lay_bias(scheme, length).masked_fill(~lower, -torch.inf)
            peers = {"SDPA, mask made before": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=bias)}
        else:
            theirs = RelativePositionBias(WIDTH**0.5, causal=True, num_buckets=32, max_distance=128, heads=HEADS)

        def attend_with_theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            made = theirs(length, length).masked_fill(~lower, -torch.inf)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=made.expand(1, -1, -1, -1))

        peers["x-transformers"] = attend_with_theirs
    return peers


def lay_bias(scheme: Scheme, length: int) -> Tensor:
    """Return a bias by positions alone over all pairs, without a gradient."""
    pos, q = positions.count_up(1, length), torch.zeros(1, HEADS, length, WIDTH)
    with torch.no_grad():
        bias = scheme.bias(AttentionInputs(q, q, pos, pos))
    assert bias is not None
    return bias


def list_rotations(length: int) -> dict[str, Attend]:
    """Return RoPE as three libraries have it; their frequencies are made before, their angles in each call."""
    from rotary_embedding_torch import RotaryEmbedding
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
    from x_transformers import x_transformers

    config = LlamaConfig(hidden_size=HEADS * WIDTH, num_attention_heads=HEADS)
    llama, rotary, pos = LlamaRotaryEmbedding(config), RotaryEmbedding(dim=WIDTH), positions.count_up(BATCH, length)
    xpos: Any = x_transformers.RotaryEmbedding(WIDTH)

    def by_transformers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = apply_rotary_pos_emb(q, k, *llama(q, pos))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def by_rotary(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = rotary.rotate_queries_or_keys(q), rotary.rotate_queries_or_keys(k)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def by_x_transformers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        freqs, _ = xpos.forward_from_seq_len(length)
        q, k = (x_transformers.apply_rotary_pos_emb(x, freqs) for x in (q, k))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return {
        "transformers": by_transformers, "rotary-embedding-torch": by_rotary, "x-transformers": by_x_transformers
    }  # fmt: skip


def compare(name: str, scheme: Scheme, length: int, backward: bool, rounds: int) -> dict[str, Any]:
    """Return how long ours takes over SDPA without positions, and over the peer with the least median."""
    torch.manual_seed(0)
    position, axes = Positioning(scheme), scheme.declares.axes or 1
    pos = positions.count_up(1, length)
    pos = pos if axes == 1 else positions.repeat_on_axes(pos, axes)
    shape, x = (BATCH, HEADS, length, WIDTH), torch.randn(BATCH, length, HEADS * WIDTH)
    qkv = [torch.randn(shape, requires_grad=backward) for _ in range(3)]
    position.embed(x, pos)
    ways: dict[str, Attend] = {
        OURS: lambda q, k, v: position.attend(0, q, k, v, pos, x=x, causal=True),
        PLAIN: lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        **list_peers(name, scheme, length),
    }

    def make(way: Attend) -> Callable[[], object]:
        def run() -> None:
            with torch.set_grad_enabled(backward):
                for _ in range(max(1, 256 // length)):
                    out = way(*qkv)
                    if backward:
                        out.sum().backward()

        return run

    times = interleave({way: make(attend) for way, attend in ways.items()}, rounds, warmup=2)
    found = {"over no position": over(times, PLAIN)}
    rivals = [way for way in ways if way not in (OURS, PLAIN)]
    if rivals:
        best = min(rivals, key=lambda way: statistics.median(times[way]))
        found |= {"best peer": best, "over best peer": over(times, best)}
    return found


def over(times: dict[str, list[float]], peer: str) -> float:
    """Return the median of our time over the peer's, round by round."""
    return round(statistics.median(ours / theirs for ours, theirs in zip(times[OURS], times[peer], strict=True)), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--schemes", nargs="*", default=[])
    parser.add_argument("--lengths", nargs="*", type=int, default=LENGTHS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    path = RESULTS / "short_attention.json"
    results: dict[str, Any] = json.loads(path.read_text("utf8"))["results"] if path.exists() else {}
    for name, build in list_schemes().items():
        if isinstance(build, str) or "/" in name or (asked.schemes and name not in asked.schemes):
            continue
        for length in asked.lengths:
            for backward in (False, True):
                key = f"{length} tokens, {'with backward' if backward else 'forward'}"
                results.setdefault(name, {})[key] = compare(name, build(), length, backward, asked.rounds)
        print(name, results[name], flush=True)
    report("short_attention", "python benchmarks/short_attention.py", SETTING, results)


if __name__ == "__main__":
    main()
