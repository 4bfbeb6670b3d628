"""Values as a person writes them: after ``--set name=``, or as ``KEY=VALUE``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from typing import Any

from clockhands.errors import ConfigError
from clockhands.options.annotations import convert, fits


def parse(written: str, type_: Any = Any) -> Any:
    """Return a value as a person writes it after ``--set name=``: TOML where the type takes that, else the text itself.

    ``training.max_steps=2000`` is a number, ``position.scheme=rope`` and ``data.source=2024`` (a file) are text, and
    ``training.report_to=tensorboard`` is a list of one. What does not fit is returned all the same, to be refused by
    ``check_value``.
    """
    try:
        table = tomllib.loads(f"value = {written}")
        value = table["value"] if len(table) == 1 else written
    except (ValueError, RecursionError):
        # No TOML, an integer of more digits than Python reads, or lists in lists in lists.
        value = {"True": True, "False": False}.get(written, written)
    if type_ is Any or fits(convert(value, type_), type_):
        return value
    if fits(written, type_):
        return written
    takes_numbers = fits(0.5, type_)
    if isinstance(value, str) and takes_numbers and re.fullmatch(r"[-+]?(\d+\.|\.\d+)", written.strip()):
        return float(written)  # .5 and 5. are no numbers in TOML
    return [value] if fits(convert([value], type_), type_) else value


def read_assignments(written: Iterable[str], source: str = "--set") -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a dict of texts; what is written later wins.

    Raises ConfigError, in the name of ``source``, for every text without an equals sign.
    """
    written = list(written)
    faults = [f"{text!r} is not of the form KEY=VALUE" for text in written if "=" not in text]
    if faults:
        raise ConfigError(faults, source)
    return {key.strip(): value.strip() for key, _, value in (text.partition("=") for text in written)}
