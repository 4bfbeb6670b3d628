"""Attention with every scheme on a GPU against SDPA and FlexAttention: time and memory, forward and with backward.

    python benchmarks/gpu.py                  # on a GPU; the same command again goes on where it stopped
    python benchmarks/gpu.py --device cpu --dtype float32 --lengths 128 256 --schemes alibi t5

Every scheme of the catalogue that a causal decoder's attention can have, and every kind of layer of the position
presets, at each length. Before anything is timed, our output is compared with that of every peer that computes the
same, and its last queries with the computation step by step, in float32 at 512 tokens and as it is timed; what differs
is a failure, is named, and has no ratio. ``apart`` in the results is the difference in units of what is allowed.
Each peer is timed in turns with ours, by the GPU's own clock (on a CPU by CPU time). The first call of each, with its
compilation, is told and not part of the times. What does not fit into memory, and what a peer refuses, is in the
results with its reason. Each scheme and length is saved at once. None but the first of a call is begun after
``--minutes``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from attention_ways import HEADS, TOLERANCES, WIDTH, Case, list_schemes, perturb
from gpu_timing import measure_cell
from timing import RESULTS, machine

from clockhands.devices import choose_device, read_dtype
from clockhands.errors import ClockhandsError
from clockhands.files import write_text

Cells = dict[str, dict[str, Any]]


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Return the machine that the figures belong to."""
    gpu = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    table = machine(("torch",)) | {"GPU": gpu.name if gpu else None}
    return table | ({"GPU memory, GiB": round(gpu.total_memory / 2**30, 1), "CUDA": torch.version.cuda} if gpu else {})


def make_label(scheme: str, length: int, dtype: str) -> str:
    """Return the name of a cell in the results."""
    return f"{scheme}, {length}, {dtype}"


def load(path: Path, setting: Mapping[str, Any]) -> Cells:
    """Return the cells that are measured. Raises ClockhandsError where they are those of another machine."""
    if not path.exists():
        return {}
    table = json.loads(path.read_text("utf8"))
    if table["machine"] != setting:
        raise ClockhandsError(f"{path} was measured on {table['machine']}, and this is {setting}; give another --out")
    return dict(table["results"])


def save(path: Path, setting: Mapping[str, Any], cells: Cells, left_out: Mapping[str, str]) -> None:
    """Write all cells that are measured, at once: a program that is killed leaves the file as it was or as it is."""
    text = (
        f"causal attention with its positions, batch 1, {HEADS} heads of {WIDTH}; a ratio is the peer's time over ours "
        "in one round; extra MB is the peak of a pass above what was there, with a mask that is kept; compilation is "
        "in the first call alone; parameters in the type of the queries"
    )
    table = {"command": "python benchmarks/gpu.py", "setting": text, "machine": setting}
    table |= {"left out": left_out, "results": cells}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(table, indent=2, ensure_ascii=False) + "\n")


def sign(name: str, length: int, dtype: str, setting: Mapping[str, Any]) -> str:
    """Return what a figure was measured with, on one line."""
    place = setting["GPU"] or setting["processor"]
    return (
        f"attention|scheme:{name}|tokens:{length}|dtype:{dtype}|heads:{HEADS}x{WIDTH}|{place}|torch:{setting['torch']}"
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    known, types = list(list_schemes()), [str(dtype).removeprefix("torch.") for dtype in TOLERANCES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="cuda, cuda:1 or cpu (default: the GPU if there is one, else the CPU)")
    parser.add_argument("--dtype", choices=types, default="bfloat16", help="(default: %(default)s)")
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 8192, 32768], metavar="TOKENS")
    parser.add_argument("--schemes", nargs="+", choices=known, default=known, metavar="NAME", help=", ".join(known))
    parser.add_argument("--minutes", type=float, default=8.0, help="begin nothing later (%(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu.json", help="results, which are added to")
    given = parser.parse_args(arguments)
    if min(given.lengths) < 1:
        parser.error(f"--lengths has {min(given.lengths)}; a text has 1 token or more")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is not measured yet, while there is time; return 1 if anything that is measured is wrong."""
    given = parse(arguments)
    try:
        return measure(given)
    except ClockhandsError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2


def measure(given: argparse.Namespace) -> int:
    """Measure cell after cell, and save each."""
    start, device = time.monotonic(), choose_device(given.device, "--device")
    if device.type == "cpu":
        torch.set_num_threads(1)
    schemes, setting = list_schemes(), describe_machine(device)
    left_out = {name: reason for name, reason in schemes.items() if isinstance(reason, str)}
    cells, wanted = load(given.out, setting), []
    for name in given.schemes:
        if name in left_out:
            print(f"left out: {name} {left_out[name]}")
    for length, name in product(sorted(given.lengths), given.schemes):
        if name not in left_out and make_label(name, length, given.dtype) not in cells:
            wanted.append((name, length))
    begun = 0
    for name, length in wanted:
        if begun and time.monotonic() - start > 60 * given.minutes:
            break
        label = make_label(name, length, given.dtype)
        case = Case(perturb(schemes[name]()), length, read_dtype(given.dtype), device)
        signature = sign(name, length, given.dtype, setting)
        cells[label] = {"signature": signature} | measure_cell(case, device, label)
        save(given.out, setting, cells, left_out)
        begun += 1
        print(f"{label}: {json.dumps(cells[label], ensure_ascii=False)}", flush=True)
    left = [f"{name}, {length}" for name, length in wanted[begun:]]
    print(f"{begun} measured; left for the same command: {'; '.join(left) if left else 'nothing'}")
    failures = [failure for cell in cells.values() for failure in cell["failures"]]
    print("\n".join(["failures:", *failures]) if failures else "no failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
