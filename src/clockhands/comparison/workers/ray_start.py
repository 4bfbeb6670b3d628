"""Starting Ray, or reaching its cluster, within a time limit: it may hang, or raise anything, where it is slow."""

from __future__ import annotations

import queue
import threading
from typing import Any

from clockhands.errors import ClockhandsError

LIMIT = 180.0
"""Seconds that Ray has to start or to answer: its own attempts, each of which may take 40, end before."""


def start_ray(ray: Any, address: str, limit: float = LIMIT) -> None:
    """Start Ray on this machine (``ray``), or reach the cluster at an address.

    Raises ClockhandsError where it fails, or has not answered after ``limit`` seconds.
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
    try:
        fault = outcome.get(timeout=limit)
    except queue.Empty:
        raise ClockhandsError(
            f"Ray did not answer at {address} within {limit:.0f} seconds: the machine may be busy, or a cluster that "
            f"is gone be remembered ('ray stop' makes Ray forget it); what had ended is kept, give the same command "
            f"again, or leave out --on to use processes of this machine"
        ) from None
    if fault is not None:
        raise ClockhandsError(
            f"no Ray cluster answers at {address} ({last_line(fault)}); if there was one that is gone, 'ray stop' "
            f"makes Ray forget it"
        ) from fault


def last_line(fault: Exception) -> str:
    """Return the last line of what an exception says, or its name."""
    lines = str(fault).strip().splitlines()
    return lines[-1] if lines else type(fault).__name__
