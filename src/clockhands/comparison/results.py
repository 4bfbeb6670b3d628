"""A comparison: a plan with the trials of it that ended, as one JSON document, or as a folder.

::

    plan.json        the plan with its fingerprint, and what each variant costs
    results.jsonl    a line for every trial that ended, finished or not
    running/         the run folders of trials that have not ended
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from clockhands import __version__
from clockhands.comparison.plan import UNHASHED, Plan
from clockhands.comparison.trial import Status, Trial, validate
from clockhands.errors import DataError, UsageError
from clockhands.files import LOCK, write_text
from clockhands.findings import join_words
from clockhands.findings.csv_text import write_csv
from clockhands.reading import parse_json, read_json, stream_lines

PLAN, RESULTS = "plan.json", "results.jsonl"
"""The files of a folder: the plan with the costs of its variants, and a line for each trial that ended."""


@dataclass(frozen=True)
class Cost:
    """What one variant costs: its parameters, the steps it gets, floating-point operations and seconds of one step.

    ``changes`` are settings that matching adds to the variant's own.
    """

    parameters: int
    steps: int
    flops: int
    seconds: float
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """A plan and the trials of it that ended, one of each variant and seed. ``costs``: by variant.

    ``outside``: trials of seeds or variants that the plan does not have. They are kept, and count for nothing.
    """

    plan: Plan
    costs: Mapping[str, Cost]
    trials: tuple[Trial, ...] = ()
    outside: tuple[Trial, ...] = ()

    @classmethod
    def of(cls, plan: Plan, costs: Mapping[str, Cost], trials: Iterable[Trial]) -> Comparison:
        """Return the comparison of a plan with these trials, the last of each variant and seed."""
        last, planned = {trial.key: trial for trial in trials}, {*plan.trials}
        inside = tuple(trial for key, trial in last.items() if key in planned)
        return cls(plan, costs, inside, tuple(trial for key, trial in last.items() if key not in planned))

    def get_trials(self, variant: str, status: Status = "finished") -> list[Trial]:
        """Return the trials of a variant with this status, by seed."""
        chosen = [trial for trial in self.trials if trial.variant == variant and trial.status == status]
        return sorted(chosen, key=lambda trial: trial.seed)

    def scored_by(self, metric: str) -> Comparison:
        """Return the same trials as judged by another metric of their items, with the usual margin of that metric.

        Raises UsageError where a trial has no such items.
        """
        if any(metric not in trial.other_items for trial in self.trials if trial.finished):
            raise UsageError(f"the trials have no {metric} of their items; train them with the metric bleu")
        plan = replace(self.plan, metric=metric, margin=None, learned=None)
        trials = (replace(trial, items=trial.other_items.get(metric), other_items={}) for trial in self.trials)
        return replace(self, plan=plan, trials=tuple(trials))

    @property
    def other_metrics(self) -> tuple[str, ...]:
        """Further metrics that every finished trial has of its items."""
        names = [tuple(trial.other_items) for trial in self.trials if trial.finished]
        return names[0] if names and len(set(names)) == 1 else ()

    @property
    def missing(self) -> list[tuple[str, int]]:
        """Variant and seed of the plan's trials that have not ended."""
        ended = {trial.key for trial in self.trials}
        return [key for key in self.plan.trials if key not in ended]

    @property
    def signature(self) -> str:
        """What goes with a number that is quoted elsewhere."""
        kind, amount = self.plan.budget
        corpus = self.plan.recipe.corpus
        return (
            f"compare|{corpus}|{kind}:{amount:g}|match:{self.plan.match}|seeds:{len(self.plan.seeds)}"
            f"|plan:{self.plan.fingerprint}|v:{__version__}"
        )

    def to_json(self) -> str:
        """Return the whole as one document, a line a trial; ``from_json`` reads it back."""
        content = {
            "plan": self.plan.to_dict(),
            "costs": {name: asdict(cost) for name, cost in self.costs.items()},
            "signature": self.signature,
        }
        every = (*self.trials, *self.outside)
        lines = ",\n".join(json.dumps(trial.to_dict(), ensure_ascii=False) for trial in every)
        return json.dumps(content, ensure_ascii=False, indent=1)[:-2] + f',\n "trials": [\n{lines}\n]}}\n'

    @classmethod
    def from_json(cls, text: str) -> Comparison:
        """Return the comparison that ``to_json`` wrote. Raises DataError for what is no such document."""
        try:
            raw = parse_json(text)
            plan, costs = _read_plan_and_costs(raw)
            return cls.of(plan, costs, map(Trial.from_dict, raw["trials"]))
        except (LookupError, TypeError, ValueError, UsageError) as fault:
            raise DataError(f"these are no results of a comparison: {_describe_fault(fault)}") from fault


