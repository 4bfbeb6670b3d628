"""Plans that take a second, and results whose truth is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.comparison.execution import TrialProgress
from clockhands.comparison.plan import Plan, Variant, make_plan
from clockhands.comparison.results import Comparison, Cost
from clockhands.comparison.trial import CurvePoint, Job, LongerText, Measurements, TargetReached, Trial
from tests.training.tiny import tables


class Events(TrialProgress):
    """Keeps which trials began and ended."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.ended: list[tuple[str, int]] = []

    def begin(self, job: Job) -> None:
        self.begun.append(job.key)

    def end(self, trial: Trial) -> None:
        self.ended.append(trial.key)


NAMES = ("base", "better", "same", "worse")
COSTS = {name: Cost(parameters=1, steps=6, flops=1, seconds=0.1, changes={}) for name in ("sinusoidal", "learned")}


def plan(**changes: Any) -> Plan:
    """Two variants of a tiny translator of roles, two seeds, a few steps."""
    recipe = tables(save_steps=None, eval_steps=4, max_steps=8, accumulate=1, log_steps=2)
    asked: dict[str, Any] = {
        "vary": {"position.scheme": ["sinusoidal", "learned"]}, "seeds": 2, "budget": {"steps": 6}, **changes,
    }  # fmt: skip
    return make_plan(recipe, **asked)


def shares(rates: dict[str, list[float | None]], items: int = 300, **changes: Any) -> Comparison:
    """Exact match of each variant and seed, drawn; None diverged. The first variant is the baseline."""
    names = list(rates)
    variants = [Variant(name, {"training.clip": 2.0 + place}) for place, name in enumerate(names)]
    asked = make_plan(
        tables(), vary=None, variants=variants, seeds=len(rates[names[0]]), budget={"steps": 6}, **changes
    )  # fmt: skip
    rng = np.random.default_rng(12)
    trials = [
        Trial(name, seed, "diverged", error="the loss is nan")
        if rate is None
        else _finished(name, seed, "".join(str(int(hit)) for hit in rng.random(items) < rate))
        for name, row in rates.items()
        for seed, rate in enumerate(row, 1)
    ]
    costs = {name: Cost(parameters=1000, steps=6, flops=10, seconds=0.1, changes={}) for name in names}
    return Comparison(asked, costs, tuple(trials))


def results(seeds: int = 6, items: int = 200, lost: tuple[str, ...] = ()) -> Comparison:
    """Exact match of 60 % for the base and its equal, 75 % and 45 % for the others; ``lost`` diverged at seed 1."""
    shares = {"base": 0.60, "better": 0.75, "same": 0.60, "worse": 0.45}
    names = [Variant(name, {} if name == "base" else {"training.clip": 2.0 + NAMES.index(name)}) for name in NAMES]
    asked = make_plan(tables(), vary=None, variants=names, seeds=seeds, budget={"steps": 6}, target=0.5)
    rng = np.random.default_rng(3)
    hard = rng.random(items)
    trials = []
    for name in NAMES:
        for seed in range(1, seeds + 1):
            if name in lost and seed == 1:
                trials.append(Trial(name, seed, "diverged", error="the loss is nan"))
                continue
            noisy = hard + rng.normal(0, 0.05, items) + rng.normal(0, 0.01)
            trials.append(_finished(name, seed, "".join(str(int(h < shares[name])) for h in noisy)))
    costs = {name: Cost(parameters=1000, steps=6, flops=10, seconds=0.1, changes={}) for name in NAMES}
    return Comparison(asked, costs, tuple(trials))


def _finished(name: str, seed: int, items: str) -> Trial:
    return Trial(
        name, seed, "finished", items=items, scores={"exact": 1.0}, steps=6, seconds=1.0, peak_mib=10.0,
        tokens_per_second=5.0, written_per_second=4.0, parameters=1000,
        curve=(CurvePoint(2, 3.0, 2.5), CurvePoint(4, 2.0, None), CurvePoint(6, 1.0, 0.5 + seed / 10)),
        reached=TargetReached(4, 0.6), longer={"longer-7": LongerText(exact=0.0, loss=2.0 + seed)},
        inside=Measurements(before={"loud": 1.0}, after={"loud": 2.0}), machine="an abacus, 2 cores",
    )  # fmt: skip


def change_trials(comparison: Comparison, change: Callable[[Trial], dict[str, Any]]) -> Comparison:
    """The same comparison with other fields of its trials, as ``change`` says of each."""
    trials = tuple(replace(trial, **change(trial)) for trial in comparison.trials)
    return replace(comparison, trials=trials)
