"""Rules of schemes side by side: what they promise together, which conflict, and which act as one scheme."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from clockhands.schemes.distance import DistanceBias, DistanceBiasSum
from clockhands.schemes.scheme import Declares, Scheme

AFTER_ROTATE = frozenset({"bias", "logits", "weigh", "values"})
"""The hooks that act between ``rotate`` and the output: kernels differ by them. ``rotate_back`` is called after all."""


def combine_declarations(parts: Sequence[Scheme]) -> Declares:
    """Return what all parts promise together.

    Their axes have been found to agree (``find_conflicts``): positions have as many coordinates as any part reads, or
    more if every part that reads some takes more. Where a part places tokens they do not have more: both kinds of
    coordinates stand in one tensor, and their numbers must be known. Where one part refuses positions from some length
    on, all do; where one clamps, another may go on, so that nothing is declared of the length.
    """
    promises = [part.declares for part in parts]
    if len(promises) == 1:
        return promises[0]
    refusing = [promise for promise in promises if promise.beyond == "raise"]
    max_lengths = [promise.max_length for promise in refusing if promise.max_length is not None]
    reading = [promise for promise in promises if promise.axes is not None]
    axes = max((promise.axes or 1 for promise in reading), default=None)
    places = any("locate" in part.active_hooks() for part in parts)
    steady_lengths = [promise.steady_length for promise in promises if promise.depends_on_length]
    return Declares(
        translation_invariant=all(promise.translation_invariant for promise in promises),
        causal_only=any(promise.causal_only for promise in promises),
        max_length=min(max_lengths, default=None),
        beyond="raise" if refusing else "extrapolate",
        depends_on_length=bool(steady_lengths),
        steady_length=min(steady_lengths, default=0),
        cache="raw" if any(promise.cache == "raw" for promise in promises) else "rotated",
        axes=axes,
        more_axes=bool(reading) and not places and all(promise.more_axes for promise in reading),
        real_valued=all(promise.real_valued for promise in promises),
        stochastic=any(promise.stochastic for promise in promises),
    )


def list_schemes_of_fewer_axes(parts: Sequence[Scheme]) -> tuple[Scheme, ...]:
    """Return the parts that read fewer coordinates than positions have, and take no more: the first ones are theirs.

    So it is where another part reads a coordinate of its own behind those of the others.
    """
    axes = combine_declarations(parts).axes or 1
    return tuple(part for part in parts if (own := part.declares).axes and own.axes < axes and not own.more_axes)


def find_conflicts(parts: Sequence[Scheme]) -> list[str]:
    """Return why parts cannot stand side by side, one sentence for each pair that cannot; empty if all can."""
    if not parts:
        return ["a composition of no scheme does nothing; name one or more, or take the scheme 'none'"]
    return [fault for first, second in combinations(parts, 2) for fault in _find_conflict(first, second)]


def find_scheme_after_rotation(parts: Sequence[Scheme]) -> Scheme | None:
    """Return the one scheme that does all that parts have to do after ``rotate``; None where there is no such scheme.

    It is the only part with a hook after ``rotate``, or the sum of several biases by distance. Such a scheme reads the
    positions as they are, and so none of fewer coordinates can be it.
    """
    # Kernels ask what is left after the rotation.
    late = [part for part in parts if part.active_hooks() & AFTER_ROTATE]
    if not late or any("locate" in part.active_hooks() for part in parts):
        return None
    reading_fewer = list_schemes_of_fewer_axes(parts)
    if any(part in reading_fewer for part in late):
        return None
    if len(late) == 1:
        return late[0]
    biases = [part for part in late if isinstance(part, DistanceBias)]
    promise = combine_declarations(parts)
    on_a_line = len(biases) == len(late) and all(
        type(part).place_on_line is DistanceBias.place_on_line for part in biases
    )
    return DistanceBiasSum(biases) if on_a_line and promise.axes == 1 and not promise.more_axes else None


def _find_conflict(first: Scheme, second: Scheme) -> list[str]:
    names = f"{_name(first)} and {_name(second)}"
    hooks = first.active_hooks() & second.active_hooks()
    faults = []
    if "rotate" in hooks and not (first.scales_queries or second.scales_queries):
        faults.append(f"{names} both rotate queries and keys, and the second would rotate what the first has rotated")
    if "weigh" in hooks:
        faults.append(f"{names} both take the place of the softmax")
    for rotating_back, adding in ((first, second), (second, first)):
        if "rotate_back" in rotating_back.active_hooks() and "values" in adding.active_hooks():
            faults.append(
                f"{_name(adding)} adds vectors of its own to the output, and {_name(rotating_back)} with values = true "
                f"would rotate them back by the position of the query; leave values = true out"
            )
    if "locate" in hooks:
        faults.append(f"{names} both place tokens, and a token stands in one place")
    for reader, rotating in ((first, second), (second, first)):
        if reader.reads_heads and "rotate" in rotating.active_hooks() and not rotating.scales_queries:
            faults.append(
                f"{_name(reader)} compares queries and keys with vectors of its own, and {_name(rotating)} would have "
                f"rotated them before"
            )
    for what, ours, others in zip(("num_heads", "head_dim"), first.made_for, second.made_for, strict=True):
        if ours is not None and others is not None and ours != others:
            faults.append(f"{names} were made for other heads: {what} is {ours} and {others}")
    faults += _find_axes_conflict(first, second)
    usual = Scheme.scale(first, 64)
    if usual not in (first.scale(64), second.scale(64)) and first.scale(64) != second.scale(64):
        faults.append(f"{names} each scale q·k by a factor of their own")
    return faults


def _find_axes_conflict(first: Scheme, second: Scheme) -> list[str]:
    """Return why two parts cannot read the same positions, or nothing."""
    by_axes = sorted((first, second), key=lambda scheme: scheme.declares.axes or 0)
    fewer, more = by_axes[0].declares, by_axes[1].declares
    if fewer.axes is None or more.axes is None or fewer.axes == more.axes or fewer.more_axes:
        return []
    counts = f"{first.declares.axes} and {second.declares.axes}"
    if not more.more_axes:
        advice = "".join(f"; {scheme.axes_advice}" for scheme in (first, second) if scheme.axes_advice)
        return [f"{_name(first)} and {_name(second)} read positions of {counts} coordinates{advice}"]
    if more.axes > fewer.axes + 1:
        return [
            f"the axis of {_name(by_axes[1])} is {more.axes - 1}, counted from 0; beside {_name(by_axes[0])}, which "
            f"reads {fewer.axes}, it is at most {fewer.axes}: then it is a coordinate of its own behind them"
        ]
    return []


def _name(scheme: Scheme) -> str:
    return type(scheme).__name__
