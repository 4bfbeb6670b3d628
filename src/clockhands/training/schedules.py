"""Learning rates by update, as functions that say nothing of optimisers. Updates are counted from 1."""

from __future__ import annotations

import math
from collections.abc import Callable

from clockhands.runs.recipe.sections import Training

Rate = Callable[[int], float]


def paper(factor: float, d_model: int, warmup: int) -> Rate:
    """lr(s) = factor · d_model^-0.5 · min(s^-0.5, s · warmup^-1.5) (Vaswani et al. 2017, equation 3; factor 1)."""
    return lambda s: factor * d_model**-0.5 * min(s**-0.5, s * warmup**-1.5)


def inverse_sqrt(peak: float, warmup: int, start: float = 0.0) -> Rate:
    """Up in a line from ``start`` to ``peak`` at update ``warmup``, then peak · sqrt(warmup / s), as in fairseq."""
    return _risen(peak, warmup, start, lambda s: peak * math.sqrt(max(warmup, 1) / s))


def cosine(peak: float, warmup: int, total: int, final: float = 0.0, start: float = 0.0) -> Rate:
    """Up in a line, then half a cosine down from ``peak`` to ``final`` at update ``total``."""

    def fall(s: int) -> float:
        share = min(1.0, (s - warmup) / max(1, total - warmup))
        return final + (peak - final) * 0.5 * (1 + math.cos(math.pi * share))

    return _risen(peak, warmup, start, fall)


def constant(peak: float, warmup: int = 0, start: float = 0.0) -> Rate:
    """Up in a line, then ``peak``."""
    return _risen(peak, warmup, start, lambda _: peak)


def make_rate(training: Training, d_model: int, total: int) -> Rate:
    """Make the learning rate of a ``[training]`` without ``auto`` as a function of the update, of ``total``."""
    if training.schedule == "paper":
        return paper(training.rate, d_model, training.warmup)
    if training.schedule == "inverse-sqrt":
        return inverse_sqrt(training.rate, training.warmup, training.warmup_from)
    if training.schedule == "cosine":
        return cosine(training.rate, training.warmup, total, training.final_rate, training.warmup_from)
    return constant(training.rate, training.warmup, training.warmup_from)


def _risen(peak: float, warmup: int, start: float, after: Rate) -> Rate:
    return lambda s: start + (peak - start) * s / warmup if s < warmup else after(s)
