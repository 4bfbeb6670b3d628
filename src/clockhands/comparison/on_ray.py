"""The same trials on a Ray cluster: several machines, parts of GPUs, retries when a machine goes away."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from typing import Any

from clockhands.comparison.local import _dead
from clockhands.comparison.run import Task, Watch
from clockhands.comparison.store import Result
from clockhands.errors import ClockhandsError, UsageError

RETRIES = 2
ATTEMPTS = "5"
"""At reaching a cluster; each may take 40 seconds, and Ray itself would make 20."""


class Cluster:
    """``ray``: the cluster that this process is part of, else this machine alone; or an address."""

    def __init__(self, address: str, threads: int, gpus: float) -> None:
        if address != "ray" and not address.startswith("ray://"):
            raise UsageError(f"--on {address}: give ray, or the address of a cluster such as ray://host:10001")
        if importlib.util.find_spec("ray") is None:
            raise UsageError('Ray is not installed here: pip install "clockhands[ray]", or leave out --on')
        self.address, self.threads, self.gpus = address, threads, gpus

    def run(self, tasks: Sequence[Task], watch: Watch) -> Iterator[Result]:
        """Results as they end. Raises ClockhandsError if the cluster cannot be reached or is lost."""
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", ATTEMPTS)
        import ray

        self._connect(ray)
        work = ray.remote(num_cpus=self.threads, num_gpus=self.gpus, max_retries=RETRIES)(_work)
        try:
            running = {}
            for task in tasks:
                running[work.remote(self.threads, *task.arguments())] = task
                watch("begin", task)
            while running:
                done, _ = ray.wait(list(running))
                yield self._result(ray, done[0], running.pop(done[0]))
        # A trial's own failure is a result; whatever else Ray raises means that nobody is there to run the others.
        except (ConnectionError, ray.exceptions.RayError) as fault:
            raise ClockhandsError(
                f"the cluster {self.address} is gone ({_line(fault)}); what had ended is kept, give the same command "
                f"again to go on"
            ) from fault
        finally:
            ray.shutdown()

    def _connect(self, ray: Any) -> None:
        where = {"configure_logging": True} if self.address == "ray" else {"address": self.address}
        try:
            ray.init(log_to_driver=False, logging_level="error", **where)
        except (ConnectionError, TimeoutError, RuntimeError) as fault:
            raise ClockhandsError(
                f"no Ray cluster answers at {self.address} ({_line(fault)}); if there was one that is gone, 'ray stop' "
                f"makes Ray forget it"
            ) from fault

    def _result(self, ray: Any, reference: Any, task: Task) -> Result:
        try:
            result: Result = ray.get(reference)
            return result
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError):
            return _dead(task)
        except ray.exceptions.RayTaskError as fault:
            return {"variant": task.variant, "seed": task.seed, "status": "failed", "error": _line(fault)}


def _work(threads: int, *arguments: Any) -> Result:
    import torch

    from clockhands.comparison.trial import run_trial

    torch.set_num_threads(threads)
    return run_trial(*arguments)


def _line(fault: Exception) -> str:
    lines = str(fault).strip().splitlines()
    return lines[-1] if lines else type(fault).__name__
