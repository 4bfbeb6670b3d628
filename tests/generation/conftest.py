"""Two small runs, trained once: a translator that has learnt its few sentences, and a language model."""

from __future__ import annotations

import pytest

from clockhands.runs import Run
from clockhands.training import train

TRAINING = {"learning_rate": 4e-3, "warmup_steps": 10, "threads": 1, "seed": 1, "log_steps": 20}
TINY = {"preset": "tiny", "d_model": 32, "d_ff": 64, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = {
        "data": {"corpus": "roles", "train": 600, "validation": 10, "test": 20, "adjectives": 0.0},
        "tokenizer": {"kind": "word"},
        "model": TINY,
        "position": {"scheme": "rope"},
        "batches": {"size": 64, "bucketed": False},
        "training": {**TRAINING, "max_steps": 60},
    }
    return train(recipe, tmp_path_factory.mktemp("runs") / "translator")


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text("the cat sat on the mat. " * 800, encoding="utf8")
    recipe = {
        "data": {"corpus": "text", "train": [str(folder / "text.txt")], "unit": "file", "holdout": 0.1},
        "tokenizer": {"kind": "character"},
        "model": {**TINY, "kind": "decoder"},
        "position": {"scheme": "rope"},
        "batches": {"size": 8, "window": 33},
        "training": {**TRAINING, "max_steps": 150},
    }
    return train(recipe, folder / "writer")
