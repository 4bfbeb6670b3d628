"""LongRoPE's search: by how much each frequency is divided, found by trying (Ding et al. 2024, section 3.2).

Factors rise from fast hands to slow ones and lie between 1 and twice the extension. An evolution begins with the
factors of known rules; every candidate reads the same texts, so that losses are paired. One that is worse on the first
text than those from which the next are made reads no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float

__all__ = ["search_factors"]

Factors = Float[np.ndarray, " F"]
Tried = tuple[float, Factors, list[float]]
"""The score of factors, they, and their loss on each text that they were tried on."""
POPULATION = 8
"""Factors that are kept, and that are made from them, in every round."""


def search_factors(
    measure: Callable[[Factors, int], float],
    seeds: Sequence[Factors],
    factor: float,
    evaluations: int,
    *,
    texts: int = 1,
    seed: int = 0,
    progress: CountProgress = ignore_count,
) -> tuple[Factors, float]:
    """Search the factors with the smallest loss, of at most ``evaluations`` that are tried.

    Args:
        measure: returns the loss of a model under factors on one text, by its number.
        seeds: factors to begin with; they are evaluated first.
        factor: how many times longer the texts are; factors are at most twice that.
        evaluations: factors that are tried, the seeds included.
        texts: that each reads.
        seed: of the random changes.

    Returns the best factors with their mean loss.
    """
    rng = np.random.default_rng(seed)
    tried: list[Tried] = []

    def attempt(factors_F: Factors) -> None:
        tried.append(_attempt(measure, factors_F, texts, sorted(tried, key=_get_score)))
        progress("searching factors", len(tried), evaluations)

    for start_F in list(seeds)[:evaluations]:
        attempt(_repair(np.asarray(start_F), factor))
    while len(tried) < evaluations:
        parents = [factors_F for _, factors_F, _ in sorted(tried, key=_get_score)[:POPULATION]]
        for _ in range(min(POPULATION, evaluations - len(tried))):
            attempt(_repair(_change(parents, rng), factor))
    loss, best_F, _ = min(tried, key=_get_score)
    return best_F, loss


def _get_score(entry: Tried) -> float:
    return entry[0]


def _attempt(
    measure: Callable[[Factors, int], float], factors_F: Factors, texts: int, ranked: Sequence[Tried]
) -> Tried:
    """Measure factors on the first text, and on the others unless the last of the parents beats them there.

    The score of those that are given up is that parent's, more by what they lose to it on the first text.
    """
    first = measure(factors_F, 0)
    if len(ranked) >= POPULATION:
        score, _, losses = ranked[POPULATION - 1]
        if first > losses[0]:
            return score + first - losses[0], factors_F, [first]
    losses = [first, *(measure(factors_F, text) for text in range(1, texts))]
    return float(np.mean(losses)), factors_F, losses


def _change(parents: Sequence[Factors], rng: np.random.Generator) -> Factors:
    """Return the mean of two parents in the logarithm, or one of them, with some neighbouring factors changed."""
    first, second = rng.integers(len(parents), size=2)
    share = rng.choice([0.0, 0.5])
    child_F: Factors = np.exp((1 - share) * np.log(parents[first]) + share * np.log(parents[second]))
    centre, width = rng.uniform(0, len(child_F)), rng.uniform(0.5, len(child_F) / 3 + 0.5)
    bump_F = np.exp(-0.5 * ((np.arange(len(child_F)) - centre) / width) ** 2)
    return child_F * np.exp(rng.normal(0, 0.35) * bump_F)


def _repair(factors_F: Factors, factor: float) -> Factors:
    """Return factors that are at least 1, at most twice the extension, and never fall from fast hands to slow."""
    return np.maximum.accumulate(np.clip(factors_F, 1.0, 2 * factor))
