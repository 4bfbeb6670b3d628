"""Say how a bias by distance differs from the reference's: ALiBi's slopes, T5's buckets."""

from __future__ import annotations

from bisect import bisect_right
from itertools import product

import torch
from torch import Tensor

from clockhands.schemes.bias.alibi import alibi_slopes
from clockhands.schemes.bias.t5 import list_bucket_starts

_TOLERANCE = 2e-3
_FARTHEST = (8, 16, 20, 32, 64, 128, 256, 512, 1024)
_Buckets = tuple[int, int, bool]
"""How many of T5's buckets, the distance from which all are the last, and whether both directions have their own."""


def differ(ours_HST: Tensor, theirs_HST: Tensor, allowed_ST: Tensor) -> bool:
    """Whether two biases differ by more than a constant for each query, which a softmax does not see."""
    gap = (ours_HST - theirs_HST)[:, allowed_ST]
    size = max(1.0, float(theirs_HST.abs().max()))
    rows = torch.where(allowed_ST, ours_HST - theirs_HST, 0.0)
    centre = rows.sum(-1, keepdim=True) / allowed_ST.sum(-1, keepdim=True).clamp(min=1)
    return gap.numel() > 0 and float((rows - centre)[:, allowed_ST].abs().max()) > _TOLERANCE * size


def describe_bias(ours_HST: Tensor, theirs_HST: Tensor, allowed_ST: Tensor, sizes: frozenset[int] = frozenset()) -> str:
    """Return what differs as a sentence about the model; empty if nothing does, or it has no description.

    ``sizes`` are those of tables that may hold a bias by distance.
    """
    if not differ(ours_HST, theirs_HST, allowed_ST):
        return ""
    mine, wanted = (_fit_slopes(bias, allowed_ST) for bias in (ours_HST, theirs_HST))
    if mine is not None and wanted is not None:
        return _describe_slopes(mine, wanted)
    tables = [_list_by_distance(bias, allowed_ST) for bias in (ours_HST, theirs_HST)]
    return "" if tables[0] is None or tables[1] is None else _describe_tables(tables[0], tables[1], sizes)


def _fit_slopes(bias_HST: Tensor, allowed_ST: Tensor) -> Tensor | None:
    """Return by how much the bias of each head grows from one key to the next; None if it is not linear."""
    length, keys = allowed_ST.shape
    at = torch.arange(keys, dtype=torch.float64, device=bias_HST.device).expand(length, keys)
    counts = allowed_ST.sum(-1, keepdim=True).clamp(min=1)
    x = torch.where(allowed_ST, at - torch.where(allowed_ST, at, 0.0).sum(-1, keepdim=True) / counts, 0.0)
    masked = torch.where(allowed_ST, bias_HST, 0.0)
    y = torch.where(allowed_ST, masked - masked.sum(-1, keepdim=True) / counts, 0.0)
    slopes = (x * y).sum((1, 2)) / (x * x).sum().clamp(min=1e-9)
    rest = float((y - slopes[:, None, None] * x).abs().max())
    return slopes if rest <= _TOLERANCE * max(1.0, float(masked.abs().max())) else None


def _describe_slopes(mine_H: Tensor, wanted_H: Tensor) -> str:
    small = 1e-4 * max(1e-3, float(wanted_H.abs().max()), float(mine_H.abs().max()))
    if float(mine_H.abs().max()) < 10 * small:
        return "adds no bias by distance"
    if float(wanted_H.abs().max()) < 10 * small:
        return f"adds a bias by distance of slopes {_list(mine_H)}, the reference none"
    ratios = mine_H / wanted_H
    if float((ratios - ratios[0]).abs().max()) < 1e-3 * abs(float(ratios[0])):
        ratio = float(ratios.mean())
        words = {2.0: "doubled", 0.5: "halved", -1.0: "of the wrong sign"}
        known = next((word for value, word in words.items() if abs(ratio / value - 1) < 1e-3), None)
        return f"has ALiBi's slopes {known}" if known else f"has ALiBi's slopes {ratio:.4g} times the reference's"
    if float((mine_H - wanted_H.flip(0)).abs().max()) < 10 * small:
        return "has ALiBi's slopes in reverse order of heads"
    heads = len(mine_H)
    for count in (2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 71, 112, 128):
        for start in (0, count - heads):
            slopes = alibi_slopes(count).double()[start : start + heads].to(mine_H.device)
            if start >= 0 and len(slopes) == heads and count != heads and _near(mine_H.abs(), slopes):
                return f"has ALiBi's slopes of {count} heads, not {heads}"
    return f"has ALiBi's slopes {_list(mine_H.abs())}, not {_list(wanted_H.abs())}"


