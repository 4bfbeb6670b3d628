"""Open the language model that a caller names by its folder or hub name, or gives as an opened run or model."""

from __future__ import annotations

from pathlib import Path

from clockhands.runs import LanguageModel, Run, is_run, open_language_model, open_run

__all__ = ["to_language_model"]


def to_language_model(run: str | Path | Run | LanguageModel, action: str, *, masked: bool = False) -> LanguageModel:
    """Return ``run`` as a language model, and open it if it is a folder or a hub name.

    ``action``: what the model is to do, such as "generate", for messages. ``masked``: whether a model that fills in
    masked tokens is opened too. Raises UsageError for a run whose model cannot do that, and what ``open_run`` and
    ``open_language_model`` raise.
    """
    if isinstance(run, LanguageModel):
        return run
    if not isinstance(run, Run) and not is_run(run):
        return open_language_model(run, masked=masked)
    return LanguageModel.from_run(open_run(run), action, masked=masked)
