"""What schemes that stand side by side promise together, and which of them cannot stand so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from clockhands.schemes.scheme import Declares, Scheme

__all__ = ["combine_declarations", "find_conflicts"]


def combine_declarations(parts: Sequence[Scheme]) -> Declares:
    """Return what all parts promise together.

    Their axes have been found to agree (``find_conflicts``). Where one part refuses positions from some length on, all
    do; where one clamps, another may go on, so that nothing is declared of the length.
    """
    promises = [part.declares for part in parts]
    lengths = [
        promise.max_length for promise in promises if promise.max_length is not None and promise.beyond == "raise"
    ]
    changing = [promise.steady_length for promise in promises if promise.depends_on_length]
    refuses = [promise for promise in promises if promise.beyond == "raise"]
    if len(promises) == 1:
        return promises[0]
    return Declares(
        translation_invariant=all(promise.translation_invariant for promise in promises),
        causal_only=any(promise.causal_only for promise in promises),
        max_length=min(lengths, default=None),
        beyond="raise" if refuses else "extrapolate",
        depends_on_length=bool(changing),
        steady_length=min(changing, default=0),
        cache="raw" if any(promise.cache == "raw" for promise in promises) else "rotated",
        axes=next((promise.axes for promise in promises if promise.axes is not None), None),
        real_valued=all(promise.real_valued for promise in promises),
        stochastic=any(promise.stochastic for promise in promises),
    )


def find_conflicts(parts: Sequence[Scheme]) -> list[str]:
    """Return why parts cannot stand side by side, one sentence for each pair that cannot; empty if all can."""
    if not parts:
        return ["a composition of no scheme does nothing; name one or more, or take the scheme 'none'"]
    return [fault for first, second in combinations(parts, 2) for fault in _find_conflict(first, second)]


def _find_conflict(first: Scheme, second: Scheme) -> list[str]:
    names = f"{_name(first)} and {_name(second)}"
    hooks = first.active_hooks() & second.active_hooks()
    faults = []
    if "rotate" in hooks and not (first.scales_queries or second.scales_queries):
        faults.append(f"{names} both rotate queries and keys, and the second would rotate what the first has rotated")
    if "weigh" in hooks:
        faults.append(f"{names} both take the place of the softmax")
    if "locate" in hooks:
        faults.append(f"{names} both place tokens, and a token stands in one place")
    for reader, rotating in ((first, second), (second, first)):
        if reader.reads_heads and "rotate" in rotating.active_hooks() and not rotating.scales_queries:
            faults.append(
                f"{_name(reader)} compares queries and keys with vectors of its own, and {_name(rotating)} would have "
                f"rotated them before"
            )
    axes = {scheme.declares.axes for scheme in (first, second)} - {None}
    if len(axes) > 1:
        counts = " and ".join(str(scheme.declares.axes) for scheme in (first, second))
        faults.append(f"{names} read positions of {counts} coordinates")
    usual = Scheme.scale(first, 64)
    if usual not in (first.scale(64), second.scale(64)) and first.scale(64) != second.scale(64):
        faults.append(f"{names} each scale q·k by a factor of their own")
    return faults


def _name(scheme: Scheme) -> str:
    return type(scheme).__name__
