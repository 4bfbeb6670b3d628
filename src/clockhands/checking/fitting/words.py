"""Say where tokens stand, what they see, and what enters the first block, otherwise than meant."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import torch
from torch import Tensor

from clockhands.checking.fitting.rotation import Rotation, find_base, fit_speeds, same_angles

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


def _same(x: Tensor, y: Tensor | None) -> bool:
    return y is not None and bool(((x.double() - y.double()).abs() < _SAME).all())


def describe_places(standing: Standing) -> str:
    """Return where the tokens stand, as what is said of them; empty if all stand where they are meant to."""
    meant, stood = standing["meant"].double(), standing["stood"].double()
    gap = stood - meant
    if _same(meant, stood):
        return ""
    if _same(stood, standing.get("default")):
        return "stands where it would without them"
    if (len(stood) > 1 and _same(stood, standing.get("index"))) or _same(stood, 0 * stood):
        return "begins at position 0"
    if _same(gap, gap[:1]):
        return f"stands {_number(abs(gap[0]))} too {'late' if gap[0] > 0 else 'early'}"
    return _describe_counted(standing) or _describe_changed(meant, stood) or _list(meant, stood)


def _describe_counted(standing: Standing) -> str:
    """Of places that were counted in another way."""
    meant, stood = standing["meant"], standing["stood"]
    if _same(stood, -meant):
        return "is rotated the other way"
    if "column" not in standing:
        return ""
    counted_twice = "added to the positions that are given" if "default" in standing else "counted twice"
    counted = {
        "stands where the first row does": standing["first"],
        "stands where it does with the pads counted": standing["column"],
        "stands where the longest row does": standing["longest"],
        "begins at position 0, pads and all": standing["column"] - standing["past"],
        f"stands too late by the length of the cache, which is {counted_twice}": meant + standing["past"],
        "counts positions from the end of the text": meant + standing["length"] - standing["total"],
        "divides positions by the length of the text": meant * standing["length"] / standing["total"],
    }
    return next((words for words, places in counted.items() if _same(stood, places)), "")


def _describe_changed(meant: Tensor, stood: Tensor) -> str:
    """Of places that are the meant ones, held, begun again, rounded or stretched."""
    last, top = float(stood.max()), float(meant.max())
    for dtype, words in _ROUNDED:
        if _same(stood, meant.long().to(dtype).double()):
            return f"has positions rounded to {words}"
    if _same(stood, stood[:1]):
        return f"stands at position {_number(last)} throughout"
    if last < top and _same(stood, meant.clamp(max=last)):
        return f"holds positions at {_number(last)}"
    least = float(stood.min())
    if least > float(meant.min()) and _same(stood, meant.clamp(min=least)):
        return f"stands at {_number(least)} where it should stand before"
    for size in range(2, 4097):
        if size <= top and _same(stood, meant % size):
            return f"begins positions anew after {size - 1}"
    for words, places in (("half its position", meant // 2), ("a quarter of its position", meant // 4)):
        if _same(stood, places):
            return f"stands at {words}, rounded down"
    some = meant.abs() > 0.5
    ratios = stood[some] / meant[some]
    if len(ratios) and bool(((ratios - ratios[0]).abs() < 2e-3 * ratios[0].abs()).all()):
        known = {2.0: "counts each position twice", 0.5: "stands at half its position"}
        return known.get(round(float(ratios[0]), 3), f"stands at {float(ratios[0]):.4g} times its position")
    gap = stood - meant
    moved = gap.abs() > _SAME
    if _same(gap[moved], gap[moved][:1]):
        return f"stands {_number(abs(gap[moved][0]))} too {'late' if gap[moved][0] > 0 else 'early'} in part"
    return ""


def _list(meant: Tensor, stood: Tensor) -> str:
    at, wanted = (", ".join(_number(x) for x in places[:5]) for places in (stood, meant))
    return f"stands at {at} ..., not at {wanted} ..."


def _number(value: Tensor | float) -> str:
    value = float(value)
    return f"{value:.0f}" if abs(value - round(value)) < 1e-6 else f"{value:.4g}"


def describe_seen(
    counts: Tensor, meant: Tensor, own: Tensor, real: Tensor, documents: bool, orphans: int, origin: str
) -> list[str]:
    """Say which keys queries see and should not, and the other way round, of M queries and T columns.

    ``counts_MT`` is how often each sees a key of each column, ``own_M`` its own column, ``real_MT`` false for pads;
    ``orphans`` is the most keys that one sees and that are none of its text's, and ``origin`` whose they are.
    """
    columns = torch.arange(counts.shape[1], device=counts.device)[None]
    seen, said = counts > 0, []
    extra, lost = seen & ~meant, meant & ~seen
    later, before = columns > own[:, None], columns < own[:, None]
    if n := most(extra & ~real & ~later):
        every = most(~real & before)
        said.append("reads the pads" if n == every else f"reads {n} of the pads")
    if n := most(extra & real & later):
        said.append("sees all later tokens" if n >= most(later & real) > 1 else f"sees {_keys(n, 'later ')}")
    if n := most(extra & real & before):
        said.append(
            f"sees the {_keys(n, '')} of another document" if documents else f"sees {_keys(n, '')} outside its window"
        )
    if n := most(lost):
        it = lost & (columns == own[:, None])
        if int(lost.sum()) == int(it.sum()):
            part = "" if 2 * int(it.any(1).sum()) >= len(it) else f" at {int(it.sum())} of {len(it)} places"
            said.append(f"does not see itself{part}")
        elif n == most(meant & before):
            said.append(f"misses every key that was read before it, up to {n}")
        else:
            oldest = bool((lost <= (lost.long().cumsum(1) == (meant | lost).long().cumsum(1))).all())
            said.append(f"misses {_keys(n, '')}" + (", the oldest" if oldest else ""))
    if n := most(counts > 1):
        said.append(f"sees {_keys(n, '')} more than once")
    if orphans:
        said.append(f"sees {_keys(orphans, '')} {origin}")
    return said


def most(cells: Tensor) -> int:
    """Return the most cells that are true in one row."""
    return int(cells.sum(1).max()) if len(cells) else 0


def _keys(count: int, kind: str) -> str:
    return f"{count} {kind}key{'s' * (count != 1)}"


def describe_rotations(queries: Rotation | None, keys: Rotation | None) -> str:
    """Say how the keys of one attention rotate otherwise than its queries; empty if alike, or if that is not known."""
    if queries is None or keys is None:
        return ""
    if not queries.count or not keys.count:
        return "" if queries.count == keys.count else f"{'keys' if queries.count else 'queries'} do not rotate"
    wrong = [name for name, side in (("queries", queries), ("keys", keys)) if not side.is_rotation]
    if wrong:
        side = queries if wrong[0] == "queries" else keys
        one_sign = same_angles(side.first_SC, -side.second_SC)
        said = "the sign of one member of each pair wrong" if one_sign else "members of a pair rotated apart"
        return f"{' and '.join(wrong)} have {said}, which is no rotation"
    if same_angles(queries.first_SC, -keys.first_SC):
        return "keys rotate the other way than queries"
    if same_angles(queries.first_SC, keys.first_SC):
        return ""
    if queries.speeds_C.shape == keys.speeds_C.shape and bool((keys.speeds_C != 0).all()):
        ratios = queries.speeds_C / keys.speeds_C
        if bool(((ratios - ratios[0]).abs() < 1e-3 * ratios[0].abs()).all()):
            return f"queries rotate {float(ratios[0]):.4g} times as fast as keys"
    return "keys rotate by other angles than queries"


def join(sentences: Sequence[str]) -> str:
    """Return sentences joined by "and": of those that differ in their first number alone that with the largest."""
    best: dict[str, tuple[int, str]] = {}
    for text in sentences:
        number = int((re.findall(r"\d+", text) or [0])[0])
        kind = re.sub(r"\d+|keys?", "", text)
        best[kind] = max(best.get(kind, (number, text)), (number, text))
    return " and ".join(text for _, text in best.values())


_TOLERANCE = 1e-3


def describe_entry(ours_BSD: Tensor, theirs_BSD: Tensor) -> list[str]:
    """Return what differs from a reference's first states as sentences about the model; empty if it has no words."""
    ours, theirs = ours_BSD.double(), theirs_BSD.double()
    if float((ours - theirs).abs().max()) <= 1e-4 * float(theirs.abs().max()):
        return []
    mine, wanted = ours - ours.mean(0), theirs - theirs.mean(0)
    scale, size = float((mine * wanted).sum() / wanted.square().sum()), float(theirs.abs().max())
    if not _near(mine, scale * wanted, size):
        return []
    if abs(scale - 1) < 1e-3:
        return _describe_rows(ours.mean(0), theirs.mean(0), size)
    mine, wanted = ((x - x[:, :1]).mean(0) for x in (ours, theirs))  # the tokens, of another size, drop out
    rows = [] if _near(mine, wanted, size) else _describe_vectors(mine, wanted, size)
    return [] if rows is None else [name_scale(scale, ours.shape[-1]), *rows]


