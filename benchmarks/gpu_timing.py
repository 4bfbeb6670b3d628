"""Compare all ways to attend with a scheme, then measure their first call, memory and time; part of gpu.py."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from attention_ways import FLEX, LAST, Case, find_largest_difference, find_mean_difference
from timing import OURS, interleave, measure_cpu_time, ratio

PASSES = {"forward": False, "forward and backward": True}
SHORTEST, LONGEST = 0.005, 2.0
"""Seconds of one measurement at least, and of all rounds of a pass at most, unless the fewest rounds take longer."""
FEWEST_ROUNDS, MOST_ROUNDS, MOST_CALLS = 5, 15, 20
STEPS = "the computation step by step"


def measure_cell(case: Case, device: torch.device, label: str) -> dict[str, Any]:
    """Compare all ways at one length, then time those that are right."""
    start = time.monotonic()
    torch._dynamo.reset()  # each cell compiles its own, so that none meets the limit of recompilations
    first_calls: dict[str, float] = {}
    apart = {
        "apart in float32": compare_outputs(case.shorten(), device, find_largest_difference, {}),
        "apart": compare_outputs(case, device, find_mean_difference, first_calls),
    }
    failures, wrong = [], []
    for where, distances in apart.items():
        for name, distance in distances.items():
            if isinstance(distance, float) and not distance <= 1:
                failures.append(f"{label}: {name} and {OURS} are {distance:.3g} times as far {where} as they may be")
                wrong.append(OURS if name == STEPS else name)
                distances[name] = str(distance)  # which may be NaN
    found: dict[str, Any] = apart | {"failures": failures}
    for name, backward in PASSES.items():
        found[name] = measure_pass(case, backward, device, wrong)
        if "refused" in found[name][OURS]:
            failures.append(f"{label}, {name}: {OURS} fails: {found[name][OURS]['refused']}")
    for name, entry in found["forward"].items():
        if name in first_calls and "first call, seconds" in entry:
            entry["first call, seconds"] = first_calls[name]
    return found | {"seconds": round(time.monotonic() - start, 1)}


def compare_outputs(
    case: Case,
    device: torch.device,
    find_difference: Callable[[torch.Tensor, torch.Tensor], float],
    first_calls: dict[str, float],
) -> dict[str, Any]:
    """Return how far each peer that computes the same, and the steps, lie from our output; or why that is not known.

    The seconds of these calls, which compile what is to be compiled, are put into ``first_calls``.
    """
    ways = case.list_ways()

    def compute(name: str) -> Any:
        start = time.monotonic()
        out = attempt(case.compute_reference if name == STEPS else partial(without_gradient, ways[name]))
        wait_for(device)
        first_calls[name] = round(time.monotonic() - start, 2)
        return out

    ours = compute(OURS)
    if isinstance(ours, dict):
        return {OURS: ours}
    apart: dict[str, Any] = {}
    for name in (*case.list_equals(), STEPS):
        theirs = compute(name)
        mine = ours[:, :, -LAST:] if name == STEPS else ours
        apart[name] = theirs if isinstance(theirs, dict) else find_difference(mine, theirs)
    return apart


def without_gradient(way: Callable[[], torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return way()


def measure_pass(case: Case, backward: bool, device: torch.device, wrong: Sequence[str]) -> dict[str, Any]:
    """Measure the first call, the memory and the time of every way; nothing of one that is wrong."""
    found: dict[str, Any] = {}
    runs: dict[str, Callable[[], object]] = {}
    for name, way in case.list_ways().items():
        if name in wrong or OURS in wrong:
            found[name] = {"wrong": "its output differs, see failures"}
        elif name == FLEX and backward and device.type == "cpu":
            found[name] = {"refused": "FlexAttention has no backward pass on a CPU"}
        else:
            run = case.run(way, backward)
            found[name] = attempt(partial(measure_first, run, case, device))
            if "seconds" in found[name]:
                runs[name] = run
    if not runs:
        return found
    single = [found[name].pop("seconds") for name in runs]
    most = int(LONGEST / FEWEST_ROUNDS / sum(single))
    calls = max(1, min(MOST_CALLS, most, math.ceil(SHORTEST / min(single))))
    rounds = max(FEWEST_ROUNDS, min(MOST_ROUNDS, int(LONGEST / (calls * sum(single)))))
    works = {name: repeat(run, calls) for name, run in runs.items()}
    times = attempt(lambda: interleave(works, rounds, measure=choose_clock(device)))
    if "out of memory" in times or "refused" in times:
        return found | {"in turns": times}
    for name, seconds in times.items():
        found[name]["milliseconds"] = round(1000 * statistics.median(seconds) / calls, 4)
        if name != OURS and OURS in times:
            found[name]["time over ours"] = ratio(times, name)
    return found | {"rounds": rounds, "calls a round": calls}


def measure_first(run: Callable[[], object], case: Case, device: torch.device) -> dict[str, Any]:
    """Run twice: the first call with its compilation; the second with its memory, a mask that is kept included."""
    clock, gpu = choose_clock(device), device.type == "cuda"
    first = measure_wall_time(run, device)
    if gpu:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device) - case.held_bytes
    seconds = clock(run)
    extra = round((torch.cuda.max_memory_allocated(device) - before) / 2**20, 1) if gpu else None
    return {"first call, seconds": round(first, 2), "extra MB": extra, "seconds": max(seconds, 1e-6)}


def attempt(work: Callable[[], Any]) -> Any:
    """Return what the work gives; where memory is short or it is refused, a table that says so, and free the memory."""
    try:
        return work()
    except torch.OutOfMemoryError as fault:
        reason = {"out of memory": describe(fault)}
    except Exception as fault:  # a peer may refuse in any way; the others are measured all the same
        reason = {"refused": f"{type(fault).__name__}: {describe(fault)}"}
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return reason


def describe(fault: Exception) -> str:
    """Return the first sentence of a fault."""
    return next(iter(str(fault).strip().splitlines()), "no reason given")[:300]


def repeat(run: Callable[[], object], calls: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(calls):
            run()

    return work


def measure_wall_time(work: Callable[[], object], device: torch.device) -> float:
    """Seconds on the wall, until the GPU is done."""
    start = time.monotonic()
    work()
    wait_for(device)
    return time.monotonic() - start


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def choose_clock(device: torch.device) -> Callable[[Callable[[], object]], float]:
    """Return how time is measured: by events of the GPU, or as CPU time."""

    def measure_gpu_time(work: Callable[[], object]) -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        work()
        stop.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(stop)) / 1000

    return measure_gpu_time if device.type == "cuda" else measure_cpu_time
