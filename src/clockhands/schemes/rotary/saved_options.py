"""Options that files of earlier versions leave out, because schemes had defaults for them: what those files meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clockhands.schemes.rotary.trained_length import WINDOWS, complete_position, list_missing_options

__all__ = ["complete_saved_position"]

OLDER_DEFAULTS = {"factor": 1.0, "original_length": 2048}
"""What a file means that gives a spectrum without these options, which had these defaults when it was written."""
OLDER_LENGTHS = {"llama3": 8192, "fope": 512, "dual-chunk": 4096}
"""The same for ``original_length`` of a spectrum and of schemes that had another default."""
OLDER_WINDOW = 512
"""The same for ``window`` of the schemes that have one."""


def complete_saved_position(table: Any) -> Any:
    """Return a position as a run saved it, on each of its sides, with the options that older files left out.

    What a file of this version leaves out it does not need, so that no version has to be told: what it needs was given
    or filled in before the model was built. ``table`` is a table of options, or one that holds others (``options``, a
    side, layers); anything else comes back as it is.
    """
    return complete_position(table, _find_older_options) if isinstance(table, Mapping) else table


def _find_older_options(scheme: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a scheme needs and a file leaves out, with the defaults that they had."""
    missing = list_missing_options(scheme, options)
    if scheme in WINDOWS and missing:
        # With None the length counts as not known: older trainings were not refused for a window beyond it.
        window = OLDER_WINDOW if options.get("window") is None else options["window"]
        return {"window": window, "original_length": None}
    name = options.get("spectrum") if scheme in (None, "rope") else scheme
    older = {**OLDER_DEFAULTS, "original_length": OLDER_LENGTHS.get(str(name), OLDER_DEFAULTS["original_length"])}
    return {option: older[option] for option in missing}
