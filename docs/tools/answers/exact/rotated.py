"""Rotary embedding: layouts, caches, padding and what is not rotated, computed on random queries and keys."""

from __future__ import annotations

import math

import torch

from clockhands.positions import count_from_mask
from clockhands.schemes import RoPE
from clockhands.schemes.convert import convert_rows
from clockhands.schemes.frequencies import compute_frequencies
from clockhands.schemes.rotary.rotation import Layout
from clockhands.shapes import Bool, Float, Int, Tensor
from exact.added import Numbers, make_rows

WIDTH, LENGTH = 64, 32


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Return standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotate(
    x_SK: Float[Tensor, "S K"], positions_S: Int[Tensor, " S"], base: float = 10_000.0, layout: Layout = "half"
) -> Float[Tensor, "S K"]:
    """Return rows rotated by rotary embedding at their positions."""
    scheme = RoPE(x_SK.shape[1], base=base, layout=layout).double()
    rotated, _ = scheme.rotate(x_SK[None, None], x_SK[None, None], positions_S[None], positions_S[None])
    return rotated[0, 0]


def score(q_SK: Tensor, k_TK: Tensor) -> Float[Tensor, "S T"]:
    """Return the scores of queries and keys, divided by the square root of their width."""
    return q_SK @ k_TK.T / math.sqrt(q_SK.shape[-1])


def compare_layouts() -> Numbers:
    """Return how far scores of the two layouts differ, with the rows of W_q and W_k permuted and with them as they are.

    And with those of W_q alone permuted. In standard deviations of the scores.
    """
    states, positions = draw(LENGTH, WIDTH), torch.arange(LENGTH)
    weights = [draw(WIDTH, WIDTH, seed=seed) / math.sqrt(WIDTH) for seed in (1, 2)]

    def attend(layout: Layout, q_weight: Tensor, k_weight: Tensor) -> Tensor:
        return score(*(rotate(states @ weight.T, positions, layout=layout) for weight in (q_weight, k_weight)))

    neighbours = attend("interleaved", *weights)
    permuted = [convert_rows(weight, 1, "half") for weight in weights]
    ways = {"permuted": permuted, "not permuted": weights, "queries alone permuted": [permuted[0], weights[1]]}
    spread = neighbours.std()
    return {name: float((attend("half", *read) - neighbours).abs().max() / spread) for name, read in ways.items()}


def compare_cached_keys() -> Numbers:
    """Return how far scores are off for keys that were rotated before they were cached, in standard deviations.

    Against keys that are rotated when they are read; the same after the base has changed in between; and after the
    cached keys were moved by 7 tokens, once rotated by the difference and once left as they were.
    """
    query, keys, positions = draw(LENGTH, WIDTH, seed=1), draw(LENGTH, WIDTH, seed=2), torch.arange(LENGTH)
    cached, fresh = rotate(keys, positions), rotate(keys, positions, base=500_000.0)
    queries, queries_anew = rotate(query, positions), rotate(query, positions, base=500_000.0)
    true, true_anew = score(queries, rotate(keys, positions)), score(queries_anew, fresh)
    moved = score(queries, rotate(keys, positions + 7))
    spread = true.std()
    return {
        "as cached": float((score(queries, cached) - true).abs().max() / spread),
        "base changed": float((score(queries_anew, cached) - true_anew).abs().max() / spread),
        "moved, rotated on": float(
            (score(queries, rotate(cached, torch.full_like(positions, 7))) - moved).abs().max() / spread
        ),
        "moved, left": float((score(queries, cached) - moved).abs().max() / spread),
    }


def compare_values() -> Numbers:
    """Return what a common shift of 100 positions changes in the output of attention, over the size of the output.

    With queries and keys rotated; with values rotated too; and with the output rotated back besides, as in DeepSeek-V4.
    """
    q, k, v = (draw(LENGTH, WIDTH, seed=seed) for seed in (1, 2, 3))

    def attend(shift: int, *, rotated_values: bool, back: bool) -> Tensor:
        positions = torch.arange(LENGTH) + shift
        weights = score(rotate(q, positions), rotate(k, positions)).softmax(-1)
        out = weights @ (rotate(v, positions) if rotated_values else v)
        return rotate(out, -positions) if back else out

    values: Numbers = {}
    ways = (("plain values", False, False), ("rotated values", True, False), ("rotated back", True, True))
    for name, rotated_values, back in ways:
        before, after = (attend(shift, rotated_values=rotated_values, back=back) for shift in (0, 100))
        values[name] = float((after - before).norm() / before.norm())
    return values


