"""Many variants against one baseline: Dunnett's tables, planted truths, and scores without variance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from clockhands.comparison.statistics.paired import estimate_difference
from clockhands.comparison.statistics.simultaneous import (
    bound_quantile,
    choose_prior,
    compare_with_baseline,
    draw_null,
    find_common,
    moderate,
)


def scores(variants: int, seeds: int, items: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Equal variants; seeds make most of their variance."""
    return [50 + rng.normal(0, 2, (seeds, 1)) + rng.normal(0, 5, (seeds, items)) for _ in range(variants)]


def test_a_single_variant_has_the_interval_of_a_single_difference() -> None:
    theirs, ours = scores(2, 5, 40, np.random.default_rng(0))
    assert compare_with_baseline([ours], [theirs]) == [estimate_difference(ours, theirs)]


def test_with_many_seeds_the_threshold_is_that_of_dunnett() -> None:
    """With variances that are known the largest of five |z| of correlation 1/2 is 2.51 (Dunnett 1964, table II)."""
    rng = np.random.default_rng(1)
    base, *others = scores(6, 60, 30, rng)
    gap = compare_with_baseline(others, [base] * 5)[0]
    assert (gap.high - gap.value) / gap.error == pytest.approx(2.54, abs=0.1)
    assert (gap.high - gap.value) / gap.error < stats.t.ppf(1 - 0.025 / 5, 59)


def test_many_variants_with_five_seeds_need_no_miracle() -> None:
    """Bonferroni at four degrees of freedom asks for 8.2 standard errors of 42 variants."""
    rng = np.random.default_rng(2)
    base, *others = scores(43, 5, 60, rng)
    others[7] = others[7] + 9
    gaps = compare_with_baseline(others, [base] * 42)
    assert [k for k, gap in enumerate(gaps) if gap.significant] == [7]
    assert max((gap.high - gap.value) / gap.error for gap in gaps) < 6
    assert stats.t.ppf(1 - 0.025 / 42, 4) > 8


@pytest.mark.usefixtures("few_draws")
def test_p_and_interval_never_disagree() -> None:
    rng = np.random.default_rng(3)
    for shift in np.linspace(0, 8, 12):
        base, *others = scores(6, 5, 20, rng)
        for gap in compare_with_baseline([ours + shift for ours in others], [base] * 5):
            assert (gap.adjusted < 0.05) == gap.significant
            assert gap.low < gap.inner[0] < gap.inner[1] < gap.high


@pytest.mark.usefixtures("few_draws")
def test_what_is_promised_to_be_detected_is_detected() -> None:
    rng = np.random.default_rng(4)
    promised, found = [], []
    for _ in range(120):
        base, *others = scores(7, 5, 40, rng)
        gaps = compare_with_baseline(others, [base] * 6)
        promised.append(np.mean([gap.detectable for gap in gaps]))
    shift = float(np.mean(promised))
    for _ in range(120):
        base, *others = scores(7, 5, 40, rng)
        found += [gap.significant for gap in compare_with_baseline([ours + shift for ours in others], [base] * 6)]
    assert 0.75 <= np.mean(found) <= 0.98, "80 % or more: variances may differ more than they do here"


@pytest.mark.usefixtures("few_draws")
def test_what_a_variant_is_promised_hangs_on_its_own_spread() -> None:
    """Eight quiet variants beside three loud ones: none is promised several times half its interval."""
    rng = np.random.default_rng(7)
    spreads = [1.0] * 9 + [4.0] * 3

    def draw() -> list[np.ndarray]:
        return [50 + rng.normal(0, spread, (5, 1)) + rng.normal(0, 0.5, (5, 40)) for spread in spreads]

    promised = []
    for _ in range(60):
        base, *others = draw()
        gaps = compare_with_baseline(others, [base] * 11)
        promised.append([(gap.detectable, (gap.high - gap.low) / 2) for gap in gaps])
    promised_M, half_M = np.median(np.array(promised, float), axis=0).T
    assert (promised_M / half_M).min() > 1.1 and (promised_M / half_M).max() < 1.6
    assert promised_M[-1] > 1.5 * promised_M[0]
    found = []
    for _ in range(60):
        base, *others = draw()
        shifted = [ours + shift for ours, shift in zip(others, promised_M, strict=True)]
        found.append([gap.significant for gap in compare_with_baseline(shifted, [base] * 11)])
    assert 0.72 < np.mean(found) < 0.9, "80 %, of the quiet ones more and of the loud ones less"


def test_unequal_variances_stand_alone() -> None:
    """Where they spread much more than chance makes them, none tells of another."""
    null = draw_null(5, 20, 100)
    equal, unequal = np.full(20, 2.0), 10.0 ** np.arange(-10, 10)
    assert choose_prior(list(equal), null) >= 6
    assert choose_prior(list(unequal), null) == 0
    assert choose_prior([1.0] * 4 + [0.0] * 16, null) == 0


