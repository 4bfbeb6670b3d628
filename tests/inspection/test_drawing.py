"""Numbers in verdicts."""

from __future__ import annotations

import pytest

from clockhands.inspection.drawing import format_percent, format_percent_range


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.9, 0.93, "90 % to 93 %"),
        (0.9312, 0.9344, "93.1 % to 93.4 %"),
        (0.93121, 0.93124, "93.121 % to 93.124 %"),
        (0.05, 0.2, "5.0 % to 20 %"),
        (0.0051, 0.0053, "0.51 % to 0.53 %"),
        (0.00001, 0.0004, "0.00 % to 0.04 %"),
        (0.5, 0.5, "50 % to 50 %"),
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
        (0.0004, "0.0 %"),
        (-0.0004, "0.0 %"),
        (-0.02, "−2.0 %"),
    ],
)
def test_a_percentage_has_one_decimal_below_ten(share: float, shown: str) -> None:
    assert format_percent(share) == shown
