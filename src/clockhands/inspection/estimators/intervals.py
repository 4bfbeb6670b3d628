"""The 95 % intervals of the measures: bootstrap and jackknife over texts, Student's t, exact bounds of shares.

In names of tensors ``N`` are texts, ``n`` tokens; after ``without``, the texts or groups of texts that are left out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from scipy.special import stdtrit

from clockhands.shapes import Float, Int, Tensor

DRAWS = 400
"""Samples of texts that a bootstrap draws."""


def draw_texts(num_texts: int) -> Int[Tensor, "draws N"]:
    """Draw from ``num_texts`` texts, by number, with replacement, ``DRAWS`` times; the same ones at every call."""
    return torch.randint(num_texts, (DRAWS, num_texts), generator=torch.Generator().manual_seed(0))


def compute_central_range(values_N: Float[Tensor, " N"]) -> tuple[float, float]:
    """Return the 2.5 % and the 97.5 % quantile of some values, which may be draws of a bootstrap."""
    low, high = torch.quantile(values_N.double(), torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def bootstrap_ratio(numerator_N: Float[Tensor, "... N"], denominator_N: Float[Tensor, "... N"]) -> tuple[float, float]:
    """Return the 95 % percentile interval of Σ numerator / Σ denominator over N texts (Efron 1979).

    Of several rows, those of layers, it is that of the mean of their ratios.
    """
    # Texts are drawn, not tokens: those of one text hang together. A ratio of sums weights texts by their size. The
    # same texts are drawn for every layer, so that what a text does to all of them stays together.
    drawn = draw_texts(numerator_N.shape[-1])
    numerators, denominators = (values.double()[..., drawn].sum(-1) for values in (numerator_N, denominator_N))
    return compute_central_range((numerators / denominators.clamp_min(1e-30)).reshape(-1, DRAWS).mean(0))


def bootstrap_hit_share(hits_n: Float[Tensor, " n"], texts_n: Int[Tensor, " n"]) -> tuple[float, float]:
    """Return the 95 % interval of a share of hits, the texts that they come from drawn with replacement.

    Where all are hits, or none is, drawing texts gives one number, however few they are. There the bound is exact: of N
    texts in all of which every token was a hit, the share of such texts is at least 0.025^(1/N) (Clopper & Pearson
    1934), and the share of hits at least that.

    Args:
        hits_n: 1 for a hit and 0 for a miss, of n tokens.
        texts_n: the index of the text that each token comes from.
    """
    different, text_n = texts_n.unique(return_inverse=True)
    hits_N = torch.zeros(len(different), dtype=torch.float64).index_add_(0, text_n, hits_n.double())
    tokens_N = torch.bincount(text_n, minlength=len(different)).double()
    return bound_exactly(bootstrap_ratio(hits_N, tokens_N), float(hits_n.double().mean()), len(different))


def bound_exactly(interval: tuple[float, float], share: float, num_texts: int) -> tuple[float, float]:
    """Return ``interval``, or for a share of 0 or 1 over ``num_texts`` texts the exact one (Clopper & Pearson)."""
    if 0 < share < 1:
        return interval
    # All N texts succeed with probability pᴺ; the lowest p with which that is no rarer than 2.5 % is the bound.
    bound = 0.025 ** (1 / num_texts)
    return (bound, 1.0) if share >= 1 else (0.0, 1 - bound)


def compute_t_factor(degrees: int, tests: int = 1) -> float:
    """Return half a 95 % interval in standard errors, by Student's t; as one of ``tests`` intervals (Bonferroni)."""
    return float(stdtrit(degrees, 1 - 0.025 / tests))


def estimate_mean_interval(values_N: Float[Tensor, " N"]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of N ≥ 2 independent values, by Student's t."""
    count = len(values_N)
    half = compute_t_factor(count - 1) * float(values_N.double().std()) / count**0.5  # its standard error is s / √N
    mean = float(values_N.double().mean())
    return mean - half, mean + half


def jackknife(texts_NT: Tensor, estimate: Callable[[Tensor], float], groups: int = 10) -> tuple[float, float]:
    """Return the 95 % interval of an estimate from N ≥ 2 texts, from the estimates without each group of texts.

    Source: Tukey 1958; Wolter 2007, section 4.2, for groups.

    Args:
        texts_NT: the texts, along the first axis.
        estimate: computes the number from texts.
        groups: how many groups of texts, at most one for each text.
    """
    count = min(groups, len(texts_NT))
    group_N = torch.arange(len(texts_NT)) % count
    # Groups are taken in turn, so that neighbouring texts fall into different ones.
    without = torch.tensor([estimate(texts_NT[group_N != group]) for group in range(count)], dtype=torch.float64)
    return compute_jackknife_interval(estimate(texts_NT), without)


def compute_jackknife_interval(value: float, without_n: Float[Tensor, " n"]) -> tuple[float, float]:
    """Return the 95 % interval of an estimate from the n estimates without each group of texts, by Student's t.

    For n < 2 both ends are the value itself.
    """
    if len(without_n) < 2:
        return value, value
    half = compute_t_factor(len(without_n) - 1) * float(compute_jackknife_error(without_n))
    return value - half, value + half


def compute_jackknife_error(without: Float[Tensor, "n ..."]) -> Tensor:
    """Return the standard error √((n−1)/n Σ (estimate without a group − their mean)²) over the first axis.

    Source: Tukey 1958; in float64 where the estimates are.
    """
    # The estimates without a group are (n−1) times as close together as n independent ones would be.
    groups = len(without)
    return ((groups - 1) / groups * (without - without.mean(0)).square().sum(0)).sqrt()
