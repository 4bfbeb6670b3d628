"""What several test files of this folder set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clockhands.comparison.statistics import simultaneous

KEPT = (simultaneous.draw_null, simultaneous.draw_true_variances, simultaneous._judge)
"""What is kept of the draws."""


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw what chance gives 5,000 times in place of 50,000, for tests that judge dozens of comparisons.

    What they ask holds of any number of draws: quantiles are taken so much higher that they are hardly ever too low.
    """
    monkeypatch.setattr(simultaneous, "DRAWS", 5_000)
    for function in KEPT:
        function.cache_clear()
    yield
    for function in KEPT:
        function.cache_clear()
