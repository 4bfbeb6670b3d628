"""Values and names as a reader meets them: rounded, with a real minus sign, and never able to become markup."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from clockhands.findings import SHARE, Finding, Light, Number, Scalar, choose_digits
from clockhands.streams import replace_controls

LIGHTS: dict[Light, str] = {"good": "✓", "warn": "!", "bad": "✕", "info": "•", "skip": "–"}
"""The sign of each light."""
MEANINGS: dict[Light, str] = {
    "good": "good",
    "warn": "to watch",
    "bad": "bad",
    "info": "to know",
    "skip": "not applicable",
}
"""Each light in words, in the order in which they are counted."""
_ABSOLUTE = re.compile(r"(?<![\w.:/~…<\\-])(?:/|[A-Za-z]:[/\\])((?:[\w.+@-]+[/\\])+)([\w.+@-]+)")
"""A path from the root with at least one folder; no address, no tag, no fraction."""
_MINUS = re.compile(r"(?<![^\s(\[,±])-(?=\.?\d)")
"""A hyphen before a number, at the beginning of a word or of an interval's end; none between numbers or in a name."""
_NUMBER = re.compile(
    r"(?<![\w.,−-])([−-]?\d+(?:,\d{3})*(?:\.\d+)?)(?!\w|\.\d)(?=(\s*%|\s(?:to|and|or)\s[−-]?[\d.,]+\s*%)?)"
)
"""A number, and the percent sign behind it, or behind the next one as in "3.7 to 4.3 %"."""
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!al\.)(?<!vs\.)(?<!cf\.)\s+|\n")
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def use_minus(text: str) -> str:
    """Write the minus signs of numbers in a sentence as ``−``; commands keep their hyphens, and are no sentences."""
    return _MINUS.sub("−", text)


def format_number(value: Scalar, digits: int = 3) -> str:
    """Return three significant digits, ``12,345`` whole, and ``4.2 × 10⁻⁷`` where zeros would hide the value."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return replace_controls(value)
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e6):
        return f"{int(value):,}".replace("-", "−")
    # Fixed from 0.0001 to a million, with a power of ten outside.
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if not -4 <= power < 6:
        mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa} × 10{str(power).translate(_SUPERSCRIPT)}".replace("-", "−")
    fixed = f"{value:,.{max(digits - 1 - power, 0)}f}"
    fixed = fixed.rstrip("0").rstrip(".") if "." in fixed else fixed
    return fixed.replace("-", "−")


def scale_unit(unit: str) -> tuple[float, str]:
    """Return by what a reader's number is larger than the stored one, and the unit that a reader sees.

    Shares are stored from 0 to 1 in the unit ``SHARE``, and shown in percent, as verdicts tell them.
    """
    first, _, rest = unit.partition(" ")
    return (100.0, f"% {rest}".strip()) if first == SHARE else (1.0, unit)


def format_amount(value: Scalar, unit: str = "", interval: Sequence[Number] | None = None, sentence: str = "") -> str:
    """Return a number of this unit as a reader sees it, without the unit: as ``sentence`` writes it.

    What no sentence tells has three significant digits, or as many as keep the ends of its interval apart.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return format_number(value)
    factor, _ = scale_unit(unit)
    number = value * factor if factor != 1.0 else value
    digits = 3 if not interval else choose_digits(interval[0] * factor, interval[1] * factor, 3, format_number)
    return _find_in_sentence(number, unit, sentence) or format_number(number, digits)


def _find_in_sentence(number: Number, unit: str, sentence: str) -> str:
    """Return how a sentence writes a number: of what in it is this number rounded, the longest; else nothing.

    A share is written before a percent sign, and nothing else is: "97 items" is not 96.6 % rounded.
    """
    longest = ""
    for text, share in _NUMBER.findall(sentence):
        if bool(share) != (scale_unit(unit)[1][:1] == "%"):
            continue
        bare = text.replace(",", "").replace("−", "-")
        rounding = 0.5 * 10.0 ** -len(bare.partition(".")[2])
        # A single whole digit may be another number of the sentence: "4 heads" is not 4.2 rounded.
        near = abs(float(bare) - number) <= rounding * (1 + 1e-9) and len(bare.lstrip("-")) > 1
        if (near or float(bare) == number) and len(text) > len(longest):
            longest = text
    return longest.replace("-", "−")


def format_quantity(value: Scalar, unit: str = "", interval: Sequence[Number] | None = None, sentence: str = "") -> str:
    """Return a number and its unit, with a space that does not break; digits as ``format_amount``."""
    shown = format_amount(value, unit, interval, sentence)
    return f"{shown}\u00a0{replace_controls(scale_unit(unit)[1])}" if unit else shown


def format_interval(interval: Sequence[Number] | None, unit: str = "", sentence: str = "") -> str:
    """Return ``[0.21, 0.34]``, its ends as ``format_amount`` writes them; or nothing."""
    if not interval:
        return ""
    low, high = (format_amount(end, unit, interval, sentence) for end in interval)
    if low == high:  # the sentence has one number, which both ends round to
        low, high = (format_amount(end, unit, interval) for end in interval)
    return f"[{low}, {high}]"


def describe_measured(finding: Finding, signature: str = "") -> str:
    """Return the value of a finding with its interval, its references by name, and the signature: a caption's end."""
    if finding.value is None or isinstance(finding.value, str):
        return f"Measured by {replace_controls(signature)}." if signature else ""
    unit, sentence = finding.unit, finding.verdict
    value = format_quantity(finding.value, unit, finding.interval, sentence)
    parts = [f"Value {value} {format_interval(finding.interval, unit, sentence)}".strip()]
    for reference in finding.references:
        beside = f"{replace_controls(reference.name)} {format_quantity(reference.value, unit, sentence=sentence)}"
        parts.append(f"{beside} {format_interval(reference.interval, unit, sentence)}".strip())
    measured = f" Measured by {replace_controls(signature)}." if signature else ""
    return f"{'; '.join(parts)}.{measured}"


def take_first_sentence(text: str) -> str:
    """Return the text up to its first full stop, or to its first line break."""
    return _SENTENCE_END.split(text.strip(), maxsplit=1)[0]


def shorten_paths(text: str) -> str:
    """Replace absolute paths in a text, which tell of the machine alone: the last name stays, ``…/name``.

    What lies in the working directory is named from there (``./name``), and what lies at home after ``~``.
    """
    for folder, short in ((str(Path.cwd()), "."), (str(Path.home()), "~")):
        if len(folder) > 1:
            text = re.sub(re.escape(folder) + r"(?![\w.-])", short, text)
    return _ABSOLUTE.sub(lambda match: f"…/{match[2]}", text)


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
