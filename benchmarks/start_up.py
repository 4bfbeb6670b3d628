"""CPU time of ``clockhands --help``, a whole process, beside that of Python alone.

python benchmarks/start_up.py
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

from timing import report

COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "clockhands --help": [sys.executable, "-m", "clockhands", "--help"],
}


def seconds(command: list[str]) -> float:
    """CPU time of one run of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(10):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    results = {name: round(statistics.median(times), 3) for name, times in taken.items()}
    report("start_up", "python benchmarks/start_up.py", "CPU seconds, the median of 10 processes each", results)


if __name__ == "__main__":
    main()
