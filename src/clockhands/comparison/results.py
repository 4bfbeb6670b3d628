"""A comparison: a plan with the trials of it that ended, as one JSON document or a folder (``folder.py``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from clockhands import __version__
from clockhands.comparison.plan import Plan
from clockhands.comparison.trial import Status, Trial, validate
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
            plan, costs = read_plan_and_costs(raw)
            return cls.of(plan, costs, map(Trial.from_dict, validate(dict[str, Any], raw)["trials"]))
        except (LookupError, TypeError, ValueError, UsageError) as fault:
            raise DataError(f"these are no results of a comparison: {describe_fault(fault)}") from fault


def read_plan_and_costs(written: Any) -> tuple[Plan, dict[str, Cost]]:
    """Return the plan that a document holds, with the costs of its variants.

    Raises ValueError, LookupError or UsageError for what holds none.
    """
    content = validate(dict[str, Any], written)
    plan, costs = Plan.from_dict(content["plan"]), validate(dict[str, Cost], content["costs"])
    if missing := [variant.name for variant in plan.variants if variant.name not in costs]:
        raise ValueError(f"costs has nothing of {', '.join(map(repr, missing))}")
    return plan, costs


def describe_fault(fault: Exception) -> str:
    """Return what is wrong with a document, in one line; of a key that is missing its name."""
    return f"{fault} is missing" if isinstance(fault, KeyError) else " ".join(str(fault).split())
