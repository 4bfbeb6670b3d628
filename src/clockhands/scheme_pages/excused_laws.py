"""The laws that schemes break: which law, under which options, and why.

The tests expect the law to fail under exactly these options and to hold under all others, and the page says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from clockhands.options import defaults_of, options_of
from clockhands.schemes import CATALOGUE, read_part


class _BrokenLaw(NamedTuple):
    """One law that one scheme breaks, with ``when``: the values of options under which it does, or always."""

    scheme: str
    reason: str
    when: Mapping[str, Any] = MappingProxyType({})


_FLOAT32 = "is computed in float32 whatever the inputs, too coarse for finite differences"
_DIGITS = "and float32 carries seven digits of a million through it"
_LONGEST = "its frequencies follow the longest document of the row"

EXCEPTIONS: dict[str, tuple[_BrokenLaw, ...]] = {
    "packing": (
        _BrokenLaw("index", "it reads the longest document of the row", {"normalise": "length"}),
        _BrokenLaw("rope", _LONGEST, {"spectrum": "dynamic"}),
        _BrokenLaw("rope", _LONGEST, {"spectrum": "longrope"}),
    ),
    "far": (
        _BrokenLaw("dape", f"its network is fed biases as they are, {_DIGITS}", {"base": "alibi"}),
        _BrokenLaw("dynamic", f"its network is fed distances as they are, {_DIGITS}", {"log_distance": False}),
        _BrokenLaw("xpos", "its factors leave the range of float32 over such spans, which it refuses"),
        _BrokenLaw("swin", "offsets beyond its window raise PositionError"),
        _BrokenLaw("diet", "distances beyond its table raise PositionError", {"form": "relative"}),
    ),
    "finite differences of parameters": (
        _BrokenLaw("dape", f"its bias {_FLOAT32}"),
        _BrokenLaw("path", f"its coordinates are {_FLOAT32.removeprefix('is ')}"),
        _BrokenLaw("dynamic", f"its curve {_FLOAT32}"),
        _BrokenLaw("fire", f"its curve {_FLOAT32}"),
    ),
}


def find_excuse(law: str, scheme: str, options: Mapping[str, Any]) -> str:
    """Return why a scheme breaks a law under these options (defaults included); empty if it keeps it.

    A composition breaks the laws that its parts break.
    """
    if scheme == "composition":
        parts = [read_part(entry) for entry in options["schemes"]]
        wholes = ((name, {**defaults_of(options_of(CATALOGUE[name])), **own}) for name, own in parts)
        return next((reason for name, whole in wholes if (reason := find_excuse(law, name, whole))), "")
    for broken in EXCEPTIONS.get(law, ()):
        if scheme == broken.scheme and all(options[name] == value for name, value in broken.when.items()):
            return broken.reason
    return ""


def list_excuses(name: str) -> dict[str, str]:
    """Return for each law that a scheme breaks the options under which it does, and why."""
    broken: dict[str, list[str]] = {}
    for law, exceptions in EXCEPTIONS.items():
        for exception in exceptions:
            if exception.scheme == name:
                options = ",".join(f"{option}={value}" for option, value in exception.when.items())
                broken.setdefault(law, []).append(f"with {options} {exception.reason}" if options else exception.reason)
    return {law: "; ".join(reasons) for law, reasons in broken.items()}