def _read_plan_and_costs(written: Any) -> tuple[Plan, dict[str, Cost]]:
    """Return the plan that a document holds, with the costs of its variants.

    Raises ValueError, LookupError or UsageError for what holds none.
    """
    content = validate(dict[str, Any], written)
    plan, costs = Plan.from_dict(content["plan"]), validate(dict[str, Cost], content["costs"])
    if missing := [variant.name for variant in plan.variants if variant.name not in costs]:
        raise ValueError(f"costs has nothing of {', '.join(map(repr, missing))}")
    return plan, costs


def _describe_fault(fault: Exception) -> str:
    """Return what is wrong with a document, in one line; of a key that is missing its name."""
    return f"{fault} is missing" if isinstance(fault, KeyError) else " ".join(str(fault).split())


class ComparisonFolder:
    """A comparison on disk. One process writes; a line that a crash cut off is left out and its trial run again."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def open(self, plan: Plan, costs: Mapping[str, Cost] | Callable[[], Mapping[str, Cost]]) -> Comparison:
        """Return what this plan gave so far. ``costs``, or what measures them, are for a new folder.

        Raises UsageError if the folder holds something else or another plan, DataError if its plan cannot be read.
        """
        path = self.folder / PLAN
        if not path.exists():
            # A file, or a folder with more than the lock of this process.
            strange = self.folder.exists() and not self.folder.is_dir()
            if strange or (self.folder.is_dir() and {item.name for item in self.folder.iterdir()} - {LOCK}):
                raise UsageError(f"{self.folder} exists and holds no comparison; choose another folder")
            known = costs() if callable(costs) else costs
            content = {"plan": plan.to_dict(), "costs": {name: asdict(cost) for name, cost in known.items()}}
            write_text(path, json.dumps(content, indent=1) + "\n")
        stored = read_comparison(self.folder)
        if stored.plan.fingerprint != plan.fingerprint:
            mine, other = stored.plan.to_dict(), plan.to_dict()
            differing = join_words(key for key in mine if key not in UNHASHED and mine[key] != other[key])
            raise UsageError(
                f"{self.folder} holds the results of another plan, which differs in {differing}; they are left alone, "
                "choose another folder"
            )
        every = (*stored.trials, *stored.outside)  # what another number of seeds left here is nobody's to delete
        write_text(self.folder / RESULTS, "".join(json.dumps(trial.to_dict()) + "\n" for trial in every))
        return Comparison.of(plan, stored.costs, every)

    def add(self, trial: Trial) -> None:
        """Store a trial that ended: it is on the disk before another begins."""
        with (self.folder / RESULTS).open("a", encoding="utf8") as stream:
            stream.write(json.dumps(trial.to_dict()) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def read_comparison(folder: str | Path) -> Comparison:
    """Return the comparison in a folder, as far as it has run. Raises DataError if there is none."""
    folder = Path(folder)
    try:
        plan, costs = _read_plan_and_costs(read_json(folder / PLAN, DataError))
        return Comparison.of(plan, costs, _read_trials(folder / RESULTS))
    except (LookupError, TypeError, ValueError, DataError, UsageError) as fault:
        raise DataError(f"{folder} holds no comparison that can be read: {_describe_fault(fault)}") from fault


def _read_trials(path: Path) -> list[Trial]:
    """Read the trials in a file; what is no JSON is a line that a crash cut off."""
    trials = []
    for number, line in enumerate(stream_lines(path) if os.path.lexists(path) else (), 1):
        try:
            written = parse_json(line)
        except ValueError:
            continue
        try:
            trials.append(Trial.from_dict(written))
        except ValueError as fault:
            raise ValueError(f"line {number} of {path.name} is no trial: {fault}") from fault
    return trials


def write_trials(comparison: Comparison) -> str:
    """Return every trial, one a line: for those who want to compute themselves."""
    names = list(dict.fromkeys(name for trial in comparison.trials for name in trial.scores))
    columns = ["variant", "seed", "status", "steps", "seconds", "parameters", *names, "error"]
    rows = []
    for trial in comparison.trials:
        scores = [trial.scores.get(name, "") for name in names]
        facts = (trial.steps, trial.seconds, trial.parameters)  # None is written as an empty cell
        rows.append([*trial.key, trial.status, *facts, *scores, trial.error])
    return write_csv(columns, rows, "\n")
