"""Intervals against exact ones of SciPy, and against what was drawn."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import binomtest

from clockhands.inspection.estimators.intervals import bootstrap_hit_share, bound_exactly


@pytest.mark.parametrize("texts", [2, 8, 48, 96])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_at_its_ends_a_share_has_the_exact_interval_over_texts(texts: int, share: float) -> None:
    """However many tokens each text has: here 30, all of which are hits or none."""
    hits, texts_n = torch.full((30 * texts,), share), torch.arange(texts).repeat_interleave(30)
    expected = binomtest(int(share) * texts, texts).proportion_ci(0.95, method="exact")
    assert bootstrap_hit_share(hits, texts_n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_between_them_texts_are_drawn_again_and_not_their_tokens() -> None:
    """Texts that are hit whole or missed whole tell as much as so many single tokens."""
    whole_N = (torch.arange(40) % 4 > 0).float()
    low, high = bootstrap_hit_share(whole_N.repeat_interleave(50), torch.arange(40).repeat_interleave(50))
    expected = binomtest(30, 40).proportion_ci(0.95, method="wilson")
    assert low == pytest.approx(expected.low, abs=0.05) and high == pytest.approx(expected.high, abs=0.05)
    assert bound_exactly((0.2, 0.3), 0.25, 9) == (0.2, 0.3)
