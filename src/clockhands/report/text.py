"""Values and names as a reader meets them: rounded, with a real minus sign, and never able to become markup."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from clockhands.findings import Finding, choose_digits

LIGHTS = {"good": "✓", "warn": "!", "bad": "✕", "info": "•", "skip": "–"}
MEANINGS = {"good": "good", "warn": "to watch", "bad": "bad", "info": "to know", "skip": "not applicable"}
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_CONTROL = {code: chr(0x2400 + code) for code in range(32)} | {127: "␡", 0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}
_CONTROL |= dict.fromkeys((*range(128, 160), *range(55296, 57344)), "�")
_LINES = {code: sign for code, sign in _CONTROL.items() if code != 10}


def replace_controls(text: object, *, lines: bool = False) -> str:
    """Replace control characters and broken surrogates by signs, so that XML and UTF-8 can hold the whole text.

    ``lines`` keeps line breaks; without it they too become a sign, as token text needs.
    """
    return str(text).translate(_LINES if lines else _CONTROL)


def format_number(value: Any, digits: int = 3) -> str:
    """Return three significant digits; whole numbers whole; ``4.2 × 10⁻⁷`` where zeros would hide the value."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return replace_controls(value)
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e6):
        return f"{int(value):,}".replace("-", "−").replace(",", "\u202f")
    return _format_real(value, digits)


def _format_real(value: float, digits: int) -> str:
    """Return a number that is not whole: fixed from 0.0001 to a million, with a power of ten outside."""
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if not -4 <= power < 6:
        mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa} × 10{str(power).translate(_SUPERSCRIPT)}".replace("-", "−")
    fixed = f"{value:,.{max(digits - 1 - power, 0)}f}"
    fixed = fixed.rstrip("0").rstrip(".") if "." in fixed else fixed
    return fixed.replace("-", "−").replace(",", "\u202f")


def format_quantity(value: Any, unit: str = "") -> str:
    """Return a number and its unit, with a space that does not break."""
    return f"{format_number(value)}\u00a0{replace_controls(unit)}" if unit else format_number(value)


def format_interval(interval: Sequence[Any] | None) -> str:
    """Return ``[0.21, 0.34]``, with more digits where three do not keep the ends apart; or nothing."""
    if not interval:
        return ""
    digits = choose_digits(interval[0], interval[1], 3, format_number)
    return f"[{format_number(interval[0], digits)}, {format_number(interval[1], digits)}]"


def make_slug(name: str) -> str:
    """Return the name in letters that are safe in file names and ids."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "finding"


def make_slugs(findings: Iterable[Finding]) -> list[str]:
    """Return one slug for each finding, all different."""
    seen: dict[str, int] = {}
    out = []
    for finding in findings:
        base = make_slug(finding.name)
        seen[base] = seen.get(base, 0) + 1
        out.append(base if seen[base] == 1 else f"{base}-{seen[base]}")
    return out
