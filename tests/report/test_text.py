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
    assert format_interval((0.5, 0.5)) == "[0.5, 0.5]"
    assert format_interval(None) == ""


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
