"""LongRoPE's search: by how much each frequency is divided, found by trying (Ding et al. 2024, section 3.2).

Factors rise from fast hands to slow ones and lie between 1 and twice the extension. An evolution begins with the
factors of known rules; every candidate reads the same texts, so that losses are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float

__all__ = ["search_factors"]

Factors = Float[np.ndarray, " F"]
POPULATION = 8
"""Factors that are kept, and that are made from them, in every round."""


def search_factors(
    measure: Callable[[Factors], float],
    seeds: Sequence[Factors],
    factor: float,
    evaluations: int,
    *,
    seed: int = 0,
    progress: CountProgress = ignore_count,
) -> tuple[Factors, float]:
    """Search the factors with the smallest loss, by at most ``evaluations`` calls of ``measure``.

    Args:
        measure: returns the loss of a model under factors.
        seeds: factors to begin with; they are evaluated first.
        factor: how many times longer the texts are; factors are at most twice that.
        evaluations: calls of ``measure``, those of the seeds included.
        seed: of the random changes.

    Returns the best factors with their loss.
    """
    rng = np.random.default_rng(seed)
    tried: list[tuple[float, Factors]] = []
    for factors_F in [_repair(np.asarray(start), factor) for start in seeds][:evaluations]:
        tried.append((measure(factors_F), factors_F))
        progress("searching factors", len(tried), evaluations)
    while len(tried) < evaluations:
        tried.sort(key=lambda pair: pair[0])
        parents = [factors_F for _, factors_F in tried[:POPULATION]]
        for _ in range(min(POPULATION, evaluations - len(tried))):
            child_F = _repair(_change(parents, rng), factor)
            tried.append((measure(child_F), child_F))
            progress("searching factors", len(tried), evaluations)
    loss, best_F = min(tried, key=lambda pair: pair[0])
    return best_F, loss


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