def compare_shifted() -> Numbers:
    """Return what a start at position 37 in place of 0 changes in scores, in standard deviations of the scores.

    So much do left padding, or a document that is packed behind another, change if positions are not counted anew:
    for rotary embedding, and for the sinusoid that is added. By name for starts at 1 and 500, too.
    """
    others = {f"{name}, {start}": value for start in (1, 500) for name, value in _compare_start(start).items()}
    return {**_compare_start(37), **others}


def _compare_start(start: int) -> Numbers:
    """Return what a start at a position in place of 0 changes in scores, for rotary embedding and a sinusoid."""
    words, positions = draw(LENGTH, WIDTH), torch.arange(LENGTH)
    weights = [draw(WIDTH, WIDTH, seed=seed) / math.sqrt(WIDTH) for seed in (1, 2)]
    rows = make_rows(WIDTH, LENGTH + start)
    values: Numbers = {}
    rotary = [score(*(rotate(words @ weight.T, positions + first) for weight in weights)) for first in (0, start)]
    added = [score(*((words + rows[first : first + LENGTH]) @ weight.T for weight in weights)) for first in (0, start)]
    for name, (before, after) in (("rotary", rotary), ("added", added)):
        values[name] = float((after - before).abs().max() / before.std())
    return values


def compare_padded() -> Numbers:
    """Return what 37 tokens of left padding change in the output of attention at the words, over its size.

    For rotary embedding and for the sinusoid that is added: with a mask that hides the padding and positions that are
    counted from the first word; with the mask, but positions counted from the edge; and without the mask.
    """
    real_S = torch.arange(37 + LENGTH) >= 37
    words, everything = draw(LENGTH, WIDTH), torch.ones_like(real_S)
    padded = torch.cat([draw(1, WIDTH, seed=4).expand(37, WIDTH), words])
    counted, from_edge = count_from_mask(real_S[None])[0], torch.arange(37 + LENGTH)
    ways = {"both": (counted, real_S), "mask alone": (from_edge, real_S), "no mask": (counted, everything)}
    values: Numbers = {}
    for name, rotary in (("rotary", True), ("added", False)):
        alone = _attend(words, torch.arange(LENGTH), everything[:LENGTH], rotary=rotary)
        for way, (positions, seen) in ways.items():
            change = _attend(padded, positions, seen, rotary=rotary)[37:] - alone
            values[f"{name}, {way}"] = float(change.norm() / alone.norm())
    return values


def _attend(
    states_SD: Float[Tensor, "S D"], positions_S: Int[Tensor, " S"], mask_S: Bool[Tensor, " S"], *, rotary: bool
) -> Float[Tensor, "S D"]:
    """Return the output of one head with random weights: rotary embedding, or a sinusoid that is added."""
    rows = make_rows(WIDTH, int(positions_S.max()) + 1)[positions_S]
    inputs = states_SD if rotary else states_SD + rows
    q, k, v = (inputs @ draw(WIDTH, WIDTH, seed=seed).T / math.sqrt(WIDTH) for seed in (1, 2, 3))
    if rotary:
        q, k = rotate(q, positions_S), rotate(k, positions_S)
    return score(q, k).masked_fill(~mask_S, -math.inf).softmax(-1) @ v


def measure_partial() -> Numbers:
    """Return what is left of the score of a query with a key like it, by distance, with all or a quarter rotated.

    For independent channels it is the mean of cos(ω·distance) over all pairs; a pair that does not rotate adds 1.
    """
    values: Numbers = {}
    for distance in (10, 100, 1000):
        for name, rotated in (("all", 128), ("quarter", 32)):
            cosines = (distance * compute_frequencies(rotated, 10_000.0)).cos()
            values[f"{name}, {distance}"] = 100 * float((cosines.sum() + (128 - rotated) / 2) / 64)
    return values
