"""Clockhands: the workbench for how Transformers know word order.

Every verb of the command line is a function of the same name here (``schemes`` is the package of schemes). They are
found on first use, so that importing the package costs nothing (editors and mypy read ``__init__.pyi``)::

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
    "tour": "clockhands.studies.tour",
    "train": "clockhands.training",
    "translate": "clockhands.generation",
    "generate": "clockhands.generation",
    "evaluate": "clockhands.generation",
    "inspect": "clockhands.inspection",
    "compare": "clockhands.comparison",
    "study": "clockhands.studies.run",
    "check": "clockhands.checking",
    "explore": "clockhands.exploring",
    "extend": "clockhands.extension",
    "push": "clockhands.runs.export",
    "explain": "clockhands.explanation",
    "Pair": "clockhands.data",
    "Finding": "clockhands.findings",
    "Findings": "clockhands.findings",
    "ClockhandsError": "clockhands.errors",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        where = ""
        if name[:1].isupper() or name in ("attend", "count_up"):  # a module, for which Python asks too, is none
            for place in ("clockhands.schemes", "clockhands.attention", "clockhands.positions"):
                if name in importlib.import_module(place).__all__:
                    where = f"; write from {place} import {name}"
        raise AttributeError(f"module 'clockhands' has no attribute {name!r}{where}")
    try:
        verb = getattr(importlib.import_module(_HOME[name]), name)
        if isinstance(verb, type):
            return verb
        # A verb checks what it was called with here, once for all of them, and is the same function every time.
        from clockhands.options import check_call

        later = "clockhands.models" if _HOME[name] == "clockhands.generation" else ""
        return globals().setdefault(name, check_call(verb, later))
    except ModuleNotFoundError as fault:
        from clockhands.errors import MissingPackageError

        raise MissingPackageError(f"clockhands.{name}", str(fault.name)) from fault


def __dir__() -> list[str]:
    return sorted(__all__)
