"""What is printed while trials run."""

from __future__ import annotations

import pytest

from clockhands.cli.trials import duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(40, "40 seconds"), (89, "89 seconds"), (90, "2 minutes"), (720, "12 minutes"), (5399, "90 minutes"),
     (5400, "1.5 hours"), (12_600, "3.5 hours")],
)  # fmt: skip
def test_a_time_is_told_in_the_unit_a_person_would_take(seconds: float, said: str) -> None:
    assert duration(seconds) == said
