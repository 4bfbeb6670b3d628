"""Run trials in worker processes of this machine, each of which keeps its text between trials; or on Ray."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from clockhands.comparison.trial import Job, Trial
from clockhands.errors import ClockhandsError, MissingPackageError, UsageError

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
        spawn = multiprocessing.get_context("spawn")
        self.pools.append(ProcessPoolExecutor(1, spawn, _start_worker, (self.threads,)))
        return self.pools[-1]


def _start_worker(threads: int) -> None:
    """A worker: few threads, silent libraries, deaf to Ctrl-C (its parent hears it), and gone when its parent is."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    import torch
    from transformers.utils import logging

    torch.set_num_threads(threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_trial(job: Job) -> Trial:
    from clockhands.comparison.trial_runner import run_trial  # torch is imported by the worker, not by its parent

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
