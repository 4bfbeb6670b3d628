"""Say where tokens stand, what they see, and what enters the first block, otherwise than meant."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from clockhands.checking.fitting.compare import find_factor, find_ratio, is_near, size_of
from clockhands.checking.fitting.rotation import LAYOUT_WORDS, FittedRotation, find_base, fit_speeds, same_angles

_SAME = 0.03
_ROUNDED = (
    (torch.uint8, "8 bits"),
    (torch.int8, "8 bits with a sign"),
    (torch.int16, "16 bits"),
    (torch.bfloat16, "bfloat16"),
    (torch.float16, "float16"),
)


Standing = dict[str, Tensor]
"""Of M tokens by name: the place that each is ``meant`` to have, where it ``stood``, and what could have been counted.

``index`` counts the real tokens of its call, ``past`` the columns in the cache before it, ``column`` all columns;
``first`` and ``longest`` are the places meant of the first and of the longest row; ``default`` is the place where none
had been given; ``total`` is the length of the text so far, ``length`` that of the plain one.
"""


def _same(x: Tensor, y: Tensor) -> bool:
    return bool(((x.double() - y.double()).abs() < _SAME).all())


def describe_places(standing: Standing) -> str:
    """Return where the tokens stand, as what is said of them; empty if all stand where they are meant to."""
    meant, stood = standing["meant"].double(), standing["stood"].double()
    if _same(meant, stood):
        return ""
    for words, places in _list_mistakes(standing):
        if _same(stood, places):
            return words
    some, gap = meant.abs() > 0.5, stood - meant
    ratio = find_ratio(stood[some], meant[some], 2e-3) if some.any() else None
    if ratio is not None:
        known = {2.0: "counts each position twice", 0.5: "stands at half its position"}
        return known.get(round(ratio, 3), f"stands at {ratio:.4g} times its position")
    if "again" in standing:  # how often keys of a cache are other by their own position again
        times = (gap / standing["again"])[standing["again"] > 0]
        if len(times) and _same(times, times.round()) and (times.round() >= 1).all():
            return "is rotated again at later calls"
    wrong = gap.abs() > _SAME
    moved = gap[wrong]
    if _same(moved, moved[:1]):
        return f"{_name_gap(moved[0])} in part"
    if (moved > 0).all() or (moved < 0).all():
        least, largest = (name_number(size) for size in moved.abs().aminmax())
        part = " in part" if len(moved) < len(gap) else ""
        return f"stands {least} to {largest} places too {'late' if moved[0] > 0 else 'early'}{part}"
    at, wanted = (", ".join(map(name_number, places[wrong][:5])) for places in (stood, meant))
    return f"stands at {at} ..., not at {wanted} ..."


def describe_parts(parts: Sequence[tuple[str, bool, Standing]]) -> str:
    """Say where tokens stand, by their layer and whether tokens were taken back before; and where alone they do so."""

    def describe(chosen: Sequence[tuple[str, bool, Standing]]) -> str:
        known = set.intersection(*(set(part) for *_, part in chosen))
        return describe_places({label: torch.cat([part[label] for *_, part in chosen]) for label in known})

    layers = list(dict.fromkeys(layer for layer, *_ in parts))
    by_layer = {layer: describe([part for part in parts if part[0] == layer]) for layer in layers}
    wrong = [layer for layer in layers if by_layer[layer]]
    if len({by_layer[layer] for layer in wrong}) == 1 and len(wrong) < len(layers):
        return f"{by_layer[wrong[0]]} {' and '.join(wrong)} alone"
    after = [part for part in parts if part[1]]
    if after and len(after) < len(parts) and not describe([part for part in parts if not part[1]]):
        return f"{text} once tokens were taken back" if (text := describe(after)) else ""
    return describe(parts)


def _list_mistakes(standing: Standing) -> Iterator[tuple[str, Tensor]]:
    """Yield what may be done to places, as what is said of it, with the places that it gives."""
    meant, stood = standing["meant"].double(), standing["stood"].double()
    if "default" in standing:
        yield "stands where it would without them", standing["default"]
    if "index" in standing and len(stood) > 1:
        yield "begins at position 0", standing["index"]
    yield "begins at position 0", 0 * stood
    if "total" in standing:
        yield "counts positions from the end of the text", meant + standing["length"] - standing["total"]
    yield _name_gap(stood[0] - meant[0]), meant + (stood[0] - meant[0])
    yield "is rotated the other way", -meant
    if "column" in standing:  # new tokens, not keys of the cache
        twice = "added to the positions that are given" if "default" in standing else "counted twice"
        yield "stands where the first row does", standing["first"]
        shift = stood[0] - standing["column"][0]
        counted = _name_gap(shift) if abs(shift) > _SAME else "stands where it does"
        yield f"{counted} with the pads counted", standing["column"] + shift
        yield "stands where the longest row does", standing["longest"]
        yield "begins at position 0, pads and all", standing["column"] - standing["past"]
        yield f"stands too late by the length of the cache, which is {twice}", meant + standing["past"]
        yield "divides positions by the length of the text", meant * standing["length"] / standing["total"]
    for dtype, words in _ROUNDED:
        yield f"has positions rounded to {words}", meant.long().to(dtype)
    first, last, top = float(stood.min()), float(stood.max()), float(meant.max())
    yield f"stands at position {name_number(last)} throughout", stood[:1].expand_as(stood)
    if last < top:
        yield f"holds positions at {name_number(last)}", meant.clamp(max=last)
    if first > float(meant.min()):
        yield f"stands at {name_number(first)} where it should stand before", meant.clamp(min=first)
    for size in range(2, min(4096, int(top)) + 1):
        yield f"begins positions anew after {size - 1}", meant % size
    yield "stands at half its position, rounded down", meant // 2
    yield "stands at a quarter of its position, rounded down", meant // 4


def _name_gap(gap: Tensor) -> str:
    size = name_number(abs(gap))
    return f"stands {size} place{'s' * (size != '1')} too {'late' if gap > 0 else 'early'}"


def name_number(value: Tensor | float) -> str:
    value = float(value)
    return f"{round(value):,}" if abs(value - round(value)) < 1e-6 else f"{value:.4g}"


def describe_seen(counts_MT: Tensor, meant_MT: Tensor, own_M: Tensor, real_MT: Tensor, documents: bool) -> list[str]:
    """Say which keys queries see and should not, and the other way round, of M queries and T columns.

    ``counts_MT`` is how often each sees a key of each column, ``own_M`` its own column, ``real_MT`` false for pads.
    """
    columns, own = torch.arange(counts_MT.shape[1], device=counts_MT.device), own_M[:, None]
    seen, said = counts_MT > 0, []
    extra, lost = seen & ~meant_MT, meant_MT & ~seen
    if len(seen) and not real_MT.all() and not (seen & real_MT).any():
        return ["is masked the other way round: it does not see what the mask shows"]
    later, before = columns > own, columns < own
    near = ~later | ~(extra & real_MT & later).any()  # later pads too, where later tokens are not seen as well
    if n := most(extra & ~real_MT & near):
        every = n >= most(~real_MT & (before | near & later & extra))
        said.append("reads the pads" if every else f"reads {n} of the pads")
    if n := most(extra & real_MT & later):
        every = n >= most(later & real_MT) > 1
        said.append("sees all later tokens" if every else f"sees {count_keys(n, 'later ')}")
    if n := most(extra & real_MT & before):
        said.append(
            f"sees the {count_keys(n)} of another document" if documents else f"sees {count_keys(n)} outside its window"
        )
    if n := most(lost):
        itself = (lost & (columns == own)).any(1)
        if int(lost.sum()) == int(itself.sum()):
            part = "" if 2 * int(itself.sum()) >= len(lost) else f" at {int(itself.sum())} of {len(lost)} places"
            said.append(f"does not see itself{part}")
        elif n == most(meant_MT & before):
            said.append(f"misses every key that was read before it, up to {n}")
        else:
            oldest = (lost <= (lost.long().cumsum(1) == meant_MT.long().cumsum(1))).all()
            said.append(f"misses {count_keys(n)}" + (", the oldest" if oldest else ""))
    if n := most(counts_MT > 1):
        said.append(f"sees {count_keys(n)} more than once")
    return said


def most(cells: Tensor) -> int:
    """Return the most cells that are true in one row."""
    return int(cells.sum(1).max()) if len(cells) else 0


def count_keys(count: int, kind: str = "") -> str:
    return f"{count} {kind}key{'s' * (count != 1)}"


def describe_rotations(queries: FittedRotation | None, keys: FittedRotation | None) -> str:
    """Say how the keys of one attention rotate otherwise than its queries; empty if alike, or if that is not known."""
    if queries is None or keys is None:
        return ""
    if not queries.count or not keys.count:
        return "" if queries.count == keys.count else f"{'keys' if queries.count else 'queries'} do not rotate"
    if (queries.start, queries.count) != (keys.start, keys.count):
        mine, other = (f"{side.start + 1} to {side.start + side.count}" for side in (queries, keys))
        return f"queries rotate their channels {mine}, keys {other}"
    wrong = {name: side for name, side in (("queries", queries), ("keys", keys)) if not side.is_rotation}
    if wrong:
        side = next(iter(wrong.values()))
        one_sign = same_angles(side.first_SC, -side.second_SC)
        said = "the sign of one member of each pair wrong" if one_sign else "members of a pair rotated apart"
        return f"{' and '.join(wrong)} have {said}, which is no rotation"
    if same_angles(queries.first_SC, -keys.first_SC):
        return "keys rotate the other way than queries"
    if same_angles(queries.first_SC, keys.first_SC):
        mine, other = (LAYOUT_WORDS[side.layout] for side in (queries, keys))
        return "" if mine == other else f"queries rotate {mine}, keys {other}"
    if queries.speeds_C.shape == keys.speeds_C.shape:
        ratio = find_ratio(queries.speeds_C, keys.speeds_C)
        if ratio is not None:
            return f"queries rotate {ratio:.4g} times as fast as keys"
    return "keys rotate by other angles than queries"


def describe_other_rotation(other: FittedRotation, plain: FittedRotation) -> str:
    """Say how one rotation differs from that of a plain text."""
    if other.count != plain.count:
        return f"rotates {other.count} of {other.width} channels, a whole text {plain.count}"
    if other.layout != plain.layout:
        return f"rotates {LAYOUT_WORDS[other.layout]}, a whole text {LAYOUT_WORDS[plain.layout]}"
    bases = [find_base(x.speeds_C, x.rotated_SC) for x in (other, plain)]
    known = all(bases) and bases[0] != bases[1]
    return (
        f"rotates with base {bases[0]:,.10g}, a whole text with {bases[1]:,.10g}"
        if known
        else "rotates by other angles than a whole text"
    )


def join(sentences: Sequence[str]) -> str:
    """Return sentences joined by "and": of those that differ in their first number alone that with the largest."""
    best: dict[str, tuple[int, str]] = {}
    for text in sentences:
        number = int((re.findall(r"\d+", text) or [0])[0])
        kind = re.sub(r"\d+|keys?", "", text)
        best[kind] = max(best.get(kind, (number, text)), (number, text))
    if "sees all later tokens" in sentences:  # so many are there, in a text of two tokens
        best.pop("sees  later ", None)
    return " and ".join(text for _, text in best.values())


def describe_entry(ours_BSD: Tensor, theirs_BSD: Tensor) -> list[str]:
    """Return what differs from a reference's first states as sentences about the model; empty if it has no words."""
    ours, theirs = ours_BSD.double(), theirs_BSD.double()
    size = size_of(theirs)
    if size_of(ours - theirs) <= 1e-4 * size:
        return []
    scale = find_factor(ours - ours.mean(0), theirs - theirs.mean(0), size)
    if scale is None:
        return []
    # Tokens first: beside equal ones the vectors of position can be compared row by row, beside others their steps.
    if abs(scale - 1) < 1e-3:
        return _describe_rows(ours.mean(0), theirs.mean(0), size)
    mine, wanted = (x.mean(0) - x.mean(0)[:1] for x in (ours, theirs))
    same = is_near(mine, wanted, size)
    words = [] if same else _describe_vectors(mine, wanted, size)
    return [name_scale(scale, ours.shape[-1]), *words] if same or words else []


