"""Run trials on a Ray cluster: several machines, parts of GPUs, retries when a machine goes away."""

from __future__ import annotations

import importlib.util
import os
import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from clockhands.comparison.trial import Job, Trial
from clockhands.comparison.workers import TrialProgress
from clockhands.errors import ClockhandsError, MissingPackageError, UsageError

CONNECTIONS = "5"
"""Attempts at reaching a cluster; each may take 40 seconds, and Ray itself would make 20."""
LIMIT = 180.0
"""Seconds that Ray has to start or to answer: its own attempts end before."""
DEATHS, LOSSES = 3, 8
"""A trial that kills its worker so many times has failed; one whose node goes away so often is left without a result,
for nothing was learnt about it."""
LOOK, PATIENCE = 5.0, 25.0
"""Seconds between two looks at the head, and until one that is silent is gone. Ray ends the process after 60."""
AGAIN = "what had ended is kept; give the same command again to go on"


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
            raise ClockhandsError(f"the cluster {self.address} is gone ({_last_line(fault)}); {AGAIN}") from fault
        finally:
            ray.shutdown()

    def _run(self, ray: Any, jobs: Sequence[Job], progress: TrialProgress) -> Iterator[Trial]:
        # Ray itself would count a node that went away as the trial's own fault, so it tries once and we do the rest.
        work = ray.remote(num_cpus=self.threads, num_gpus=self.gpus, max_retries=0)(_work)
        head, faults, running = ClusterHead(ray, self.address), ray.exceptions, dict[Any, Job]()
        deaths, losses = Counter[tuple[str, int]](), Counter[tuple[str, int]]()

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
                try:
                    yield ray.get(reference)
                except faults.RayTaskError as fault:
                    yield Trial(job.variant, job.seed, "failed", error=_last_line(fault))
                except (faults.WorkerCrashedError, faults.OutOfMemoryError):
                    deaths[job.key] += 1
                    if deaths[job.key] < DEATHS:
                        begin(job)
                    else:
                        yield job.fail()
                except (faults.NodeDiedError, faults.ObjectLostError):
                    losses[job.key] += 1
                    if losses[job.key] < LOSSES:
                        begin(job)
        if lost := [f"{name} with seed {seed}" for (name, seed), count in losses.items() if count >= LOSSES]:
            raise ClockhandsError(f"no result of {', '.join(lost)}: {LOSSES} times the node went away: {AGAIN}")


def start_ray(ray: Any, address: str, limit: float = LIMIT) -> None:
    """Start Ray on this machine (``ray``), or reach the cluster at an address.

    Raises ClockhandsError where it fails, or has not answered after ``limit`` seconds: it may hang, or raise anything,
    where it is slow.
    """
    where = {"configure_logging": True} if address == "ray" else {"address": address}
    outcome: queue.Queue[Exception | None] = queue.Queue()

    def start() -> None:
        try:
            ray.init(log_to_driver=False, logging_level="error", **where)
            outcome.put(None)
        except Exception as fault:  # Ray raises Exception itself where its own processes are late
            outcome.put(fault)
            return
        threading.Event().wait()  # Linux ends Ray's processes with the thread that began them (PR_SET_PDEATHSIG)

    # A thread, because nothing else can leave a call that hangs; as a daemon it does not keep the process alive.
    threading.Thread(target=start, daemon=True).start()
    forget = "'ray stop' makes Ray forget a cluster that is gone"
    try:
        fault = outcome.get(timeout=limit)
    except queue.Empty:
        raise ClockhandsError(
            f"Ray did not answer at {address} within {limit:.0f} seconds; the machine may be busy ({forget}): "
            f"{AGAIN}, or leave out --on to use processes of this machine"
        ) from None
    if fault is not None:
        raise ClockhandsError(f"no Ray cluster answers at {address} ({_last_line(fault)}); {forget}") from fault


class ClusterHead:
    """Whether the head of the cluster still answers: Ray ends the whole process, with its own words, when it does not.

    A client at ``ray://`` is told by its connection, and cannot see the head's port.
    """

    def __init__(self, ray: Any, address: str) -> None:
        self.place: tuple[str, int] | None = None
        if address == "ray":
            host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
            self.place = host.strip("[]"), int(port)
        self.seen = time.monotonic()

    def look(self) -> None:
        """Raise ConnectionError when the head has been silent for ``PATIENCE`` seconds."""
        if self.place is None:
            return
        try:
            socket.create_connection(self.place, timeout=LOOK).close()
            self.seen = time.monotonic()
        except OSError:
            if time.monotonic() - self.seen > PATIENCE:
                raise ConnectionError(f"its head at {self.place[0]}:{self.place[1]} does not answer") from None


def _last_line(fault: Exception) -> str:
    lines = str(fault).strip().splitlines()
    return lines[-1] if lines else type(fault).__name__


def _work(threads: int, job: Job) -> Trial:
    import torch

    from clockhands.comparison.trial_runner import run_trial

    torch.set_num_threads(threads)
    return run_trial(job)
