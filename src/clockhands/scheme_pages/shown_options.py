"""The options with which a scheme is shown, timed or tried where nobody gives those that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clockhands.schemes.rotary.trained_length import add_trained_length

SHOWN_LENGTH = 512
"""The trained length of what is shown: that of the text on which costs are measured."""


def complete_options(
    name: str, overrides: Mapping[str, Any] | None = None, length: int = SHOWN_LENGTH
) -> dict[str, Any]:
    """Return the options of a scheme, with ``length`` as its trained length where it needs one and has none."""
    completed: dict[str, Any] = add_trained_length({"scheme": name, **(overrides or {})}, length, only_needed=True)
    return {option: value for option, value in completed.items() if option != "scheme"}
