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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clockhands import __version__
from clockhands.comparison.plan import Plan
from clockhands.errors import DataError, UsageError
from clockhands.files import write_text
from clockhands.locking import LOCK

PLAN, RESULTS = "plan.json", "results.jsonl"
Result = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """A plan and what came out so far. ``costs`` holds parameters, steps and what was matched, by variant.

    ``fingerprint`` is the plan's as it was when it was run: an option that is new since then does not change it.
    """

    plan: Plan
    costs: Mapping[str, Mapping[str, Any]]
    trials: tuple[Result, ...] = ()
    fingerprint: str = field(default="", compare=False)

    def of(self, variant: str, status: str = "finished") -> list[Result]:
        """The trials of a variant with this status, by seed."""
        found = [one for one in self.trials if one["variant"] == variant and one["status"] == status]
        return sorted(found, key=lambda one: one["seed"])

    @property
    def missing(self) -> list[tuple[str, int]]:
        """Trials of the plan that have not ended."""
        ended = {(one["variant"], one["seed"]) for one in self.trials}
        return [trial for trial in self.plan.trials if trial not in ended]

    @property
    def signature(self) -> str:
        """What goes with a number quoted elsewhere."""
        kind, amount = self.plan.budget
        corpus = self.plan.recipe.corpus
        return (
            f"compare|{corpus}|{kind}:{amount:g}|match:{self.plan.match}|seeds:{len(self.plan.seeds)}"
            f"|plan:{self.fingerprint or self.plan.fingerprint}|v:{__version__}"
        )

    def to_json(self) -> str:
        """One document; ``from_json`` reads it back."""
        fingerprint = self.fingerprint or self.plan.fingerprint
        content = {
            "plan": self.plan.to_dict(), "fingerprint": fingerprint, "costs": self.costs, "signature": self.signature,
        }  # fmt: skip
        lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in self.trials)
        return json.dumps(content, ensure_ascii=False, indent=1)[:-2] + f',\n "trials": [\n{lines}\n]}}\n'

    @classmethod
    def from_json(cls, text: str) -> Results:
        """Raises DataError for what is no such document."""
        try:
            raw = json.loads(text)
            return cls(Plan.from_dict(raw["plan"]), raw["costs"], tuple(raw["trials"]), raw["fingerprint"])
        except (KeyError, TypeError, ValueError) as fault:
            raise DataError(f"these are no results of a comparison: {fault!r}") from fault


class Store:
    """Results on disk. One process writes; a line that a crash cut off is left out and the trial done again."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def open(self, plan: Plan, costs: Mapping[str, Mapping[str, Any]] | None) -> Results | None:
        """What this plan gave so far; None where the folder is new and ``costs`` are not known yet.

        Raises UsageError if the folder holds something else or another plan, DataError if its plan cannot be read.
        """
        path = self.folder / PLAN
        if not path.exists():
            if self.folder.exists() and (
                not self.folder.is_dir() or {item.name for item in self.folder.iterdir()} - {LOCK}
            ):
                raise UsageError(f"{self.folder} exists and holds no comparison; choose another folder")
            if costs is None:
                return None
            known = {"fingerprint": plan.fingerprint, "plan": plan.to_dict(), "costs": costs}
            write_text(path, json.dumps(known, indent=1) + "\n")
        found = read_results(self.folder)
        if found.plan.fingerprint != plan.fingerprint:
            raise UsageError(
                f"{self.folder} holds the results of another plan (other: {_differences(found.plan, plan)}); they are "
                f"left alone, choose another folder"
            )
        write_text(self.folder / RESULTS, "".join(json.dumps(one) + "\n" for one in found.trials))
        return replace(found, plan=plan)

    def add(self, result: Result) -> None:
        """Keep a trial that ended: on the disk before anything else is begun."""
        with (self.folder / RESULTS).open("a", encoding="utf8") as stream:
            stream.write(json.dumps(result) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def read_results(folder: str | Path) -> Results:
    """The results in a folder. Raises DataError if there are none."""
    folder = Path(folder)
    try:
        known = json.loads((folder / PLAN).read_text("utf8"))
        plan, costs, fingerprint = Plan.from_dict(known["plan"]), known["costs"], known["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise DataError(f"{folder} holds no comparison that can be read: {fault}") from fault
    return Results(plan, costs, tuple(_lines(folder / RESULTS)), fingerprint)


def _lines(path: Path) -> list[Result]:
    found: dict[tuple[str, int], Result] = {}
    for written in path.read_text("utf8").split("\n") if path.is_file() else ():
        try:
            one = json.loads(written)
        except ValueError:
            continue
        found[one["variant"], one["seed"]] = one
    return list(found.values())


def _differences(one: Plan, other: Plan) -> str:
    mine, theirs = one.to_dict(), other.to_dict()
    return ", ".join(key for key in mine if key not in ("seeds", "title") and mine[key] != theirs[key])
