"""What the Trainer costs over a bare loop, in milliseconds a step, and what share of a real step that is.

    python benchmarks/trainer_overhead.py

The cost of a step's book-keeping does not depend on the size of the model, so it is measured with one so small that it
shows: runs of two lengths, whose difference leaves start and end out, against a loop over the same batches that does
forward, backward, clipping and the update. The share is of a step of training_step.py, taken in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from peers import Size, make_step, random_pairs
from timing import report

from clockhands.training import Recipe, load_recipe, prepare, train
from clockhands.training.model import build

RECIPE = Path(__file__).parent.parent / "recipes" / "numbers.toml"
SMALL = {
    "model.d_model": 32, "model.num_heads": 2, "model.d_ff": 32, "model.encoder_layers": 1, "model.decoder_layers": 1,
    "batches.size": 8, "training.precision": "fp32", "training.device": "cpu",
    "training.eval_steps": 1_000_000,
}  # fmt: skip
SHORT, LONG = 50, 250


def get_recipe(steps: int) -> Recipe:
    """The small model for some steps."""
    return load_recipe(RECIPE, {**SMALL, "training.max_steps": steps})


def trained(recipe: Recipe, material: Any) -> float:
    """CPU seconds of a whole run."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        train(recipe, Path(folder) / "run", material=material)
        return time.process_time() - start


def bare(recipe: Recipe, material: Any, steps: int) -> float:
    """CPU seconds of a loop without a Trainer."""
    model = build(recipe, material.tokenizers).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = material.batches(recipe).plan(0)
    start = time.process_time()
    for indices in islice(cycle(batches), steps):
        batch = material.collate([material.train[int(index)] for index in indices])
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return time.process_time() - start


def real_step(bf16: bool) -> float:
    """CPU seconds of a step of training_step.py."""
    step, pairs = make_step("clockhands", Size(), bf16), random_pairs(Size(), rows=64, length=32, shortest=26)
    taken = []
    for _ in range(4):
        start = time.process_time()
        step(pairs)
        taken.append(time.process_time() - start)
    return statistics.median(taken[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    short, long = get_recipe(SHORT), get_recipe(LONG)
    material = prepare(short)
    trained(short, material)
    rows = []
    for _ in range(given.rounds):
        with_trainer = (trained(long, material) - trained(short, material)) / (LONG - SHORT)
        rows.append((with_trainer, bare(long, material, LONG - SHORT) / (LONG - SHORT)))
    over = statistics.median(a - b for a, b in rows)
    steps = {"bf16": real_step(bf16=True), "fp32": real_step(bf16=False)}
    results = {
        "ms a small step": {
            "Trainer": ms(statistics.median(a for a, _ in rows)),
            "bare loop": ms(statistics.median(b for _, b in rows)),
        },
        "ms over the bare loop": ms(over),
        "ms a real step": {name: ms(seconds) for name, seconds in steps.items()},
        "share of a real step": {name: round(over / seconds, 4) for name, seconds in steps.items()},
    }
    setting = f"numbers, d=32, 1+1 layers, 8 pairs a batch; runs of {SHORT} and {LONG} steps; {given.rounds} rounds"
    report("trainer_overhead", "python benchmarks/trainer_overhead.py", setting, results)


def ms(seconds: float) -> float:
    return round(1000 * seconds, 2)


if __name__ == "__main__":
    main()
