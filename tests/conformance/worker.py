"""A worker of a sweep that checks no model, and so imports nothing: some names crash it, some hang."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any


def answer(name: str, only: Sequence[str] | None, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return this result under a name."""
    if name.startswith("crash"):
        os._exit(7)
    if name.startswith("hang"):
        time.sleep(60)
    return {**result, "model": name}
