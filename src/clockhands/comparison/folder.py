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
from dataclasses import replace
from pathlib import Path
from typing import overload

from clockhands.comparison.plan import UNHASHED, Plan
from clockhands.comparison.results import Comparison, Cost, read_costs
from clockhands.comparison.trial import Trial
from clockhands.errors import DataError, UsageError
from clockhands.files import write_text
from clockhands.findings import join_words
from clockhands.locking import LOCK
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
            self._require_unused()
            if costs is None:
                return None
            written = {name: cost.to_dict() for name, cost in costs.items()}
            content = {"fingerprint": plan.fingerprint, "plan": plan.to_dict(), "costs": written}
            write_text(path, json.dumps(content, indent=1) + "\n")
        stored = read_comparison(self.folder)
        if stored.plan.fingerprint != plan.fingerprint:
            raise UsageError(
                f"{self.folder} holds the results of another plan, which differs in "
                f"{_list_differences(stored.plan, plan)}; they are left alone, choose another folder"
            )
        write_text(self.folder / RESULTS, "".join(_write_line(trial) for trial in stored.trials))
        return replace(stored, plan=plan)

    def add(self, trial: Trial) -> None:
        """Store a trial that ended: it is on the disk before another begins."""
        with (self.folder / RESULTS).open("a", encoding="utf8") as stream:
            stream.write(_write_line(trial))
            stream.flush()
            os.fsync(stream.fileno())

    def _require_unused(self) -> None:
        """Raise UsageError if the path is a file, or a folder with more than the lock of this process."""
        if self.folder.exists() and (
            not self.folder.is_dir() or {item.name for item in self.folder.iterdir()} - {LOCK}
        ):
            raise UsageError(f"{self.folder} exists and holds no comparison; choose another folder")


def write_comparison(folder: str | Path, comparison: Comparison) -> None:
    """Write a comparison into a new folder, so that the trials which it does not have yet can be run there.

    Raises UsageError if there is something in the folder already.
    """
    target = ComparisonFolder(folder)
    if (target.folder / PLAN).exists():
        raise UsageError(f"{folder} holds a comparison already; choose another folder")
    target.open(comparison.plan, comparison.costs)
    write_text(target.folder / RESULTS, "".join(_write_line(trial) for trial in comparison.trials))


def read_comparison(folder: str | Path) -> Comparison:
    """Return the comparison in a folder, as far as it has run. Raises DataError if there is none."""
    folder = Path(folder)
    try:
        content = read_json(folder / PLAN, DataError)
        plan, costs = Plan.from_dict(content["plan"]), read_costs(content["costs"])
        return Comparison(plan, costs, tuple(_read_trials(folder / RESULTS)), content["fingerprint"])
    except (DataError, ValueError, LookupError, TypeError, AttributeError) as fault:
        reason = str(fault) if isinstance(fault, DataError) else repr(fault)
        raise DataError(f"{folder} holds no comparison that can be read: {reason}") from fault


def _read_trials(path: Path) -> list[Trial]:
    """Read the last line of each trial; what is no JSON is a line that a crash cut off."""
    trials: dict[tuple[str, int], Trial] = {}
    for line in stream_lines(path) if path.is_file() else ():
        try:
            written = parse_json(line)
        except ValueError:
            continue
        trial = Trial.from_dict(written)
        trials[trial.key] = trial
    return list(trials.values())


def _write_line(trial: Trial) -> str:
    """Return a trial as one line of JSON."""
    return json.dumps(trial.to_dict()) + "\n"


def _list_differences(ours: Plan, theirs: Plan) -> str:
    """Name the fields in which two plans of different fingerprints differ."""
    mine, other = ours.to_dict(), theirs.to_dict()
    keys = [key for key in dict.fromkeys([*mine, *other]) if key not in UNHASHED]
    return join_words(key for key in keys if mine.get(key) != other.get(key))
