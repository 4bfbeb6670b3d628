"""CPU time of short commands, whole processes, beside that of ``import torch``.

python benchmarks/start_up.py RUN        # RUN: a translator, such as the tour's
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from timing import report

ROUNDS = 5
CLOCKHANDS = [sys.executable, "-m", "clockhands"]


def list_commands(run: str, out: str) -> dict[str, list[str]]:
    """Return the commands by what they are called; the first is that by which the others are divided."""
    return {
        "import torch": [sys.executable, "-c", "import torch"],
        "--help": [*CLOCKHANDS, "--help"],
        "schemes rope": [*CLOCKHANDS, "schemes", "rope"],
        "schemes --json": [*CLOCKHANDS, "schemes", "--json"],
        "translate RUN, one word": [*CLOCKHANDS, "translate", run, "zwei"],
        "evaluate RUN": [*CLOCKHANDS, "evaluate", run],
        "check --type llama --tiny": [*CLOCKHANDS, "check", "--type", "llama", "--tiny"],
        "inspect RUN": [*CLOCKHANDS, "inspect", run, "--out", out],
    }


def measure_seconds(command: Sequence[str]) -> float:
    """Return the CPU time of one run of a command, by one thread."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The verb `check` ends with 1 where it finds a fault, and has printed its result then.
    if done.returncode and not ("check" in command and done.returncode == 1 and done.stdout):
        raise SystemExit(done.stderr)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        commands = list_commands(sys.argv[1], f"{folder}/report")
        for command in commands.values():
            measure_seconds(command)  # compiles what is compiled once
        rounds = [{name: measure_seconds(command) for name, command in commands.items()} for _ in range(ROUNDS)]
    results: dict[str, object] = {
        "import torch, seconds": round(statistics.median(timed["import torch"] for timed in rounds), 2)
    }
    for name in list(commands)[1:]:
        ratios = sorted(timed[name] / timed["import torch"] for timed in rounds)
        results[name] = [round(ratio, 2) for ratio in (statistics.median(ratios), ratios[0], ratios[-1])]
    setting = (
        f"CPU time over that of `import torch` in the same round, median, lowest and highest of {ROUNDS}; one thread"
    )
    report("start_up", "python benchmarks/start_up.py RUN", setting, results)


if __name__ == "__main__":
    main()
