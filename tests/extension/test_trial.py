"""The search stays within its bounds and its number of evaluations, and finds what is there to be found."""

from __future__ import annotations

import numpy as np
import pytest

from clockhands.extension.trial import search_factors

PAIRS = 12
HIDDEN = np.linspace(1.0, 6.0, PAIRS)


@pytest.mark.parametrize("evaluations", [3, 64, 200])
def test_factors_are_found_within_the_evaluations(evaluations: int) -> None:
    calls = []

    def measure(factors_F: np.ndarray, text: int = 0) -> float:
        assert (factors_F >= 1).all() and (factors_F <= 8).all() and (np.diff(factors_F) >= 0).all()
        calls.append(factors_F)
        return float((np.log(factors_F / HIDDEN) ** 2).mean())

    starts = [np.full(PAIRS, 4.0), np.ones(PAIRS)]
    best_F, loss = search_factors(measure, starts, 4.0, evaluations, seed=1)
    assert len(calls) == evaluations
    first = min(float((np.log(start / HIDDEN) ** 2).mean()) for start in starts)
    assert loss == measure(best_F) <= first
    assert evaluations < 64 or loss < first / 3


def test_what_is_worse_on_the_first_text_than_the_last_parent_reads_no_other() -> None:
    read: list[list[int]] = []
    noise = np.random.default_rng(3).normal(0, 0.3, 4)

    def measure(factors_F: np.ndarray, text: int) -> float:
        if text == 0:
            read.append([])
        read[-1].append(text)
        return float((np.log(factors_F / HIDDEN) ** 2).mean() + noise[text])

    best_F, loss = search_factors(measure, [np.full(PAIRS, 4.0)], 4.0, 64, texts=4, seed=1)
    assert len(read) == 64 and all(texts in ([0], [0, 1, 2, 3]) for texts in read)
    assert read.count([0]) > 16, "texts are paired, so the first tells which is better"
    assert loss == pytest.approx((np.log(best_F / HIDDEN) ** 2).mean() + noise.mean()), "the best has read all"
