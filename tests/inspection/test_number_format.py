"""Numbers in verdicts."""

from __future__ import annotations

import pytest

from clockhands.inspection.number_format import (
    describe_untrained,
    format_decimal,
    format_estimate,
    format_percent,
    format_percent_range,
    format_ratio,
)


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.9, 0.93, "90 % to 93 %"),
        (0.9312, 0.9344, "93.1 % to 93.4 %"),
        (0.93121, 0.93124, "93.121 % to 93.124 %"),
        (0.05, 0.2, "5.0 % to 20 %"),
        (0.0051, 0.0053, "0.51 % to 0.53 %"),
        (0.00001, 0.0004, "0.001 % to 0.04 %"),
        (0.00032, 0.00034, "0.032 % to 0.034 %"),
        (0.5, 0.5, "50 % to 50 %"),
        (-0.00006, 0.00006, "−0.006 % to 0.006 %"),
        (-0.0000174, 0.00026, "−0.002 % to 0.03 %"),
        (-1e-9, 1e-9, "0.0 % to 0.0 %"),
    ],
)
def test_two_ends_that_differ_are_written_apart(low: float, high: float, shown: str) -> None:
    assert format_percent_range(low, high) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0924, "9.2 %"),
        (0.0994, "9.9 %"),
        (0.0996, "10 %"),
        (0.12, "12 %"),
        (0.0004, "0.04 %"),
        (-0.0004, "−0.04 %"),
        (4e-6, "0.0 %"),
        (-0.0, "0.0 %"),
        (-0.02, "−2.0 %"),
    ],
)
def test_a_percentage_has_one_decimal_below_ten(share: float, shown: str) -> None:
    assert format_percent(share) == shown


@pytest.mark.parametrize(
    ("estimate", "shown"),
    [
        ((0.0028, 0.0026, 0.0031), ("0.28 %", "95 % interval 0.26 % to 0.31 %")),
        ((0.0001, -0.0000174, 0.00026), ("0.01 %", "95 % interval −0.002 % to 0.03 %")),
        ((0.92, 0.9, 0.93), ("92 %", "95 % interval 90 % to 93 %")),
    ],
)
def test_a_share_has_the_digits_and_the_sign_of_its_interval(
    estimate: tuple[float, float, float], shown: tuple[str, str]
) -> None:
    assert format_estimate(*estimate) == shown


@pytest.mark.parametrize(("value", "shown"), [(1234.4, "1,234"), (43.2, "43"), (4.32, "4.3"), (0.00712, "0.0071")])
def test_a_ratio_has_two_significant_digits_or_more(value: float, shown: str) -> None:
    assert format_ratio(value) == shown


def test_a_minus_sign_is_no_hyphen_and_a_plus_sign_is_asked_for() -> None:
    assert (format_decimal(-0.021), format_decimal(0.52)) == ("−0.02", "0.52")
    assert (format_decimal(-0.021, plus=True), format_decimal(0.52, plus=True)) == ("−0.02", "+0.52")


@pytest.mark.parametrize(("share", "shown"), [(0.12, "; untrained 12 %"), (0.0, "; untrained 0.0 %"), (None, "")])
def test_a_control_is_named_where_there_is_one(share: float | None, shown: str) -> None:
    assert describe_untrained(share) == shown
