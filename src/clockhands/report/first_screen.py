"""What a page shows first: the finding that opens it, and three cards with the findings that differ most.

The rule by which cards are chosen:

1. The distance of a finding is that of its value from its first reference, in units of uncertainty: how far the
   interval of the value reaches towards the reference, and how far the reference's own reaches towards the value.
2. At a distance of at most 1 the intervals meet: the finding is undecided, and never a card. Nor is one whose
   uncertainty is unknown, because neither the value nor the reference has an interval of any width.
3. Where the value and the reference differ by less than a tenth of the larger, the finding is no card: what is measured
   closely need not matter.
4. The three largest distances are the cards, the largest first; of equal ones the earlier on the page.
5. Where fewer than three are left, findings that are marked bad, then those to watch, fill up in the order of the page.

A finding may bring comparisons of its own, under ``details["compared"]``, which a test has decided: they stand for it,
and the second and third point do not apply to them. One with a text
under ``details["opening"]`` opens the page with that text, and with its table if that is small.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from clockhands.findings import Finding, Light, Number, Reference
from clockhands.report.text import format_interval, format_quantity

__all__ = [
    "CARDS",
    "Card",
    "Strip",
    "choose_cards",
    "draw_strip",
    "find_opening",
    "has_small_table",
    "measure_distance",
]

CARDS = 3
"""Cards on a page, at most."""
LEAST_DIFFERENCE = 0.1
"""The least difference of a card that no test has decided, as a part of the larger of its value and its reference."""
WIDTH, MARGIN = 240.0, 14.0
"""The width of the picture of a card, and what is left free at both its ends, in units of its view box."""
SMALL_TABLE = (4, 4)
"""Rows and columns of a table that stands in the opening, at most."""
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!al\.)(?<!vs\.)(?<!cf\.)\s+|\n")
Interval = tuple[Number, Number]


@dataclass(frozen=True)
class Strip:
    """Where the picture of a card has its marks, in units of its view box; ``words`` say the same."""

    value: float
    span: tuple[float, float] | None
    reference: float
    reference_span: tuple[float, float] | None
    words: str


@dataclass(frozen=True)
class Card:
    """One comparison of a page: ``id`` is that of the section which it leads to."""

    id: str
    question: str
    sentence: str
    light: Light
    value: Number | str | None = None
    unit: str = ""
    interval: Interval | None = None
    reference: Reference | None = None
    strip: Strip | None = None
    tested: bool = False
    """Whether a test has decided that the value differs from the reference."""


def choose_cards(named: Iterable[tuple[str, Finding]]) -> list[Card]:
    """Return the cards of a page by the rule of this module; ``named`` are the findings with the ids of their sections.

    The finding that opens the page is no card, unless it brings comparisons of its own.
    """
    named = list(named)
    ranked = []
    for place, card in enumerate(card for name, finding in named for card in _list_candidates(name, finding)):
        distance = _measure_card(card)
        if card.tested or (distance is not None and distance > 1 and _is_large(card)):
            ranked.append((-(distance or 0.0), place, card))
    cards = [card for *_, card in sorted(ranked, key=lambda entry: entry[:2])[:CARDS]]
    taken = {card.id for card in cards}
    rest = [_make_card(name, finding) for name, finding in named if name not in taken and not _opens(finding)]
    rest.sort(key=lambda card: card.light != "bad")
    fill = [card for card in rest if card.light in ("bad", "warn") and _measure_card(card) is None]
    return cards + fill[: CARDS - len(cards)]


def find_opening(findings: Iterable[Finding]) -> Finding | None:
    """Return the finding that opens the page: the first with ``details["opening"]``; None where there is none."""
    return next((finding for finding in findings if _opens(finding)), None)


def has_small_table(finding: Finding) -> bool:
    """Tell whether the table of a finding is small enough to stand in the opening."""
    return 0 < len(finding.table.rows) <= SMALL_TABLE[0] and len(finding.table.columns) <= SMALL_TABLE[1]


def measure_distance(value: Number, interval: Interval | None, reference: Reference) -> float | None:
    """Return how far a value is from its reference, in units of their uncertainty: above 1, the intervals are apart.

    None where neither has an interval of any width.
    """
    gap = float(reference.value) - float(value)
    reach = _reach(float(value), interval, gap) + _reach(float(reference.value), reference.interval, -gap)
    return abs(gap) / reach if reach > 0 else None


def _reach(value: float, interval: Interval | None, direction: float) -> float:
    """Return how far an interval reaches from its value in a direction; where it ends at the value, its whole width."""
    if interval is None:
        return 0.0
    low, high = map(float, interval)
    reach = high - value if direction > 0 else value - low
    return reach if reach > 0 else max(high - low, 0.0)


def _list_candidates(name: str, finding: Finding) -> Iterator[Card]:
    """Yield the comparisons of a finding: its own, or those that it brings."""
    compared = finding.details.get("compared", ())
    if compared:
        yield from (_make_card_of(name, finding, entry) for entry in compared)
    elif finding.light != "skip" and not _opens(finding):
        yield _make_card(name, finding)


def _make_card_of(name: str, finding: Finding, entry: Mapping[str, Any]) -> Card:
    """Return the card of one comparison that a finding brings: a dictionary with these keys."""
    reference = Reference(entry["reference"], entry["reference value"], _make_interval(entry.get("reference interval")))
    return _complete(
        Card(
            name, entry["question"], entry["sentence"], finding.light, entry["value"], entry["unit"],
            _make_interval(entry["interval"]), reference, tested=True,
        )
    )  # fmt: skip


def _make_card(name: str, finding: Finding) -> Card:
    """Return the card of a finding, with its first reference and the first sentence of its verdict."""
    reference = finding.references[0] if finding.references else None
    return _complete(
        Card(
            name, finding.question, _take_first_sentence(finding.verdict), finding.light, finding.value, finding.unit,
            finding.interval, reference,
        )
    )  # fmt: skip


def _complete(card: Card) -> Card:
    """Return the card with its picture, where it has a number and a reference."""
    if card.reference is None or not _is_number(card.value):
        return card
    strip = draw_strip(card.value, card.unit, card.interval, card.reference)
    return Card(**{**card.__dict__, "strip": strip})


def draw_strip(value: Number, unit: str, interval: Interval | None, reference: Reference) -> Strip:
    """Return the picture of a value beside its reference, both on one line that is as long as both need."""
    ends = [value, reference.value, *(interval or ()), *(reference.interval or ())]
    low, high = float(min(ends)), float(max(ends))

    def place(at: Number) -> float:
        share = (float(at) - low) / (high - low) if high > low else 0.5
        return round(MARGIN + share * (WIDTH - 2 * MARGIN), 1)

    def span(both: Interval | None) -> tuple[float, float] | None:
        return None if both is None else (place(both[0]), place(both[1]))

    words = f"{format_quantity(value, unit)} {format_interval(interval, unit)}".strip()
    against = f"{reference.name} {format_quantity(reference.value, unit)} {format_interval(reference.interval, unit)}"
    return Strip(
        place(value), span(interval), place(reference.value), span(reference.interval), f"{words}; {against.strip()}"
    )


def _measure_card(card: Card) -> float | None:
    """Return the distance of a card's value from its reference; None where it has none."""
    if card.reference is None or not _is_number(card.value):
        return None
    return measure_distance(card.value, card.interval, card.reference)


def _is_large(card: Card) -> bool:
    """Tell whether a value and its reference differ by a tenth of the larger at least; not so where one is missing."""
    if card.reference is None or not _is_number(card.value):
        return False
    value, reference = float(card.value), float(card.reference.value)
    return abs(value - reference) >= LEAST_DIFFERENCE * max(abs(value), abs(reference))


def _opens(finding: Finding) -> bool:
    """Tell whether a finding has a text with which it opens the page."""
    return bool(finding.details.get("opening"))


def _is_number(value: object) -> TypeGuard[Number]:
    """Tell whether a value is a number, and no flag."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _make_interval(ends: Sequence[Number] | None) -> Interval | None:
    """Return an interval that JSON may have made a list."""
    return None if ends is None else (ends[0], ends[1])


def _take_first_sentence(text: str) -> str:
    """Return the text up to its first full stop, or to its first line break."""
    return _SENTENCE_END.split(text.strip(), maxsplit=1)[0]
