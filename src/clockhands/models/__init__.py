"""Anybody's model: one door that opens it, and what is read of it.

::

    from clockhands.models import open_language_model

    model = open_language_model("org/name")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clockhands.models.clockhands_subject import ClockhandsSubject
    from clockhands.models.door import (
        choose_class,
        find_task,
        judge_configuration,
        load_weights,
        open_subject,
        open_with_head,
        read_checked_config,
        refuse_unknown_positions,
    )
    from clockhands.models.huggingface_subject import HuggingFaceSubject
    from clockhands.models.language_model import (
        LanguageModel,
        find_trained_length,
        is_run,
        open_language_model,
        to_language_model,
    )
    from clockhands.models.subject import Subject

_MODULES = ("door", "subject", "language_model", "clockhands_subject", "huggingface_subject")
__all__ = [
    "ClockhandsSubject",
    "HuggingFaceSubject",
    "LanguageModel",
    "Subject",
    "choose_class",
    "find_task",
    "find_trained_length",
    "is_run",
    "judge_configuration",
    "load_weights",
    "open_language_model",
    "open_subject",
    "open_with_head",
    "read_checked_config",
    "refuse_unknown_positions",
    "to_language_model",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for, the door alone where that has it. Raises AttributeError for what is not here."""
    for module in _MODULES if name in __all__ else ():
        part = importlib.import_module(f"{__name__}.{module}")
        if hasattr(part, name):
            return getattr(part, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
