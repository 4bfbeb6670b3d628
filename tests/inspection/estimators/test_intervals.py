"""Intervals against exact ones of SciPy, and against what was drawn."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import binomtest, ttest_1samp

from clockhands.inspection.estimators.intervals import (
    bootstrap_hit_share,
    bootstrap_ratio,
    bound_exactly,
    compute_jackknife_interval,
    estimate_mean_interval,
    jackknife,
)


@pytest.mark.parametrize("texts", [2, 8, 48, 96])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_at_its_ends_a_share_has_the_exact_interval_over_texts(texts: int, share: float) -> None:
    """However many tokens each text has: here 30, all of which are hits or none."""
    hits, texts_n = torch.full((30 * texts,), share), torch.arange(texts).repeat_interleave(30)
    expected = binomtest(int(share) * texts, texts).proportion_ci(0.95, method="exact")
    assert bootstrap_hit_share(hits, texts_n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_between_them_texts_are_drawn_again_and_not_their_tokens() -> None:
    """Texts in which all tokens are hits, or none, count as one token each."""
    whole_N = (torch.arange(40) % 4 > 0).float()
    low, high = bootstrap_hit_share(whole_N.repeat_interleave(50), torch.arange(40).repeat_interleave(50))
    expected = binomtest(30, 40).proportion_ci(0.95, method="wilson")
    assert low == pytest.approx(expected.low, abs=0.05) and high == pytest.approx(expected.high, abs=0.05)
    assert bound_exactly((0.2, 0.3), 0.25, 9) == (0.2, 0.3)


def test_the_interval_of_a_mean_is_that_of_scipy() -> None:
    values = torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = ttest_1samp(values.numpy(), 0.0).confidence_interval(0.95)
    assert estimate_mean_interval(values) == pytest.approx((expected.low, expected.high))
    assert jackknife(values, lambda some: float(some.mean()), groups=12) == pytest.approx(
        (expected.low, expected.high)
    ), "the jackknife of a mean, one text a group, is Student's interval"


def test_one_group_has_no_interval() -> None:
    assert compute_jackknife_interval(0.3, torch.tensor([0.2])) == (0.3, 0.3)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_bootstrap_holds_the_true_ratio_as_often_as_it_says(layers: int) -> None:
    """95 % of 200 draws, with a binomial spread of 1.5 %; percentile intervals of 40 texts are a little narrow."""
    held = 0
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        below = 1 + torch.rand(layers, 40, generator=generator)
        above = 2 * below + torch.randn(layers, 40, generator=generator)
        low, high = bootstrap_ratio(above, below)
        held += low <= 2 <= high
    assert 0.89 <= held / 200 <= 0.99


def test_the_mean_over_layers_of_one_layer_is_its_ratio() -> None:
    above, below = torch.rand(1, 20), 1 + torch.rand(1, 20)
    assert bootstrap_ratio(above, below) == bootstrap_ratio(above[0], below[0])
