"""What the checker costs: every architecture once (docs/tools/conformance), and one checkpoint at its real size.

python benchmarks/checking.py FOLDER

The matrix is left in FOLDER. Seconds of a build are those of its checks, after imports.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from timing import report

CHECKPOINT = """
import json, sys, threading, time
import psutil, torch
from transformers import LlamaConfig, LlamaForCausalLM
from clockhands.checking import examine

torch.set_num_threads(1)
torch.manual_seed(0)
folder = sys.argv[1]
if len(sys.argv) > 2:
    config = LlamaConfig(
        vocab_size=4000, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=2048,
        max_position_embeddings=1024,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    sys.exit()

calls = []
forward = LlamaForCausalLM.forward


def counted(self, input_ids, **named):
    calls.append(input_ids.numel())
    return forward(self, input_ids, **named)


def watch():
    while True:
        peak[0] = max(peak[0], process.memory_info().rss)
        time.sleep(0.005)


LlamaForCausalLM.forward = counted
process = psutil.Process()
before = process.memory_info().rss
peak = [before]
threading.Thread(target=watch, daemon=True).start()
started = time.process_time()
examine(folder)
found = {"CPU seconds": time.process_time() - started, "peak bytes": peak[0] - before, "calls": len(calls)}
print(json.dumps({**found, "tokens": sum(calls)}))
"""


def every_architecture(folder: Path) -> dict[str, Any]:
    """One process, beginning to end, if the folder is empty."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "docs/tools/conformance/sweep.py", str(folder)]
    run = subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
    assert run.returncode == 0, run.returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text("utf8").splitlines()]
    seconds = sorted(row["seconds"] for row in rows)
    return {
        "architectures": len(rows),
        "seconds of one, median": round(statistics.median(seconds), 2),
        "seconds of one, 90 %": round(seconds[int(0.9 * len(seconds))], 2),
        "seconds of one, longest": round(seconds[-1], 1),
        "CPU minutes in all": round((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 60, 1),
        "minutes in all": round((time.perf_counter() - started) / 60, 1),
        "peak of a process, GB": round(after.ru_maxrss / 1e6, 2),
    }


def a_checkpoint() -> dict[str, Any]:
    """Memory beyond that of the imports, in sizes of the file; the model is made by another process."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", CHECKPOINT, folder, "make"], check=True, capture_output=True)
        size = sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
        run = subprocess.run([sys.executable, "-c", CHECKPOINT, folder], check=True, capture_output=True, text=True)
        found = json.loads(run.stdout.splitlines()[-1])
    return {
        "file, MB": round(size / 1e6),
        "CPU seconds": round(found["CPU seconds"], 1),
        "forward passes": found["calls"],
        "tokens": found["tokens"],
        "peak, in sizes of the file": round(found["peak bytes"] / size, 1),
    }


def main() -> None:
    results = {"a checkpoint": a_checkpoint(), "every architecture": every_architecture(Path(sys.argv[1]))}
    setting = "one process, one thread, float32; Llama of 12 layers, d=768, random weights"
    report("checking", "python benchmarks/checking.py FOLDER", setting, results)


if __name__ == "__main__":
    main()
