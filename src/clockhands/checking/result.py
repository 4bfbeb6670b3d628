"""The outcomes of all checks on one model: what may be relied on, findings, JSON, and what became worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from clockhands.checking.checks.check import CHECKS, TOLERANCE, USES, Check
from clockhands.checking.verdict.outcome import Outcome, describe
from clockhands.errors import DataError
from clockhands.findings import Finding, Findings, Light, Reference, Table
from clockhands.reading import parse_json, read_document, stream_lines

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
    reliances = []
    for use in USES:
        checks = [check for check in CHECKS.values() if use in check.uses]
        names = tuple(check.name for check in checks)
        unapplied = {name for name in names if verdicts.get(name, set()) <= {"N/A"}}
        untried = tuple(check.name for check in checks if check.name in unapplied and not check.is_of_programs)
        applied = set().union(*(verdicts.get(name, set()) for name in names)) - {"N/A"}
        missed = any(check.name not in verdicts for check in checks if not (check.optional or check.shared))
        shown = set(names).intersection(SHOWN_BY.get(use, names)).difference(unapplied)
        safe = False if applied - {"PASS"} else None if missed or not shown else True
        # A use is known to be safe no further than the longest text that a law about length was tried on.
        tried = [tokens for name in names if (tokens := lengths.get(name))] if use in _BY_LENGTH else []
        reliances.append(Reliance(use, safe, names, untried, max(tried, default=None)))
    return reliances


def describe_reliances(reliances: Sequence[Reliance]) -> str:
    """Return in words which uses are safe: the last line in the terminal."""
    known = [f"{reliance.use} {reliance.describe()}" for reliance in reliances if reliance.safe is not None]
    return "You may rely on: " + (" · ".join(known) if known else "nothing that was checked whole") + "."


SCHEMA = 2
_READ = (1, 2)  # 2 added the verdict LIBRARY
ORDER = ("FAIL", "LIBRARY", "WARN", "PROPERTY", "PASS", "N/A")
"""The verdicts, the worst first."""
_LIGHTS: dict[str, Light] = {
    "PASS": "good",
    "FAIL": "bad",
    "WARN": "warn",
    "LIBRARY": "warn",
    "PROPERTY": "info",
    "N/A": "skip",
}


@dataclass(frozen=True)
class Result:
    """The outcomes of all checks on one model. ``fault`` is set where the model could not be built at all."""

    model: str
    task: str
    scheme: str
    outcomes: tuple[Outcome, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    fault: str = ""
    command: str = ""

    @property
    def failed(self) -> bool:
        """Whether the model or its library has a fault, or it could not be judged at all."""
        return bool(self.fault) or any(outcome.verdict in ("FAIL", "LIBRARY") for outcome in self.outcomes)

    @property
    def failed_itself(self) -> bool:
        """Whether the model has a fault of its own, or could not be judged at all."""
        return bool(self.fault) or any(outcome.verdict == "FAIL" for outcome in self.outcomes)

    def count(self, verdict: str) -> int:
        """Return how many checks have this verdict."""
        return sum(outcome.verdict == verdict for outcome in self.outcomes)

    def rely(self) -> dict[str, bool | None]:
        """Return for every use whether it is safe; None where that was not or could not be checked."""
        return {reliance.use: reliance.safe for reliance in list_reliances(self.outcomes)}

    def reliance(self) -> str:
        """Return in words which uses are safe, and what was not tried of them: the last line in the terminal."""
        return describe_reliances(list_reliances(self.outcomes))

    def summary(self, own: bool = False) -> str:
        """Return in words what is the model's own fault and what its library's: the first line in the terminal.

        A use that a fault of the library makes unsafe is no PASS, unless ``own`` asks for the model's own faults alone.
        """
        if self.fault:
            return f"FAIL  {self.model}: {self.fault}"
        failed = self.count("FAIL")
        shared = len({outcome.cause or outcome.check for outcome in self.outcomes if outcome.verdict == "LIBRARY"})
        faults = f"{failed} check{' fails' if failed == 1 else 's fail'}" if failed else "no fault of its own"
        touch = "fault of its library touches" if shared == 1 else "faults of its library touch"
        noted = f"; {shared} {touch} it" if shared else ""
        unsafe = [reliance.use for reliance in list_reliances(self.outcomes) if reliance.safe is False]
        ending = f"; not safe: {', '.join(unsafe)}" if unsafe else ""
        bad = self.failed_itself if own else self.failed
        return f"{'FAIL' if bad else 'PASS'}  {self.model}: {faults}{noted}{ending}"

    def as_dict(self) -> dict[str, Any]:
        """Return the stable JSON form."""
        facts = {"schema": SCHEMA, "model": self.model, "kind": self.task, "scheme": self.scheme}
        facts |= {"versions": dict(self.versions), "seconds": self.seconds, "fault": self.fault, "rely": self.rely()}
        untried = {reliance.use: list(reliance.untried) for reliance in list_reliances(self.outcomes)}
        return {**facts, "untried": untried, "outcomes": [outcome.as_dict() for outcome in self.outcomes]}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Result:
        """Read ``as_dict``. Raises DataError if it is something else."""
        try:
            if raw["schema"] not in _READ:
                raise DataError(f"the checks were written in schema {raw['schema']}, this is {SCHEMA}: run them again")
            outcomes = tuple(Outcome(**entry) for entry in raw["outcomes"])
            names = ("model", "scheme", "versions", "seconds", "fault")
            texts = [raw[name] for name in ("model", "kind", "scheme", "fault")]
            texts += [text for entry in outcomes for text in (entry.check, entry.verdict, entry.note, entry.cause)]
            if not all(isinstance(text, str) for text in texts) or not isinstance(raw["versions"], dict):
                raise TypeError("its names are no texts")
            if unknown := {entry.verdict for entry in outcomes} - set(ORDER):
                raise TypeError(f"there is no verdict {', '.join(sorted(unknown))}")
            return cls(task=raw["kind"], outcomes=outcomes, **{name: raw[name] for name in names})
        except (KeyError, TypeError) as fault:
            raise DataError(f"this is no result of clockhands check: {type(fault).__name__} {fault}") from fault

    def findings(self) -> Findings:
        """Return the result as findings, failures first, for pages and notebooks."""
        ranked = sorted(self.outcomes, key=lambda outcome: ORDER.index(outcome.verdict))
        facts = {
            "model": self.model,
            "encoding": self.scheme,
            **self.versions,
            "verdict": self.summary(),
            "reliance": self.reliance(),
            "effects": "in standard deviations of the logits, shortened to std",
        }
        known = [reliance for reliance in list_reliances(self.outcomes) if reliance.safe is not None]
        rows = [(use.use, "yes" if use.safe else "no", ", ".join(use.untried)) for use in known]
        relied = Finding(
            "check.rely",
            "What may you rely on?",
            self.fault or self.reliance(),
            light="bad" if self.failed else "good",
            table=Table.of(("use", "safe", "untried checks"), rows),
            details={"opening": f"{self.summary()}."},
        )
        title = f"Does {self.model} handle position correctly?"
        counts = ",".join(f"{verdict}:{self.count(verdict)}" for verdict in _LIGHTS)
        items = (relied, *(self._finding(outcome) for outcome in ranked))
        return Findings(title, items, facts, f"check|{self.model}|{counts}", self.command)

    def _finding(self, outcome: Outcome) -> Finding:
        name = outcome.check.removeprefix("source.")
        check: Check | None = CHECKS.find(name)
        # "No change", with what rounding may do where something else was found. A check that passed has no such
        # interval: what it found is what it looked for, be it a change or none.
        differs = outcome.verdict not in ("PASS", "N/A")
        interval = (0.0, max(TOLERANCE, outcome.floor or 0.0)) if differs else None
        return Finding(
            f"check.{outcome.check}",
            check.asserts if check else outcome.check,
            describe(outcome),
            outcome.size if outcome.size is None or outcome.size < float("inf") else None,
            "std",
            references=() if outcome.size is None else (Reference("no change", 0.0, interval),),
            light=_LIGHTS[outcome.verdict],
            method=f"Catches: {check.catches}." if check else "",
            command=f"{self.command} --only {name}" if self.command else "",
            details={key: value for key, value in outcome.as_dict().items() if value not in ("", None)},
        )


def versions() -> dict[str, str]:
    """Return the versions of what was checked; read from the packages' metadata, so that nothing heavy is imported."""
    return {name: metadata.version(name) for name in ("transformers", "torch", "clockhands")}


