"""Running a plan: every trial once, in worker processes of this machine or on Ray, each stored as it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from clockhands.comparison.folder import Result, Results, Store
from clockhands.comparison.plan import Plan, plan_of
from clockhands.devices import check_threads
from clockhands.errors import UsageError
from clockhands.findings import Findings, Number
from clockhands.locking import hold
from clockhands.runs.recipe import Recipe, vary

Watch = Callable[[str, Any], None]
"""Told ``("begin", task)``, ``("end", result)``."""


@dataclass(frozen=True)
class Task:
    """A trial, ready to be run anywhere: plain data."""

    tables: Mapping[str, Any]
    variant: str
    seed: int
    metric: str
    target: Number | None
    inside: tuple[str, ...]
    folder: str
    keep: bool

    def arguments(self) -> tuple[Any, ...]:
        """Of ``run_trial``."""
        return (self.tables, self.variant, self.seed, self.metric, self.target, self.inside, self.folder, self.keep)


@runtime_checkable
class Workers(Protocol):
    """Something that runs tasks; results come as they end."""

    def run(self, tasks: Sequence[Task], watch: Watch) -> Iterator[Result]: ...


def run_plan(
    plan: Plan,
    out: str | Path,
    *,
    workers: int = 1,
    threads: int = 1,
    on: str | None = None,
    gpus: float = 0.0,
    keep: bool = False,
    watch: Watch = lambda event, what: None,
) -> Results:
    """Run what has not ended yet of a plan, in ``workers`` processes of ``threads`` threads, or ``on`` Ray.

    ``on``: ``ray`` (the cluster that is there, or this machine) or an address, ``ray://host:10001``; ``gpus``: the part
    of a GPU that a trial gets there. ``keep``: leave the trained models in ``out/running``.
    Raises UsageError for a folder with another plan's results, for a device that is not in this machine, or without
    Ray; BusyError if another process writes there; ConfigError for a variant that cannot be built, KeyboardInterrupt
    when stopped: what had ended is kept.
    """
    if on is None:
        _require_devices(plan)
    runner = _workers(workers, threads, on, gpus)  # before anything is written: a wrong option leaves no folder
    with hold(Path(out)):
        return _run(plan, Path(out), runner, threads, keep, watch)


def _run(plan: Plan, out: Path, runner: Workers, threads: int, keep: bool, watch: Watch) -> Results:
    store = Store(out)
    results = store.open(plan, None)
    if results is None:
        from clockhands.comparison.cost import costs

        results = store.open(plan, {name: cost.to_dict() for name, cost in costs(plan).items()})
    assert results is not None
    tasks = [task(results, name, seed, out, threads, keep) for name, seed in results.missing]
    trials = list(results.trials)
    if tasks:
        for result in runner.run(tasks, watch):
            store.add(result)
            trials.append(result)
            watch("end", result)
    return replace(results, trials=tuple(trials))


def task(results: Results, name: str, seed: int, out: Path, threads: int, keep: bool) -> Task:
    """One trial with its matched sizes and its share of the budget."""
    plan, cost = results.plan, results.costs[name]
    # A trial that was stopped is begun again, so nothing is saved by the clock, only where the plan's recipe says so.
    settings = {"training.max_steps": cost["steps"], "training.threads": threads, "training.save_minutes": 0.0}
    changes = {**cost["changes"], **settings}
    recipe = vary(plan.recipe_of(name, seed), changes)
    folder = out / "running" / f"{plan.variants.index(plan.variant(name))}-{seed}"
    return Task(recipe.tables, name, seed, plan.metric, plan.target, plan.inside, str(folder.absolute()), keep)


def compare(
    recipe: Recipe | str | Path | Mapping[str, Any],
    *,
    out: str | Path,
    vary: Mapping[str, Sequence[Any]],
    workers: int = 1,
    **settings: Any,
) -> Findings:
    """Plan, run and conclude in one call; ``settings`` are those of ``plan_of``. Raises as these do."""
    from clockhands.comparison.verdict_findings import conclude

    return conclude(run_plan(plan_of(recipe, vary=vary, **settings), out, workers=workers))


def _require_devices(plan: Plan) -> None:
    """Raise UsageError if a variant is to be trained on a device that is not in this machine."""
    asked = {plan.recipe_of(variant.name, plan.seeds[0]).training.device for variant in plan.variants}
    for device in sorted(asked - {"auto", "cpu"}):
        from clockhands.devices import open_device

        open_device(device, "training.device")


def _workers(workers: int, threads: int, on: str | None, gpus: float) -> Workers:
    for name, value in (("workers", workers), ("threads", threads)):
        check_threads(value, name)
    if not 0 <= gpus < 1000:
        raise UsageError(f"gpus is {gpus}; it must be 0 or more, and the part of a GPU or some of them")
    if on is None:
        if gpus:
            raise UsageError("a part of a GPU for each trial is given out by Ray alone: add --on ray")
        from clockhands.comparison.workers.local import Processes

        return Processes(workers, threads)
    from clockhands.comparison.workers.ray import Cluster

    return Cluster(on, threads, gpus)
