"""The same trials on a Ray cluster: several machines, parts of GPUs, retries when a machine goes away."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from clockhands.comparison.trial import Trial
from clockhands.comparison.workers.job import Job, TrialProgress, make_failed_trial
from clockhands.comparison.workers.ray_head import LOOK, ClusterHead
from clockhands.comparison.workers.ray_start import last_line, start_ray
from clockhands.errors import ClockhandsError, MissingPackageError, UsageError

CONNECTIONS = "5"
"""Attempts at reaching a cluster; each may take 40 seconds, and Ray itself would make 20."""
DEATHS = 3
"""A trial that kills its worker that many times has failed (out of memory, most often)."""
LOSSES = 8
"""A trial whose node goes away that often is left without a result: nothing was learnt about it."""


class Cluster:
    """``ray``: the cluster that this process is part of, else this machine alone; or an address."""

    def __init__(self, address: str, threads: int, gpus: float) -> None:
        if address != "ray" and not address.startswith("ray://"):
            raise UsageError(f"--on {address}: give ray, or the address of a cluster such as ray://host:10001")
        if importlib.util.find_spec("ray") is None:
            raise MissingPackageError("--on", "ray", "ray")
        self.address, self.threads, self.gpus = address, threads, gpus

    def run(self, jobs: Sequence[Job], progress: TrialProgress) -> Iterator[Trial]:
        """Yield trials as they end. Raises ClockhandsError if the cluster cannot be reached or is lost."""
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", CONNECTIONS)
        import ray

        start_ray(ray, self.address)
        try:
            yield from self._run(ray, jobs, progress)
        # A trial's own failure is a result; whatever else Ray raises means that nobody is there to run the others.
        except (ConnectionError, ray.exceptions.RayError) as fault:
            raise ClockhandsError(
                f"the cluster {self.address} is gone ({last_line(fault)}); what had ended is kept, give the same "
                f"command again to go on"
            ) from fault
        finally:
            ray.shutdown()

    def _run(self, ray: Any, jobs: Sequence[Job], progress: TrialProgress) -> Iterator[Trial]:
        # Ray itself would count a node that went away as the trial's own fault, so it tries once and we do the rest.
        work = ray.remote(num_cpus=self.threads, num_gpus=self.gpus, max_retries=0)(_work)
        ended, head = _Ended(ray), ClusterHead(ray, self.address)
        running: dict[Any, Job] = {}

        def begin(job: Job) -> None:
            running[work.remote(self.threads, job)] = job
            progress.begin(job)

        for job in jobs:
            begin(job)
        while running:
            done, _ = ray.wait(list(running), timeout=LOOK)
            head.look()
            for reference in done:
                job = running.pop(reference)
                trial = ended.read(reference, job)
                if trial is not None:
                    yield trial
                elif ended.losses[job.key] < LOSSES:
                    begin(job)
        if lost := [f"{name} with seed {seed}" for (name, seed), count in ended.losses.items() if count >= LOSSES]:
            raise ClockhandsError(
                f"no result of {', '.join(lost)}: {LOSSES} times the node went away; what had ended is kept, give the "
                f"same command again to go on"
            )


class _Ended:
    """Tells a trial's result from one that is to be run again, because its worker died or its node went away."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self.deaths, self.losses = Counter[tuple[str, int]](), Counter[tuple[str, int]]()

    def read(self, reference: Any, job: Job) -> Trial | None:
        """Return the trial of a reference that is ready, or None to run it again.

        Raises RayError where the cluster itself is the reason.
        """
        faults = self.ray.exceptions
        try:
            trial: Trial = self.ray.get(reference)
            return trial
        except faults.RayTaskError as fault:
            return Trial(job.variant, job.seed, "failed", error=last_line(fault))
        except (faults.WorkerCrashedError, faults.OutOfMemoryError):
            self.deaths[job.key] += 1
            return None if self.deaths[job.key] < DEATHS else make_failed_trial(job)
        except (faults.NodeDiedError, faults.ObjectLostError):
            self.losses[job.key] += 1
            return None


def _work(threads: int, job: Job) -> Trial:
    import torch

    from clockhands.comparison.trial_runner import run_trial

    torch.set_num_threads(threads)
    return run_trial(job)