def _near(ours: Tensor, other: Tensor, size: float) -> bool:
    return float((ours - other).abs().max()) < _TOLERANCE * size


def name_scale(scale: float, width: int, twice: str = "the reference not") -> str:
    """Say that tokens are ``scale`` times as large as they should be; ``twice``: how it is said of one √width more."""
    root = math.sqrt(width)
    if abs(scale * root - 1) < 1e-3:
        return f"does not multiply its tokens by √{width}"
    if abs(scale / root - 1) < 1e-3:
        return f"multiplies its tokens by √{width}, {twice}"
    return f"has tokens {scale:.4g} times as large"


def _describe_rows(ours_SD: Tensor, theirs_SD: Tensor, size: float) -> list[str]:
    """Compare the vectors of position, beside tokens that are the same."""
    places = torch.arange(len(ours_SD), device=ours_SD.device)
    gaps = (ours_SD[:, None] - theirs_SD[None]).abs().amax(-1)
    rows, exact = gaps.argmin(1), gaps.amin(1) < _TOLERANCE * size
    if _near(ours_SD, ours_SD[:1].expand_as(ours_SD), size):
        return [f"puts every token at position {int(rows[0])}" if exact.all() else "adds no positions"]
    by = int((rows - places)[exact].mode().values) if exact.any() else 0
    kept = (places + by >= 0) & (
        places + by < len(places)
    )  # what else there is may be clamped, or rows without a place
    if by and bool((exact & (rows - places == by))[kept].all()):
        return [f"gives position p the reference's vector of p {'+' if by > 0 else '−'} {abs(by)}"]
    if exact.all():
        return [describe_places({"meant": places, "stood": rows})]
    return _describe_vectors(ours_SD - ours_SD[:1], theirs_SD - theirs_SD[:1], size) or []