def test_the_prior_is_found_from_variances_that_were_drawn_from_it() -> None:
    """True variances are a scaled inverse χ² of 6 degrees of freedom; many variants, so that it can be found."""
    rng = np.random.default_rng(6)
    true = 6 / rng.chisquare(6, 400)
    null = draw_null(5, 400, 100)
    assert choose_prior(list(true * rng.chisquare(4, 400) / 4), null) in (3.0, 4.0, 6.0), "on the safe side"
    measured = true * rng.chisquare(4, 400) / 4
    moderated = moderate(measured, find_common(measured, 6.0, 4), 6.0, 4)
    assert np.log(moderated).mean() == pytest.approx(np.log(true).mean(), abs=0.1)
    assert np.log(moderated).std() < np.log(true * rng.chisquare(4, 400) / 4).std()


def test_moderated_variances_by_hand() -> None:
    """Equal variances of 3, each with four degrees of freedom: the logarithm of such is 0.27 too low."""
    common = 3 * np.exp(special.digamma(1.0) - special.digamma(2.0) + np.log(2))
    assert find_common(np.array([3.0, 3.0]), 2.0, 4) == pytest.approx(common)
    assert moderate(np.array([3.0, 3.0]), common, 2.0, 4) == pytest.approx((2 * common + 4 * 3) / 6)
    assert moderate(np.array([3.0, 1.0]), 1.0, 0.0, 4).tolist() == [3.0, 1.0]


def test_a_variant_without_variance_has_exact_bounds() -> None:
    rng = np.random.default_rng(5)
    base = np.full((5, 200), 100.0)
    noisy = [100.0 * (rng.random((5, 200)) < 0.6) for _ in range(5)]
    same, *others = compare_with_baseline([base, *noisy], [base] * 6, top=100.0)
    assert same.low < -1 and same.high > 1 and same.low == -same.high and same.adjusted == 1 and same.detectable is None
    assert all(gap.high < -20 for gap in others)


def test_no_seed_of_the_generator_makes_a_quantile_smaller_than_it_is() -> None:
    """The 95 % quantile of |z| is 1.96; of 2,000 draws it comes out below that as often as above."""
    rng = np.random.default_rng(11)
    drawn = [np.abs(rng.standard_normal(2_000)) for _ in range(200)]
    true = stats.norm.ppf(0.975)
    assert 0.3 < np.mean([np.quantile(draws, 0.95) < true for draws in drawn]) < 0.7
    assert np.mean([bound_quantile(draws, 0.95) < true for draws in drawn]) < 0.02
    assert np.mean([bound_quantile(draws, 0.95) for draws in drawn]) == pytest.approx(true, abs=0.2)


@pytest.mark.usefixtures("few_draws")
def test_variants_with_fewer_seeds_have_wider_intervals() -> None:
    """Of equal variances of single seeds, five seeds leave twice the variance of a mean that ten leave."""
    rng = np.random.default_rng(12)
    errors = []
    for _ in range(40):
        base, *others = [50 + rng.normal(0, 4, (10, 1)) + np.zeros((10, 8)) for _ in range(8)]
        ours = [others[0][:5], *others[1:]]
        gaps = compare_with_baseline(ours, [base[:5], *[base] * 6])
        errors.append((gaps[0].error, float(np.mean([gap.error for gap in gaps[1:]]))))
    few, many = np.array(errors).mean(axis=0)
    assert few / many == pytest.approx(np.sqrt(2), abs=0.2)


def test_the_common_variance_counts_the_degrees_of_freedom_of_each() -> None:
    rng = np.random.default_rng(13)
    freedom = np.tile([2, 9], 4_000)
    variances = 7.0 * rng.chisquare(freedom) / freedom
    assert float(find_common(variances, 1e6, freedom)[0]) == pytest.approx(7.0, rel=0.03)


def test_what_few_seeds_scatter_more_is_not_taken_for_a_difference_of_variances() -> None:
    """Equal variances, half of them of three seeds and half of ten: their logarithms differ in spread and in mean."""
    rng = np.random.default_rng(14)
    null, freedom = draw_null(10, 60, 400), np.repeat([2, 9], 30)
    chosen = [choose_prior(rng.chisquare(freedom) / freedom, null, freedom) for _ in range(40)]
    assert np.median(chosen) >= 6
    blind = [choose_prior(rng.chisquare(freedom) / freedom, null) for _ in range(40)]
    assert np.median(blind) < 6, "as if all had ten seeds, their spread looks like one of the true variances"


def test_the_null_has_the_correlation_and_the_variance_of_differences_from_one_baseline() -> None:
    null = draw_null(5, 3, 100)
    assert np.corrcoef(null.means_BM.T) == pytest.approx(
        np.array([[1, 0.5, 0.5], [0.5, 1, 0.5], [0.5, 0.5, 1]]), abs=0.06
    )
    assert null.means_BM.var(axis=0) == pytest.approx(np.ones(3), abs=0.1)
    assert null.variances_BM.mean(axis=0) == pytest.approx(np.ones(3), abs=0.1)
