"""Clockhands: the workbench for how Transformers know word order.

The public names are found on first use, so that importing the package costs nothing::

    import clockhands

    run = clockhands.train("recipes/numbers.toml", "runs/numbers")
    clockhands.translate(run, ["zweihundertdrei"])
    clockhands.inspect(model, tokenizer, texts)

``import clockhands.auto`` makes the Auto classes of transformers open its runs.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "train": "clockhands.training",
    "translate": "clockhands.generation",
    "generate": "clockhands.generation",
    "evaluate": "clockhands.generation",
    "compare": "clockhands.comparison",
    "inspect": "clockhands.inspection",
    "check": "clockhands.checking",
    "Pair": "clockhands.data",
    "Finding": "clockhands.findings",
    "Findings": "clockhands.findings",
    "ClockhandsError": "clockhands.errors",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'clockhands' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOME[name]), name)
    except ModuleNotFoundError as fault:
        from clockhands.errors import MissingPackageError

        raise MissingPackageError(f"clockhands.{name}", str(fault.name)) from fault


def __dir__() -> list[str]:
    return sorted(__all__)
