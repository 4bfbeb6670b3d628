"""Running a plan: every trial once, in worker processes of this machine or on Ray, each stored as it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clockhands.comparison.folder import ComparisonFolder
from clockhands.comparison.plan import Plan, make_plan
from clockhands.comparison.results import Comparison
from clockhands.comparison.trial import Job
from clockhands.comparison.workers import Cluster, Processes, TrialProgress
from clockhands.devices import check_threads, open_device, use_threads
from clockhands.errors import UsageError
from clockhands.files import lock_folder
from clockhands.findings import Findings
from clockhands.runs.recipe import Recipe, vary_recipe

RUNNING = "running"
"""Folder of the runs of trials that have not ended, or that are kept."""


def run_plan(
    plan: Plan,
    out: str | Path,
    *,
    workers: int = 1,
    threads: int = 1,
    on: str | None = None,
    gpus: float = 0.0,
    keep: bool = False,
    progress: TrialProgress | None = None,
) -> Comparison:
    """Run what has not ended yet of a plan, in ``workers`` processes of ``threads`` threads, or ``on`` Ray.

    ``on``: ``ray`` (the cluster that is there, or this machine) or an address, ``ray://host:10001``; ``gpus``: the part
    of a GPU that a trial gets there. ``keep``: leave the trained models in ``out/running``.
    Raises UsageError for a folder with another plan's results, for a device that is not in this machine, or without
    Ray; BusyError if another process writes there; ConfigError for a variant that cannot be built, KeyboardInterrupt
    when stopped: what had ended is kept.
    """
    if on is None:
        devices = {plan.get_recipe(variant.name, plan.seeds[0]).training.device for variant in plan.variants}
        for device in sorted(devices - {"auto", "cpu"}):
            open_device(device, "training.device")
    runner = make_workers(workers, threads, on, gpus)  # before anything is written: a wrong option leaves no folder
    with lock_folder(Path(out)):
        progress = progress or TrialProgress()
        folder = ComparisonFolder(out)
        comparison = folder.open(plan, None)
        if comparison is None:  # a new folder is written once the costs are measured, with the threads of a trial
            from clockhands.comparison.cost import measure_costs

            with use_threads(threads):
                comparison = folder.open(plan, measure_costs(plan, progress.say))
        jobs = [make_job(comparison, variant, seed, Path(out), threads, keep) for variant, seed in comparison.missing]
        trials = list(comparison.trials)
        for trial in runner.run(jobs, progress) if jobs else ():
            folder.add(trial)
            trials.append(trial)
            progress.end(trial)
    return replace(comparison, trials=tuple(trials))


def make_job(comparison: Comparison, variant: str, seed: int, out: Path, threads: int, keep: bool) -> Job:
    """Return one trial as a job, with its matched sizes and its share of the budget."""
    plan, cost = comparison.plan, comparison.costs[variant]
    # A trial that was stopped is begun again, so nothing is saved by the clock, only where the plan's recipe says so.
    overrides = {"training.max_steps": cost.steps, "training.threads": threads, "training.save_minutes": 0.0}
    recipe = vary_recipe(plan.get_recipe(variant, seed), {**cost.changes, **overrides})
    folder = out / RUNNING / f"{plan.variants.index(plan.variant(variant))}-{seed}"
    return Job(recipe.tables, variant, seed, plan.metric, plan.target, plan.inside, str(folder.absolute()), keep)


def compare(
    recipe: Recipe | str | Path | Mapping[str, Any],
    *,
    out: str | Path,
    vary: Mapping[str, Sequence[Any]],
    workers: int = 1,
    **overrides: Any,
) -> Findings:
    """Plan, run and conclude in one call; ``overrides`` are the arguments of ``make_plan``. Raises as these do."""
    from clockhands.comparison.verdict_findings import conclude

    return conclude(run_plan(make_plan(recipe, vary=vary, **overrides), out, workers=workers))


def make_workers(workers: int, threads: int, on: str | None, gpus: float) -> Processes | Cluster:
    """Return worker processes, or a Ray cluster where ``on`` names one. Raises UsageError for what is out of range."""
    for name, value in (("workers", workers), ("threads", threads)):
        check_threads(value, name)
    if not 0 <= gpus < 1000:
        raise UsageError(
            f"gpus is {gpus}; it must be from 0 to below 1000: the GPUs that a trial gets, or a part of one"
        )
    if on is None:
        if gpus:
            raise UsageError("a part of a GPU for each trial is given out by Ray alone: add --on ray")
        return Processes(workers, threads)
    return Cluster(on, threads, gpus)