def name_scale(scale: float, width: int, twice: str = "the reference not") -> str:
    """Say that tokens are ``scale`` times as large as they should be; ``twice``: how it is said of one √width more."""
    root = math.sqrt(width)
    if abs(scale * root - 1) < 1e-3:
        return f"does not multiply its tokens by √{width}"
    if abs(scale / root - 1) < 1e-3:
        return f"multiplies its tokens by √{width}, {twice}"
    return f"has tokens {scale:.4g} times as large"


def _describe_rows(ours_SD: Tensor, theirs_SD: Tensor, size: float) -> list[str]:
    places = torch.arange(len(ours_SD), device=ours_SD.device)
    gap, rows = (ours_SD[:, None] - theirs_SD[None]).abs().amax(-1).min(1)
    exact = gap < 1e-3 * size
    if is_near(ours_SD, ours_SD[:1], size):
        return [f"puts every token at position {int(rows[0])}" if exact.all() else "adds no positions"]
    by = int((rows - places)[exact].mode().values) if exact.any() else 0
    kept = (places + by >= 0) & (places + by < len(places))  # what else there is may be clamped, or without a place
    if by and (exact & (rows - places == by))[kept].all():
        return [f"gives position p the reference's vector of p {'+' if by > 0 else '−'} {abs(by)}"]
    if exact.all():
        return [describe_places({"meant": places, "stood": rows})]
    return _describe_vectors(ours_SD - ours_SD[:1], theirs_SD - theirs_SD[:1], size)


