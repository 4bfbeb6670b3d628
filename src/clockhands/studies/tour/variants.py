"""What the tour trains: one translator, the same with one thing taken away, and a reader of who did what to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NUMBERS: Mapping[str, dict[str, Any]] = {
    "data": {"corpus": "numbers"},
    "tokenizer": {"vocabulary": 400},
    "model": {"preset": "tiny", "norm": "pre", "dropout": 0.0},
    "position": {"scheme": "sinusoidal"},
    "batches": {"size": 64, "bucketed": False},
    "training": {
        "max_steps": 300,
        "learning_rate": 4e-3,
        "schedule": "cosine",
        "warmup_steps": 50,
        "log_steps": 10,
        "seed": 1,
        "threads": 1,
        "precision": "fp32",
        "save_minutes": 0.0,
    },
}
ROLES: Mapping[str, dict[str, Any]] = {
    **NUMBERS,
    "data": {"corpus": "roles"},
    "tokenizer": {"kind": "word"},
    "training": {**NUMBERS["training"], "max_steps": 150},
}


@dataclass(frozen=True)
class Trial:
    """One training of the tour: its folder's name, how people call it, its recipe and what is changed in that."""

    name: str
    label: str
    recipe: Mapping[str, dict[str, Any]]
    changes: Mapping[str, Any]


MAIN = Trial("", "as in the paper", NUMBERS, {})
NO_POSITION = Trial("no-position", "no positions", NUMBERS, {"position.scheme": "none"})
NO_SCALE = Trial("no-scale", "no √d scale", NUMBERS, {"model.token_scale": "one"})
ROLES_MAIN = Trial("roles", "roles, as in the paper", ROLES, {})
ROLES_BLIND = Trial("roles-no-position", "roles, no positions", ROLES, {"position.scheme": "none"})
TRIALS = (MAIN, NO_POSITION, NO_SCALE, ROLES_MAIN, ROLES_BLIND)
