"""What may be relied on: for each use whether it is safe, and which of its checks were not tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clockhands.checking.checks.check import CHECKS, USES, Check
from clockhands.checking.verdict.outcome import Outcome

SHOWN_BY: Mapping[str, tuple[str, ...]] = {
    "batches": ("batch.alone",),
    "right padding": ("padding.right",),
    "left padding by the mask alone": ("padding.left.mask", "cache.left_mask"),
    "left padding with position_ids": ("padding.left.positions", "cache.padded"),
    "left-padded generate": ("generate.left_padded", "cache.left_mask", "cache.padded"),
    "cached decoding": ("cache.steps", "generate.forward"),
    "resume": ("cache.chunks", "generate.resume"),
    "rollback": ("cache.rollback", "cache.rollback_rows"),
    "saving and loading": ("load.round_trip",),
    "a changed configuration": ("config.theta", "config.partial", "config.scaling", "config.keys"),
}
"""Checks that try a use itself. Where none of them applies, the other checks can show that it is unsafe, not that it
is safe: a model without a cache that sees no future has not decoded with a cache."""
_NAMED = 2
_BY_LENGTH = ("one text after another", "cached decoding")


@dataclass(frozen=True)
class Reliance:
    """Whether a use is ``safe``: None where that was not or could not be checked.

    ``untried`` are those of its ``checks`` that did not apply, or were opt-in and not asked for; a check that only a
    program can be put to is none of them.
    ``within``: a yes was shown for texts of so many tokens; None where length plays no part.
    """

    use: str
    safe: bool | None
    checks: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    within: int | None = None

    def describe(self) -> str:
        """Return "yes" or "no", with what a yes does not cover."""
        if not self.safe:
            return "no"
        yes = f"yes, within {self.within:,} tokens" if self.within else "yes"
        if len(self.untried) > _NAMED:
            return f"{yes} ({len(self.untried)} of {len(self.checks)} checks untried)"
        return f"{yes} (untried: {', '.join(self.untried)})" if self.untried else yes


def list_reliances(outcomes: Sequence[Outcome]) -> list[Reliance]:
    """Return what the outcomes of a model say of every use.

    A use is safe only if every check of it was made, one that tries the use itself applied, and none that applied did
    otherwise than pass.
    """
    verdicts: dict[str, set[str]] = {}
    for outcome in outcomes:
        verdicts.setdefault(outcome.check.removeprefix("source."), set()).add(outcome.verdict)
    lengths = {outcome.check.removeprefix("source."): outcome.tokens for outcome in outcomes}
    reliances = [_judge_use(use, [check for check in CHECKS.values() if use in check.uses], verdicts) for use in USES]
    return [replace(reliance, within=_find_length(reliance, lengths)) for reliance in reliances]


def _find_length(reliance: Reliance, lengths: Mapping[str, int | None]) -> int | None:
    """Return the longest text that a law about length was tried on; a use is known to be safe no further."""
    if reliance.use not in _BY_LENGTH:
        return None
    return max((tokens for name in reliance.checks if (tokens := lengths.get(name))), default=None)


def _judge_use(use: str, checks: Sequence[Check], verdicts: Mapping[str, set[str]]) -> Reliance:
    names = tuple(check.name for check in checks)
    unapplied = {name for name in names if verdicts.get(name, set()) <= {"N/A"}}
    untried = tuple(check.name for check in checks if check.name in unapplied and not check.is_of_programs)
    applied = set().union(*(verdicts.get(name, set()) for name in names)) - {"N/A"}
    missed = any(check.name not in verdicts for check in checks if not (check.optional or check.shared))
    shown = set(names).intersection(SHOWN_BY.get(use, names)).difference(unapplied)
    safe = None if missed or not shown else True
    return Reliance(use, False if applied - {"PASS"} else safe, names, untried)


def describe_reliances(reliances: Sequence[Reliance]) -> str:
    """Return in words which uses are safe: the last line in the terminal."""
    known = [f"{reliance.use} {reliance.describe()}" for reliance in reliances if reliance.safe is not None]
    return "You may rely on: " + (" · ".join(known) if known else "nothing that was checked whole") + "."
