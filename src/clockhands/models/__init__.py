"""Anybody's model: one door that opens it, and what is read of it.

::

    from clockhands.models import open_language_model

    model = open_language_model("org/name")
"""

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
from clockhands.models.language_model import (
    LanguageModel,
    find_trained_length,
    is_run,
    open_language_model,
    to_language_model,
)
from clockhands.models.subject import Subject

__all__ = [
    "LanguageModel", "Subject", "choose_class", "find_task", "find_trained_length", "is_run", "judge_configuration",
    "load_weights", "open_language_model", "open_subject", "open_with_head", "read_checked_config",
    "refuse_unknown_positions", "to_language_model",
]  # fmt: skip