def _describe_vectors(mine: Tensor, wanted: Tensor, size: float) -> list[str]:
    """Vectors of position of another size, another order of channels, another base of sinusoids; [] if of neither."""
    ratio, width = find_factor(mine, wanted, size), mine.shape[-1]
    if ratio is not None:
        return [f"has positions {ratio:.4g} times as large"]
    if width % 2:
        return []
    channels = torch.arange(width)
    pairs = torch.cat([channels[::2], channels[1::2]])
    orders = (
        (pairs, "lays sines and cosines out in halves, the reference in pairs"),
        (pairs.argsort(), "lays sines and cosines out in pairs, the reference in halves"),
        (channels.view(-1, 2).flip(1).flatten(), "has sines where the reference has cosines"),
        (channels.roll(width // 2), "has sines where the reference has cosines"),
    )
    for order, words in orders:
        if is_near(mine, wanted[:, order], size):
            return [words]
    angles = [x for x in map(find_sinusoids, (mine, wanted)) if x is not None]
    bases = [base for x in angles if (base := find_base(fit_speeds(x), x))]
    if len(bases) == 2 and bases[0] != bases[1]:
        return [f"has sinusoids of base {bases[0]:,.6g}, not {bases[1]:,.6g}"]
    return []


def find_sinusoids(rows_SD: Tensor) -> Tensor | None:
    """Return the angles [S, C] since the first row, of rows of sinusoids less that row; None if they are none.

    A sine and its cosine, less their values at 0, are the two sides of a circle.
    """
    width = rows_SD.shape[-1]
    for pairs in (torch.arange(width).view(-1, 2), torch.arange(width).view(2, -1).T) if width % 2 == 0 else ():
        sines, cosines = rows_SD[:, pairs[:, 0]], rows_SD[:, pairs[:, 1]] + 1
        if size_of(sines.square() + cosines.square() - 1) < 1e-3:
            return torch.atan2(sines, cosines)
    return None
