"""A run of seconds, with everything that must survive a stop: dropout, accumulation, several epochs, a schedule."""

from __future__ import annotations

from typing import Any

TABLES: dict[str, dict[str, Any]] = {
    "data": {"corpus": "roles", "train": 240, "validation": 40, "test": 20},
    "tokenizer": {"kind": "word"},
    "model": {
        "preset": "tiny",
        "d_model": 16,
        "num_heads": 2,
        "d_ff": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "dropout": 0.1,
    },
    "batches": {"size": 16},
    "training": {
        "max_steps": 24,
        "learning_rate": 0.01,
        "warmup_steps": 5,
        "accumulate": 2,
        "log_steps": 4,
        "save_steps": 7,
        "eval_steps": 7,
        "label_smoothing": 0.1,
        "precision": "fp32",
    },
}


def tables(**training: Any) -> dict[str, dict[str, Any]]:
    """The tables with other fields of [training]; None takes a field away."""
    changed = {**TABLES["training"], **training}
    return {**TABLES, "training": {key: value for key, value in changed.items() if value is not None}}
