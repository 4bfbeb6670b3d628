"""Numbers and names as a reader meets them."""

from __future__ import annotations

import pytest

from clockhands.findings import SHARE, Finding
from clockhands.report.text import format_amount, format_interval, format_number, format_quantity, make_slugs, use_minus


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (12, "12"),
        (-3, "−3"),
        (12345, "12,345"),
        (0.5, "0.5"),
        (9.401, "9.4"),
        (0.08, "0.08"),
        (-0.1234, "−0.123"),
        (123.456, "123"),
        (99999.5, "100,000"),
        (4.2e-7, "4.2 × 10⁻⁷"),
        (1.0e12, "1 × 10¹²"),
        (float("nan"), "–"),
        (float("inf"), "∞"),
        (float("-inf"), "−∞"),
        ("words\n", "words␊"),
    ],
)
def test_number(value: object, shown: str) -> None:
    assert format_number(value) == shown


def test_quantity_and_span() -> None:
    assert format_quantity(9.4, "%") == "9.4\u00a0%"
    assert format_quantity("none") == "none"
    assert format_interval((0.25, 1)) == "[0.25, 1]"
    assert format_amount(0.93042, SHARE, (0.93041, 0.93044)) == "93.042", "the digits of its interval"
    assert format_amount(0.93042, SHARE, (0.9, 0.95)) == format_amount(0.93042, SHARE) == "93"
    assert format_interval((0.93041, 0.93044)) == "[0.93041, 0.93044]"
    assert format_interval((0.0671, 0.0677), SHARE, "6.7 % (95 % interval 6.7 % to 6.8 %)") == "[6.7, 6.8]"
    assert format_interval((0.5, 0.5)) == "[0.5, 0.5]"
    assert format_interval(None) == ""
    # Both ends round to a number of the sentence that is neither.
    assert format_interval((0.462, 0.538), "", "No better than a guess, which is 0.5.") == "[0.462, 0.538]"


@pytest.mark.parametrize(
    ("value", "unit", "told", "shown"),
    [
        (0.0402, SHARE, "Positions carry 4.0 % (95 % interval 3.9 % to 4.1 %).", "4.0"),
        (0.984, SHARE, "98.4 % of 1,000 are right, 98 % of them twice.", "98.4"),
        (4.17, "tokens", "The 4 heads of layer 4.1 attend 4.2 tokens far.", "4.2"),
        (4.17, "tokens", "Four layers, 4 heads, layer 4.5, version 4.17.2, 4.1-fold.", "4.17"),
        (-0.0213, "nats", "better by 0.02 nats (-0.021)", "−0.021"),
        (47117.2, "", "from 6.3 to 47,117 positions", "47,117"),
        (4, "heads", "0 of 8 heads, possibly 4", "4"),
        (0.0372, SHARE, "between 3.7 and 4.3 %", "3.7"),
        (0.9662, SHARE, "It reads 97 items of 120.", "96.6"),
        (96.62, "tokens", "97 % of them", "96.6"),
        (0.5, "", "", "0.5"),
    ],
)
def test_a_number_is_written_as_its_sentence_writes_it(value: float, unit: str, told: str, shown: str) -> None:
    assert format_amount(value, unit, sentence=told) == shown


def test_slugs_are_safe_and_distinct() -> None:
    names = ("a.b", "a b", "../../etc", "<x>", "…")
    made = make_slugs(Finding(name, "", "") for name in names)
    assert len(set(made)) == len(names)
    assert all(set(make_slug) <= set("abcdefghijklmnopqrstuvwxyz-0123456789") for make_slug in made)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("z = -1.86 [-2.25, -.48]", "z = −1.86 [−2.25, −.48]"),
        ("-3 points (-2 to 5)", "−3 points (−2 to 5)"),
        ("a 4-layer model of 2024-05-03, GPT-2, layers 3-5", "a 4-layer model of 2024-05-03, GPT-2, layers 3-5"),
        ("--set offset=-1 - 2", "--set offset=-1 - 2"),
    ],
)
def test_numbers_in_sentences_have_a_minus_and_names_keep_their_hyphens(written: str, read: str) -> None:
    assert use_minus(written) == read