def _near(ours: Tensor, other: Tensor) -> bool:
    return float((ours / other - 1).abs().max()) < 2e-3


def _list(values: Tensor) -> str:
    return ", ".join(f"{float(value):.4g}" for value in values[:4]) + (" ..." if len(values) > 4 else "")


def _list_by_distance(bias_HST: Tensor, allowed_ST: Tensor) -> dict[int, Tensor] | None:
    """Return the bias [H] of each distance (key less query); None where it is no function of distance."""
    length, keys = allowed_ST.shape
    at = torch.arange(keys, device=bias_HST.device)[None] - torch.arange(length, device=bias_HST.device)[:, None]
    size = max(1.0, float(bias_HST.abs().max()))
    table = {}
    for distance in range(1 - length, keys):
        values = bias_HST[:, (at == distance) & allowed_ST]
        if values.shape[1]:
            if float((values - values[:, :1]).abs().max()) > _TOLERANCE * size:
                return None
            table[distance] = values.mean(1)
    return table


def _describe_tables(ours: dict[int, Tensor], theirs: dict[int, Tensor], sizes: frozenset[int]) -> str:
    """Compare biases by distance: another sign or start of the distance, other buckets, another size."""
    both = [distance for distance in ours if distance in theirs]
    mine, wanted = (torch.stack([table[distance] for distance in both]) for table in (ours, theirs))
    size = max(1e-6, float(wanted.abs().max()))
    if float(mine.abs().max()) < 1e-3 * size:
        return "adds no bias by distance"
    ratio = float((mine * wanted).sum() / (wanted * wanted).sum())
    if float((mine - ratio * wanted).abs().max()) < _TOLERANCE * size:
        return f"has a bias {ratio:.4g} times the reference's"
    if all(-d in theirs and _same(ours[d], theirs[-d], size) for d in ours):
        return "takes the distances with the other sign"
    if 0 in theirs and all(_same(value, theirs[0], size) for value in ours.values()):
        return "takes every distance for 0"
    for offset in (1, -1, 2, -2, 3, -3):
        pairs = [d for d in ours if d + offset in theirs]
        if len(pairs) > len(ours) // 2 and all(_same(ours[d], theirs[d + offset], size) for d in pairs):
            return f"takes each distance {abs(offset)} too {'large' if offset > 0 else 'small'}"
    return _describe_buckets(ours, theirs, size, sizes)


def _same(ours: Tensor, other: Tensor, size: float) -> bool:
    return float((ours - other).abs().max()) < _TOLERANCE * size


def _describe_buckets(ours: dict[int, Tensor], theirs: dict[int, Tensor], size: float, sizes: frozenset[int]) -> str:
    """Find T5's buckets of both under one table; nothing unless one pair of settings alone fits what was seen."""
    labels: list[Tensor] = []

    def label(value: Tensor) -> int:
        known = next((i for i, other in enumerate(labels) if _same(value, other, size)), len(labels))
        labels.extend([value] if known == len(labels) else [])
        return known

    mine, wanted = ({d: label(value) for d, value in table.items()} for table in (ours, theirs))
    settings = [s for s in product(sorted(sizes), _FARTHEST, (True, False)) if s[1] > s[0] // (4 if s[2] else 2)]
    fits = [s for s in settings if _is_consistent([(wanted, s)])]
    named = {_name_buckets(a, b) for a in fits for b in settings if _is_consistent([(wanted, a), (mine, b)])}
    return named.pop() if len(named) == 1 else ""


def _name_buckets(theirs: _Buckets, ours: _Buckets) -> str:
    said = []
    if ours[0] != theirs[0]:
        said.append(f"{ours[0]} buckets, not {theirs[0]}")
    if ours[1] != theirs[1]:
        said.append(f"a maximum distance of {ours[1]}, not {theirs[1]}")
    if ours[2] != theirs[2]:
        said.append(f"buckets counted in {'both directions' if ours[2] else 'one direction'}")
    return "has " + " and ".join(said)


def _is_consistent(tables: list[tuple[dict[int, int], _Buckets]]) -> bool:
    """Whether buckets and values seen belong to each other one to one."""
    value_of: dict[int, int] = {}
    bucket_of: dict[int, int] = {}
    for table, (count, farthest, both) in tables:
        count //= 2 if both else 1
        starts = list_bucket_starts(count, farthest)
        for distance, value in table.items():
            bucket = bisect_right(starts, abs(distance) if both else max(-distance, 0)) + count * (
                both and distance > 0
            )
            if value_of.setdefault(bucket, value) != value or bucket_of.setdefault(value, bucket) != bucket:
                return False
    return True