def _describe_vectors(mine: Tensor, wanted: Tensor, size: float) -> list[str] | None:
    """Other vectors of position: another size, another order of channels, another base of sinusoids."""
    ratio = float((mine * wanted).sum() / (wanted * wanted).sum().clamp(min=1e-12))
    if _near(mine, ratio * wanted, size):
        return [f"has positions {ratio:.4g} times as large"]
    width = mine.shape[-1]
    pairs = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
    for order, words in (
        (pairs, "halves, the reference in pairs"),
        (pairs.argsort(), "pairs, the reference in halves"),
    ):
        if _near(mine, wanted[:, order], size):
            return [f"lays sines and cosines out in {words}"]
    swapped = torch.arange(width).view(-1, 2).flip(1).flatten()
    if _near(mine, wanted[:, swapped], size) or _near(mine, wanted.roll(width // 2, -1), size):
        return ["has sines where the reference has cosines"]
    bases = [_find_sinusoid_base(rows) for rows in (mine, wanted)]
    if bases[0] and bases[1] and bases[0] != bases[1]:
        return [f"has sinusoids of base {bases[0]:,.6g}, not {bases[1]:,.6g}"]
    return None


def _find_sinusoid_base(rows_SD: Tensor) -> float | None:
    angles = find_sinusoids(rows_SD)
    return None if angles is None else find_base(fit_speeds(angles), angles)


def find_sinusoids(rows_SD: Tensor) -> Tensor | None:
    """Return the angles [S, C] since the first row, of rows of sinusoids less that row; None if they are none.

    A sine and its cosine, less their values at 0, are the two sides of a circle.
    """
    width = rows_SD.shape[-1]
    for pairs in (torch.arange(width).view(-1, 2), torch.arange(width).view(2, -1).T) if width % 2 == 0 else ():
        sines, cosines = rows_SD[:, pairs[:, 0]], rows_SD[:, pairs[:, 1]] + 1
        if float((sines.square() + cosines.square() - 1).abs().max()) < 1e-3:
            return torch.atan2(sines, cosines)
    return None
