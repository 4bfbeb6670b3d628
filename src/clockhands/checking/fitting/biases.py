"""Say how a bias by distance differs from the reference's: ALiBi's slopes, T5's buckets."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from itertools import product

import torch
from torch import Tensor

from clockhands.checking.fitting.compare import (
    centre,
    find_factor,
    find_ratio,
    is_near,
    list_numbers,
    make_distances,
    size_of,
)
from clockhands.schemes.bias.alibi import alibi_slopes
from clockhands.schemes.bias.t5 import list_bucket_starts

_TOLERANCE = 2e-3
_FARTHEST = (8, 16, 20, 32, 64, 128, 256, 512, 1024)
_HEADS = (2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 71, 112, 128)
_Buckets = tuple[int, int, bool]
"""How many of T5's buckets, the distance from which all are the last, and whether both directions have their own."""


def differ(ours_HST: Tensor, theirs_HST: Tensor, allowed_ST: Tensor) -> bool:
    """Whether two biases differ by more than a constant for each query, which a softmax does not see."""
    gap = centre(ours_HST - theirs_HST, allowed_ST)
    return size_of(gap) > _TOLERANCE * max(1.0, size_of(theirs_HST))


def describe_bias(ours_HST: Tensor, theirs_HST: Tensor, allowed_ST: Tensor, sizes: frozenset[int] = frozenset()) -> str:
    """Return what differs as a sentence about the model; empty if nothing does, or it has no description.

    ``sizes`` are those of tables that may hold a bias by distance.
    """
    if not differ(ours_HST, theirs_HST, allowed_ST):
        return ""
    mine, wanted = _fit_slopes(ours_HST, allowed_ST), _fit_slopes(theirs_HST, allowed_ST)
    if mine is not None and wanted is not None:
        return _describe_slopes(mine, wanted)
    ours, theirs = _list_by_distance(ours_HST, allowed_ST), _list_by_distance(theirs_HST, allowed_ST)
    return "" if ours is None or theirs is None else _describe_tables(ours, theirs, sizes)


def _fit_slopes(bias_HST: Tensor, allowed_ST: Tensor) -> Tensor | None:
    """Return by how much the bias of each head grows from one key to the next; None if it is not linear."""
    x, y = centre(make_distances(allowed_ST).double(), allowed_ST), centre(bias_HST, allowed_ST)
    slopes = (x * y).sum((1, 2)) / (x * x).sum().clamp(min=1e-9)
    size = max(1.0, size_of(torch.where(allowed_ST, bias_HST, 0.0)))
    return slopes if size_of(y - slopes[:, None, None] * x) <= _TOLERANCE * size else None


def _describe_slopes(mine_H: Tensor, wanted_H: Tensor) -> str:
    steepest, wanted = size_of(mine_H), size_of(wanted_H)
    small = 1e-3 * max(1e-3, steepest, wanted)
    if steepest < small:
        return "adds no bias by distance"
    if wanted < small:
        return f"adds a bias by distance of slopes {list_numbers(mine_H, 4)}, the reference none"
    ratio = find_ratio(mine_H, wanted_H)
    if ratio is not None:
        words = {2.0: "doubled", 0.5: "halved", -1.0: "of the wrong sign"}
        known = next((word for value, word in words.items() if abs(ratio / value - 1) < 1e-3), "")
        return f"has ALiBi's slopes {known}" if known else f"has ALiBi's slopes {ratio:.4g} times the reference's"
    if size_of(mine_H - wanted_H.flip(0)) < small:
        return "has ALiBi's slopes in reverse order of heads"
    heads = len(mine_H)
    for count in _HEADS:
        for start in {0, count - heads} if count > heads else ():
            slopes = alibi_slopes(count).double()[start : start + heads].to(mine_H.device)
            if size_of(mine_H.abs() / slopes - 1) < _TOLERANCE:
                return f"has ALiBi's slopes of {count} heads, not {heads}"
    return f"has ALiBi's slopes {list_numbers(mine_H.abs(), 4)}, not {list_numbers(wanted_H.abs(), 4)}"


def _list_by_distance(bias_HST: Tensor, allowed_ST: Tensor) -> dict[int, Tensor] | None:
    """Return the bias [H] of each distance (key less query); None where it is no function of distance."""
    distances = make_distances(allowed_ST)
    size = max(1.0, size_of(bias_HST))
    table = {}
    for distance in distances[allowed_ST].unique().tolist():
        values = bias_HST[:, (distances == distance) & allowed_ST]
        if size_of(values - values[:, :1]) > _TOLERANCE * size:
            return None
        table[distance] = values.mean(1)
    return table


def _describe_tables(ours: dict[int, Tensor], theirs: dict[int, Tensor], sizes: frozenset[int]) -> str:
    """Compare biases by distance: another size, another sign or start of the distance, other buckets of T5."""
    both = [distance for distance in ours if distance in theirs]
    mine, wanted = torch.stack([ours[d] for d in both]), torch.stack([theirs[d] for d in both])
    size = max(1e-6, size_of(wanted))
    if size_of(mine) < 1e-3 * size:
        return "adds no bias by distance"
    ratio = find_factor(mine, wanted, size, _TOLERANCE)
    if ratio is not None:
        return f"has a bias {ratio:.4g} times the reference's"

    same = partial(is_near, size=size, tolerance=_TOLERANCE)
    if all(-d in theirs and same(ours[d], theirs[-d]) for d in ours):
        return "takes the distances with the other sign"
    if 0 in theirs and all(same(value, theirs[0]) for value in ours.values()):
        return "takes every distance for 0"
    for offset in (1, -1, 2, -2, 3, -3):
        pairs = [d for d in ours if d + offset in theirs]
        if len(pairs) > len(ours) // 2 and all(same(ours[d], theirs[d + offset]) for d in pairs):
            return f"takes each distance {abs(offset)} too {'large' if offset > 0 else 'small'}"
    # T5's buckets: equal biases get one number in both tables, and one pair of settings alone must explain them.
    labels: list[Tensor] = []
    numbered: list[dict[int, int]] = []
    for table in (theirs, ours):
        numbers = {}
        for distance, value in table.items():
            known = next((i for i, other in enumerate(labels) if same(value, other)), len(labels))
            labels += [value] if known == len(labels) else []
            numbers[distance] = known
        numbered.append(numbers)
    settings = [s for s in product(sorted(sizes), _FARTHEST, (True, False)) if s[1] > s[0] // (4 if s[2] else 2)]
    fits = [s for s in settings if _is_consistent((numbered[0], s))]
    named = set()
    for wanted_setting, setting in product(fits, settings):
        if _is_consistent((numbered[0], wanted_setting), (numbered[1], setting)):
            named.add(_name_buckets(wanted_setting, setting))
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


def _is_consistent(*tables: tuple[dict[int, int], _Buckets]) -> bool:
    """Whether buckets and values seen belong to each other one to one."""
    value_of: dict[int, int] = {}
    bucket_of: dict[int, int] = {}
    for table, (count, farthest, both) in tables:
        count //= 2 if both else 1
        starts = list_bucket_starts(count, farthest)
        for distance, value in table.items():
            bucket = bisect_right(starts, abs(distance) if both else max(-distance, 0))
            bucket += count if both and distance > 0 else 0
            if value_of.setdefault(bucket, value) != value or bucket_of.setdefault(value, bucket) != bucket:
                return False
    return True