def changes(before: Sequence[Result], after: Sequence[Result]) -> list[str]:
    """Return one line for each check that became worse between two runs; a new check counts if it fails.

    Worse is also what was safe and is not judged any more, a model that cannot be built any more, and a baseline that
    says nothing about the model.
    """
    old, lines = {result.model: result for result in before}, []
    for result in after:
        was = old.get(result.model)
        if was is None:
            lines.append(f"{result.model}: the baseline is about {', '.join(sorted(old)[:3]) or 'nothing'}")
            continue
        if result.fault and not was.fault:
            lines.append(f"{result.model}: {result.fault}")
        verdicts = {outcome.check: outcome.verdict for outcome in was.outcomes}
        for outcome in result.outcomes:
            earlier, now = verdicts.get(outcome.check), outcome.verdict
            if earlier is None and now == "FAIL" and not was.fault:
                lines.append(f"{result.model} {outcome.check}: new, FAIL")
            elif earlier is not None and (_RANK[now] > _RANK[earlier] or (earlier, now) == ("PASS", "N/A")):
                lines.append(f"{result.model} {outcome.check}: {earlier} became {now}")
    return lines


_RANK = {"PASS": 0, "N/A": 0, "PROPERTY": 1, "WARN": 2, "LIBRARY": 2, "FAIL": 3}


def load(path: str | Path) -> list[Result]:
    """Read results that ``--json`` wrote (one, or a list), or a sweep (``results.jsonl``, one a line).

    Raises DataError if the file is missing or something else.
    """
    try:
        if Path(path).suffix == ".jsonl":
            raw: Any = [parse_json(line) for line in stream_lines(path) if line.strip()]
        else:
            raw = parse_json(read_document(path))
        return [Result.from_dict(entry) for entry in (raw if isinstance(raw, list) else [raw])]
    except (ValueError, DataError) as fault:  # ValueError: no JSON
        raise DataError(f"cannot read check results from {path}: {fault}") from fault
