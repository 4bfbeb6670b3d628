"""Train the models that run in the pages of the site, and keep them in explorer/models, as a page reads them.

    python docs/make_models.py               # trains all of them, some minutes of one core
    python docs/make_models.py roles         # one training
    python docs/make_models.py --page FILE   # the page of all that are kept; trains nothing

`make docs` and `make explore` read what is kept and train nothing. A file NAME.json.gz is what a page is told of a
model, NAME.f16 are its weights in half precision.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from clockhands.exploring import ExplorerModel, make_page, prepare_model
from clockhands.exploring.model_data import hold_packed
from clockhands.files import write_text
from clockhands.generation import translate
from clockhands.runs import open_run
from clockhands.runs.checkpoints import get_step, list_checkpoints, read_weights
from clockhands.runs.recipe import make_recipe
from clockhands.studies.tour.result_findings import TWINS
from clockhands.training import train

HERE = Path(__file__).parents[1] / "explorer" / "models"
COMMAND = "make docs"
STEPS = 100, 140, 800
"""When the two translators of numbers are kept: early in the training, and at its end."""
SHARED: Mapping[str, Any] = {
    "model": {"preset": "tiny", "d_ff": 64, "encoder_layers": 1, "decoder_layers": 1, "norm": "pre"},
    "position": {"scheme": "sinusoidal"},
    "batches": {"size": 64, "bucketed": False},
    "training": {
        "max_steps": 800, "learning_rate": 4e-3, "schedule": "cosine", "warmup_steps": 30, "log_steps": 50,
        "save_minutes": 0.0, "threads": 1, "precision": "fp32", "device": "cpu", "seed": 1,
    },
}  # fmt: skip
NUMBERS = {"data": {"corpus": "numbers", "train": 10_000, "test": 200, "validation": 200, "longer": 0}}
ROLES = {
    "data": {
        "corpus": "roles",
        "train": 6000,
        "test": 200,
        "validation": 200,
        "clauses": 0.5,
        "depth": 2,
        "places": 0.3,
    },
    "tokenizer": {"kind": "word"},
}
MODELS: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "roles": ("who bit whom", ROLES, {"model.encoder_layers": 2}),
    "roles-no-position": (
        "who bit whom, without positions", ROLES, {"model.encoder_layers": 2, "position.scheme": "none"}
    ),
    "numbers": ("German numbers", NUMBERS, {"training.save_steps": 20, "training.keep": 40}),
    "numbers-no-scale": (
        "German numbers, trained without √d", NUMBERS,
        {"training.save_steps": 20, "training.keep": 40, "model.token_scale": "one"},
    ),
    "roles-side-by-side": (
        "who bit whom, positions beside the words", ROLES,
        {
            "model.encoder_layers": 2, "model.tying": "none", "position.combine": "concatenate", "position.width": 16,
        },
    ),
    "roles-learned": (
        "who bit whom, a learned table", ROLES,
        {"model.encoder_layers": 2, "position.scheme": "learned", "position.max_length": 64},
    ),
    "roles-index": (
        "who bit whom, the index", ROLES,
        {"model.encoder_layers": 2, "position.encoder.scheme": "index", "position.encoder.form": "direction"},
    ),
    "roles-index-over-length": (
        "who bit whom, the index over the length", ROLES,
        {
            "model.encoder_layers": 2, "position.encoder.scheme": "index", "position.encoder.form": "direction",
            "position.encoder.normalise": "length", "position.encoder.amplitude": 8.0,
        },
    ),
    "roles-no-residual": (
        "who bit whom, without residual connections", ROLES, {"model.encoder_layers": 2, "model.residual": False}
    ),
}  # fmt: skip
"""Every training: its label, its task, and what differs from `SHARED`."""


def list_names() -> list[str]:
    """Return the models of the page in their order; those of an earlier step are called NAME-STEP."""
    earlier = [f"{name}-{step}" for name in ("numbers", "numbers-no-scale") for step in STEPS[:-1]]
    return [*MODELS, *earlier]


def train_models(name: str) -> Iterator[ExplorerModel]:
    """Train one of `MODELS`; yield it, and it at the earlier of `STEPS` where its checkpoints were saved."""
    label, task, overrides = MODELS[name]
    recipe = make_recipe({**SHARED, **task}, overrides, source=name)
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(train(recipe, Path(folder) / "run", draw=False, progress=False))
        model = prepare_model(run, name, label)
        if task is ROLES:
            model.data["twins"] = {text.source: text.text for text in translate(run, list(TWINS))}
        yield model
        for checkpoint in list_checkpoints(run.path / "checkpoints"):
            step = get_step(checkpoint)
            if "training.save_steps" in overrides and step in STEPS[:-1]:
                run.model.load_state_dict(read_weights(checkpoint), strict=False)
                with hold_packed(run):
                    yield prepare_model(run, f"{name}-{step}", f"{label}, step {step}")


def keep(model: ExplorerModel) -> None:
    """Keep a model; the same one gives the same bytes."""
    name = model.data["id"]
    text = json.dumps(model.data, ensure_ascii=False, separators=(",", ":"))
    (HERE / f"{name}.json.gz").write_bytes(gzip.compress(text.encode("utf8"), mtime=0))
    (HERE / f"{name}.f16").write_bytes(model.weights)


def read_models() -> list[ExplorerModel]:
    """Return the models that are kept, in the order of `list_names`."""
    told = {name: json.loads(gzip.decompress((HERE / f"{name}.json.gz").read_bytes())) for name in list_names()}
    return [ExplorerModel(data, (HERE / f"{name}.f16").read_bytes()) for name, data in told.items()]


def write_live_page(answers_at: str = "") -> str:
    """Return the page in which the kept models run; ``answers_at`` is the folder of the answers seen from it."""
    return make_page(read_models(), COMMAND, answers_at)


def main() -> None:
    """Train the named models, or all, and keep them; or write their page."""
    if sys.argv[1:2] == ["--page"]:
        write_text(sys.argv[2], write_live_page())
        return
    torch.set_num_threads(1)
    HERE.mkdir(exist_ok=True)
    for name in sys.argv[1:] or MODELS:
        for model in train_models(name):
            keep(model)
            counted = model.data["measured"][0]
            print(model.data["id"], f"{counted['right']} of {counted['of']}", len(model.weights), flush=True)


if __name__ == "__main__":
    main()
