"""Learning rates, schedules and warm-ups over real text: what the defaults of training are chosen by.

    python benchmarks/defaults.py --data DATA [--task pairs ...] [--steps 500] [--cells cosine:4e-3:0.1 ...]

DATA holds multi30k/, pydocs-en-pt/ and tinyshakespeare/. One training after the other, the validation loss of each at
five places; every finished one is a line of results/defaults.jsonl, and what stands there is not trained again. A cell
is SCHEDULE:PEAK:WARM-UP[:KEY=VALUE,...], where the warm-up is a share of the steps; ``default`` is the recipe with no
word about any of them. Without --cells the whole grid is trained.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from timing import RESULTS

from clockhands.runs.recipe import make_recipe
from clockhands.training import TrainingData, prepare, train
from clockhands.training.callbacks import Diverged

FILE = RESULTS / "defaults.jsonl"
GRID = [
    f"{schedule}:{peak}:0.1" for schedule in ("cosine", "inverse-sqrt") for peak in ("1e-3", "2e-3", "4e-3", "8e-3")
]


def tasks(data: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Recipes that say nothing of rates, schedules and warm-ups."""
    multi30k = _pairs(data / "multi30k", "de", "en")
    characters = {
        "data": {"corpus": "text", "train": str(data / "tinyshakespeare/input.txt"), "unit": "file", "holdout": 0.1},
        "tokenizer": {"kind": "character"},
        "model": {"preset": "tiny"},
    }
    return {
        "pairs": multi30k,
        "pairs-post-norm": {**multi30k, "model": {"preset": "tiny", "norm": "post"}},
        "pairs-paper-deep": {
            **multi30k,
            "model": {"preset": "paper-base", "d_model": 64, "num_heads": 4, "d_ff": 256},
        },
        "pairs-tutorial-narrow": {
            **multi30k,
            "model": {"preset": "tutorial", "d_model": 64, "num_heads": 4, "head_dim": 16, "d_ff": 256},
        },
        "few-pairs": _pairs(data / "pydocs-en-pt", "en", "pt"),
        "characters": {**characters, "batches": {"size": 16}},
        "source-code": {
            "data": {"corpus": "stdlib"},
            "tokenizer": {"vocabulary": 1000},
            "model": {"preset": "tiny"},
            "batches": {"size": 16},
        },
        "masked": {**characters, "model": {"preset": "tiny", "kind": "encoder"}, "batches": {"size": 64}},
    }


def _pairs(folder: Path, source: str, target: str) -> dict[str, dict[str, Any]]:
    files = {
        name: str(folder / f"{split}.{language}")
        for split, prefix in (("train", ""), ("val", "validation_"))
        for language, name in ((source, f"{prefix}source"), (target, f"{prefix}target"))
    }
    return {
        "data": {"corpus": "parallel", **files},
        "tokenizer": {"vocabulary": 1000},
        "model": {"preset": "tiny"},
        "batches": {"size": 64},
    }


def settings(cell: str, steps: int) -> dict[str, Any]:
    """What a cell says of ``[training]``, and how long and how often validated all of them are."""
    common = {"training.max_steps": steps, "training.eval_steps": steps // 5, "training.device": "cpu",
              "training.precision": "fp32", "training.threads": 1, "training.explosion": 0.0}  # fmt: skip
    if cell == "default":
        return common
    schedule, peak, share, *others = cell.split(":")
    rates = {
        "training.schedule": schedule,
        "training.learning_rate": float(peak),
        "training.warmup_steps": round(float(share) * steps),
    }
    more = dict(pair.split("=") for pair in others[0].split(",")) if others else {}
    return {**common, **rates, **{key: json.loads(value) for key, value in more.items()}}


def measure(tables: dict[str, dict[str, Any]], material: TrainingData, cell: str, steps: int) -> dict[str, Any]:
    """The validation losses of one training, or that it diverged."""
    folder = Path(tempfile.mkdtemp(prefix="defaults-"))
    begun = time.process_time()
    recipe = make_recipe(tables, settings(cell, steps))
    try:
        run = train(recipe, folder / "run", material=material, draw=False)
        curve = [[line["step"], line["validation_loss"]] for line in run.metrics if "validation_loss" in line]
    except Diverged as fault:
        return {"diverged": str(fault)}
    finally:
        shutil.rmtree(folder)
    return {"loss": curve[-1][1], "curve": curve, "cpu_seconds": round(time.process_time() - begun)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--task", nargs="+", default=["pairs", "few-pairs", "characters", "source-code", "masked"])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--cells", nargs="+", default=GRID)
    given = parser.parse_args()
    done = {
        (line["task"], line["steps"], line["cell"])
        for line in map(json.loads, FILE.read_text("utf8").splitlines() if FILE.is_file() else ())
    }
    for task in given.task:
        tables, material = tasks(given.data)[task], None
        for cell in given.cells:
            if (task, given.steps, cell) in done:
                continue
            material = material or prepare(make_recipe(tables, settings(cell, given.steps)))
            result = {"task": task, "steps": given.steps, "cell": cell}
            result |= measure(tables, material, cell, given.steps)
            with FILE.open("a", encoding="utf8") as stream:
                stream.write(json.dumps(result) + "\n")
            print(task, given.steps, cell, result.get("loss", "diverged"), flush=True)


if __name__ == "__main__":
    main()
