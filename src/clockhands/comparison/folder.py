"""The folder of a comparison: the plan, what each trial gave, and what is trained at the moment.

::

    plan.json        the plan with its fingerprint, and what each variant costs
    results.jsonl    a line for every trial that ended, finished or not
    running/         the run folders of trials that have not ended
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import overload

from clockhands.comparison.plan import UNHASHED, Plan
from clockhands.comparison.results import Comparison, Cost, describe_fault, read_plan_and_costs
from clockhands.comparison.trial import Trial
from clockhands.errors import DataError, UsageError
from clockhands.files import LOCK, write_text
from clockhands.findings import join_words
from clockhands.reading import parse_json, read_json, stream_lines

PLAN, RESULTS = "plan.json", "results.jsonl"
"""The files of a folder: the plan with the costs of its variants, and a line for each trial that ended."""


class ComparisonFolder:
    """A comparison on disk. One process writes; a line that a crash cut off is left out and its trial run again."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @overload
    def open(self, plan: Plan, costs: Mapping[str, Cost]) -> Comparison: ...

    @overload
    def open(self, plan: Plan, costs: None) -> Comparison | None: ...

    def open(self, plan: Plan, costs: Mapping[str, Cost] | None) -> Comparison | None:
        """Return what this plan gave so far; None where the folder is new and ``costs`` are not known yet.

        Raises UsageError if the folder holds something else or another plan, DataError if its plan cannot be read.
        """
        path = self.folder / PLAN
        if not path.exists():
            # A file, or a folder with more than the lock of this process.
            strange = self.folder.exists() and not self.folder.is_dir()
            if strange or (self.folder.is_dir() and {item.name for item in self.folder.iterdir()} - {LOCK}):
                raise UsageError(f"{self.folder} exists and holds no comparison; choose another folder")
            if costs is None:
                return None
            content = {"plan": plan.to_dict(), "costs": {name: asdict(cost) for name, cost in costs.items()}}
            write_text(path, json.dumps(content, indent=1) + "\n")
        stored = read_comparison(self.folder)
        if stored.plan.fingerprint != plan.fingerprint:
            raise UsageError(
                f"{self.folder} holds the results of another plan, which differs in "
                f"{_list_differences(stored.plan, plan)}; they are left alone, choose another folder"
            )
        every = (*stored.trials, *stored.outside)  # what another number of seeds left here is nobody's to delete
        write_text(self.folder / RESULTS, "".join(map(_write_line, every)))
        return Comparison.of(plan, stored.costs, every)

    def add(self, trial: Trial) -> None:
        """Store a trial that ended: it is on the disk before another begins."""
        with (self.folder / RESULTS).open("a", encoding="utf8") as stream:
            stream.write(_write_line(trial))
            stream.flush()
            os.fsync(stream.fileno())


def read_comparison(folder: str | Path) -> Comparison:
    """Return the comparison in a folder, as far as it has run. Raises DataError if there is none."""
    folder = Path(folder)
    try:
        plan, costs = read_plan_and_costs(read_json(folder / PLAN, DataError))
        return Comparison.of(plan, costs, _read_trials(folder / RESULTS))
    except (LookupError, TypeError, ValueError, DataError, UsageError) as fault:
        raise DataError(f"{folder} holds no comparison that can be read: {describe_fault(fault)}") from fault


def _read_trials(path: Path) -> list[Trial]:
    """Read the trials in a file; what is no JSON is a line that a crash cut off."""
    trials = []
    for number, line in enumerate(stream_lines(path) if path.is_file() else (), 1):
        try:
            written = parse_json(line)
        except ValueError:
            continue
        try:
            trials.append(Trial.from_dict(written))
        except ValueError as fault:
            raise ValueError(f"line {number} of {path.name} is no trial: {fault}") from fault
    return trials


def _write_line(trial: Trial) -> str:
    """Return a trial as one line of JSON."""
    return json.dumps(trial.to_dict()) + "\n"


def _list_differences(ours: Plan, theirs: Plan) -> str:
    """Name the fields in which two plans of different fingerprints differ."""
    mine, other = ours.to_dict(), theirs.to_dict()
    keys = [key for key in dict.fromkeys([*mine, *other]) if key not in UNHASHED]
    return join_words(key for key in keys if mine.get(key) != other.get(key))
