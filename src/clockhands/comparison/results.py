"""A comparison: a plan with the trials of it that ended, as one JSON document or a folder (``folder.py``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from clockhands import __version__
from clockhands.comparison.plan import Plan
from clockhands.comparison.trial import Status, Trial
from clockhands.errors import DataError, UsageError
from clockhands.reading import parse_json


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

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as ``plan.json`` holds it."""
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """A plan and the trials of it that ended. ``costs``: by variant.

    ``fingerprint`` is the plan's as it was when it was run: an option that is new since then does not change it.
    """

    plan: Plan
    costs: Mapping[str, Cost]
    trials: tuple[Trial, ...] = ()
    fingerprint: str = field(default="", compare=False)

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
            f"|plan:{self.fingerprint or self.plan.fingerprint}|v:{__version__}"
        )

    def to_json(self) -> str:
        """Return the whole as one document, a line a trial; ``from_json`` reads it back."""
        content = {
            "plan": self.plan.to_dict(),
            "fingerprint": self.fingerprint or self.plan.fingerprint,
            "costs": {name: cost.to_dict() for name, cost in self.costs.items()},
            "signature": self.signature,
        }
        lines = ",\n".join(json.dumps(trial.to_dict(), ensure_ascii=False) for trial in self.trials)
        return json.dumps(content, ensure_ascii=False, indent=1)[:-2] + f',\n "trials": [\n{lines}\n]}}\n'

    @classmethod
    def from_json(cls, text: str) -> Comparison:
        """Return the comparison that ``to_json`` wrote. Raises DataError for what is no such document."""
        try:
            raw = parse_json(text)
            trials = tuple(Trial.from_dict(written) for written in raw["trials"])
            return cls(Plan.from_dict(raw["plan"]), read_costs(raw["costs"]), trials, raw["fingerprint"])
        except (AttributeError, LookupError, TypeError, ValueError) as fault:
            raise DataError(f"these are no results of a comparison: {fault!r}") from fault


def read_costs(written: Mapping[str, Any]) -> dict[str, Cost]:
    """Return the costs by variant that ``Cost.to_dict`` wrote. Raises TypeError for what are none."""
    return {name: Cost(**cost) for name, cost in written.items()}
