"""Does a model handle position correctly? Laws, measured, with honest verdicts.

The names are found on first use: the pytest plugin lives here too, and must cost nothing where it is not used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clockhands.checking.examination import check, examine
    from clockhands.checking.result import Result

_HOME = {"check": "examination", "examine": "examination", "Result": "result"}

__all__ = ["Result", "check", "examine"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'clockhands.checking' has no attribute {name!r}")
    return getattr(importlib.import_module(f"clockhands.checking.{_HOME[name]}"), name)
