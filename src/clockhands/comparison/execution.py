"""Running a plan: every trial once, in worker processes of this machine or on Ray, each stored as it ends."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from clockhands.comparison.plan import Plan, make_plan
from clockhands.comparison.results import Comparison, ComparisonFolder, Cost
from clockhands.comparison.trial import Job, Trial
from clockhands.devices import check_threads, open_device, use_threads
from clockhands.errors import ClockhandsError, MissingPackageError, UsageError
from clockhands.files import lock_folder
from clockhands.findings import Findings
from clockhands.options import check_call
from clockhands.runs.recipe import Recipe, vary_recipe

RUNNING = "running"
"""Folder of the runs of trials that have not ended, or that are kept."""
DEATHS = 2
"""A trial that kills its worker that many times has failed (out of memory, most often)."""
RETRIES = 5
"""How often Ray runs a trial again whose worker or node went away."""


class TrialProgress:
    """Is told what happens, and of every trial that begins and ends; this one shows nothing."""

    def say(self, sentence: str) -> None:
        """Take in what is done before the first trial begins."""

    def begin(self, job: Job) -> None:
        """Take in that a trial begins, or begins again after its worker died."""

    def end(self, trial: Trial) -> None:
        """Take in that a trial ended and is stored."""


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
    for variant in plan.variants:
        _find_modules(plan.get_recipe(variant.name, plan.seeds[0]))
    runner = make_workers(workers, threads, on, gpus)  # before anything is written: a wrong option leaves no folder
    progress = progress or TrialProgress()

    def measure() -> Mapping[str, Cost]:
        """Measure with the threads of a trial; a new folder is written once that is done."""
        from clockhands.comparison.cost import measure_costs

        with use_threads(threads):
            return measure_costs(plan, progress.say)

    with lock_folder(Path(out)):
        folder = ComparisonFolder(out)
        comparison = folder.open(plan, measure)
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
    where, modules = str(folder.absolute()), _find_modules(recipe)
    return Job(recipe.tables, variant, seed, plan.metric, plan.target, plan.inside, where, keep, modules)


def _find_modules(recipe: Recipe) -> tuple[str, ...]:
    """Return the modules outside of this package that registered a scheme or a corpus which a recipe names.

    Raises UsageError for one that the started script registered itself: workers do not run that script.
    """
    from clockhands.data import CORPORA  # late: this module imports no torch
    from clockhands.schemes import CATALOGUE

    written, modules = repr(recipe.tables), set[str]()
    for catalogue in (CATALOGUE, CORPORA):
        for name in (name for name in catalogue if repr(name) in written):
            entry: Any = catalogue[name]
            module = getattr(entry, "open", entry).__module__  # of a corpus, that of the function which opens it
            if module == "__main__":
                raise UsageError(
                    f"the {catalogue.noun} {name!r} is registered in the script that was started, which the processes "
                    "of the trainings do not run: move it into a module of its own, and import that in the script"
                )
            if module.partition(".")[0] != "clockhands":
                modules.add(module)
    return tuple(sorted(modules))


def compare(
    recipe: Recipe | str | Path | Mapping[str, Any],
    *,
    out: str | Path,
    vary: Mapping[str, Sequence[Any]],
    workers: int = 1,
    **overrides: Any,
) -> Findings:
    """Train variants of a recipe with several seeds, and say whether they differ: plan, run and conclude in one call.

    Args:
        recipe: the base of every variant: a file, tables or a ``Recipe``.
        out: the folder of the results; a training that stands there is not repeated.
        vary: values for each key, of which every combination is a variant: ``{"position.scheme": ["rope", "alibi"]}``.
        workers: how many trainings run at once, one process each.
        overrides: further arguments of ``make_plan``, by name: ``seeds=5`` (a number, or a list of seeds), ``baseline``
            (default: the first variant), ``metric`` (default: that of the corpus), ``margin`` (the largest difference
            that still counts as equal, in the unit of the metric), ``budget`` (``{"max_steps": 400}``), ...

    Raises what ``make_plan``, ``run_plan`` and ``conclude`` raise.
    """
    from clockhands.comparison.findings import conclude

    return conclude(run_plan(check_call(make_plan)(recipe, vary=vary, **overrides), out, workers=workers))


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


class Processes:
    """So many fresh interpreters with a fixed number of threads each, one pool a worker: its death is its own."""

    def __init__(self, workers: int, threads: int) -> None:
        self.workers, self.threads = workers, threads
        self.pools: list[ProcessPoolExecutor] = []

    def run(self, jobs: Sequence[Job], progress: TrialProgress) -> Iterator[Trial]:
        """Yield trials as they end. A worker that dies is replaced and its trial run again; both at most twice."""
        free: queue.SimpleQueue[ProcessPoolExecutor] = queue.SimpleQueue()
        for _ in range(self.workers):
            free.put(self._start())
        stopped = threading.Event()

        def serve(job: Job) -> Trial:
            pool = free.get()
            try:
                for _ in range(DEATHS):
                    if not stopped.is_set():
                        progress.begin(job)
                        try:
                            return pool.submit(_run_trial, job).result()
                        except BrokenProcessPool:
                            pool = self._start()
                return job.fail()
            finally:
                free.put(pool)

        with ThreadPoolExecutor(self.workers) as threads:
            try:
                yield from (future.result() for future in as_completed([threads.submit(serve, job) for job in jobs]))
            finally:  # at once, after Ctrl-C too: what has not ended will be run again
                stopped.set()
                threads.shutdown(wait=False, cancel_futures=True)
                for process in [process for pool in self.pools for process in (pool._processes or {}).values()]:
                    process.terminate()

    def _start(self) -> ProcessPoolExecutor:
        self.pools.append(ProcessPoolExecutor(1, _Workers(), _start_worker, (self.threads,)))
        return self.pools[-1]


class _Worker(SpawnProcess):
    """A fresh interpreter that does not import the script whose call started it, which would make that call again."""

    _lock = threading.Lock()

    @staticmethod
    def _Popen(process: BaseProcess) -> Any:
        with _Worker._lock:
            script = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")  # without a file, so that nothing is imported of it
            try:
                return SpawnProcess._Popen(process)
            finally:
                sys.modules["__main__"] = script


class _Workers(SpawnContext):
    Process = _Worker


def _start_worker(threads: int) -> None:
    """A worker: few threads, silent libraries, deaf to Ctrl-C (its parent hears it), and gone when its parent is."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    import torch
    from transformers.utils import logging

    torch.set_num_threads(threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _run_trial(job: Job) -> Trial:
    from clockhands.comparison.trial_runner import run_trial  # torch is imported by the worker, not by its parent

    for module in job.modules:
        importlib.import_module(module)
    return run_trial(job)


class Cluster:
    """A Ray cluster. ``ray``: the one that this process is part of, else this machine alone; or an address."""

    def __init__(self, address: str, threads: int, gpus: float) -> None:
        if address != "ray" and not address.startswith("ray://"):
            raise UsageError(f"--on {address}: give ray, or the address of a cluster such as ray://host:10001")
        if importlib.util.find_spec("ray") is None:
            raise MissingPackageError("--on", "ray", "ray")
        self.address, self.threads, self.gpus = address, threads, gpus

    def run(self, jobs: Sequence[Job], progress: TrialProgress) -> Iterator[Trial]:
        """Yield trials as they end. Raises ClockhandsError if the cluster cannot be reached or is lost."""
        # Attempts at reaching a cluster, each of up to 40 seconds; Ray itself would make 20.
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "5")
        import ray

        address = {} if self.address == "ray" else {"address": self.address}
        try:
            ray.init(log_to_driver=False, logging_level="error", **address)
        except Exception as fault:  # Ray raises Exception itself where its own processes are late
            forget = "'ray stop' makes Ray forget a cluster that is gone"
            raise ClockhandsError(
                f"no Ray cluster answers at {self.address} ({_take_last_line(fault)}); {forget}"
            ) from fault
        work = ray.remote(num_cpus=self.threads, num_gpus=self.gpus, max_retries=RETRIES)(_work)
        try:
            running = {work.remote(self.threads, job): job for job in jobs}
            for job in jobs:
                progress.begin(job)
            while running:
                (done,), _ = ray.wait(list(running))
                job = running.pop(done)
                try:
                    yield ray.get(done)
                except ray.exceptions.RayTaskError as fault:
                    yield Trial(job.variant, job.seed, "failed", error=_take_last_line(fault))
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
                    yield job.fail()
        # A trial's own failure is a result; whatever else Ray raises means that nobody is there to run the others.
        except (ConnectionError, ray.exceptions.RayError) as fault:
            raise ClockhandsError(
                f"the cluster {self.address} is gone ({_take_last_line(fault)}); what had ended is kept; give the same "
                "command again to go on"
            ) from fault
        finally:
            ray.shutdown()


def _take_last_line(fault: Exception) -> str:
    return str(fault).strip().rpartition("\n")[2] or type(fault).__name__


def _work(threads: int, job: Job) -> Trial:
    import torch

    torch.set_num_threads(threads)
    return _run_trial(job)
