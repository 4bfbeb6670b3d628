"""Worker processes on this machine. A worker that dies is replaced and its trial run again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from clockhands.comparison.trial import Trial
from clockhands.comparison.workers.job import Job, TrialProgress, make_failed_trial

ATTEMPTS = 2
"""A trial that kills its worker that many times has failed (out of memory, most often)."""


class Processes:
    """A pool of fresh interpreters with a fixed number of threads each."""

    def __init__(self, workers: int, threads: int) -> None:
        self.workers, self.threads = workers, threads

    def run(self, jobs: Sequence[Job], progress: TrialProgress) -> Iterator[Trial]:
        """Yield trials as they end. A trial whose worker died again and again has failed."""
        waiting, deaths = list(jobs), Counter[tuple[str, int]]()
        while waiting:
            pool = self._pool()
            running: dict[Future[Trial], Job] = {}
            try:
                while waiting or running:
                    while waiting and len(running) < self.workers:
                        job = waiting.pop(0)
                        running[pool.submit(_run_trial, job)] = job
                        progress.begin(job)
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        trial = future.result()
                        del running[future]
                        yield trial
            except BrokenProcessPool:
                lost = list(running.values())
                deaths.update(job.key for job in lost)
                # One death breaks the whole pool, and nobody knows whose it was: alone, the guilty one is found.
                given_up = [job for job in lost if deaths[job.key] >= ATTEMPTS * min(self.workers, 2)]
                yield from map(make_failed_trial, given_up)
                waiting = [job for job in lost if job not in given_up] + waiting
            finally:
                _stop_worker(pool)

    def _pool(self) -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.workers, spawn, _start_worker, (self.threads,))


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


def _stop_worker(pool: ProcessPoolExecutor) -> None:
    """Stop at once: what has not ended will be run again."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
