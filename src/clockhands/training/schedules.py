"""Learning-rate schedules, as functions from the number of the update (counted from 1) to the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable

from clockhands.runs.recipe.sections import Training

__all__ = ["Rate", "constant", "cosine", "inverse_sqrt", "make_rate", "paper"]

Rate = Callable[[int], float]


def paper(factor: float, d_model: int, warmup: int) -> Rate:
    """Return the schedule of the paper: lr(s) = factor · d_model^-0.5 · min(s^-0.5, s · warmup^-1.5).

    That is equation 3 of Vaswani et al. 2017, which has ``factor`` 1.
    """
    return lambda s: factor * d_model**-0.5 * min(s**-0.5, s * warmup**-1.5)


def inverse_sqrt(peak: float, warmup: int, start: float = 0.0) -> Rate:
    """Return a rate that rises linearly from ``start`` to ``peak`` at update ``warmup``, then is peak · √(warmup / s).

    This is the inverse_sqrt schedule of fairseq.
    """
    return _add_warmup(peak, warmup, start, lambda s: peak * math.sqrt(max(warmup, 1) / s))


def cosine(peak: float, warmup: int, total: int, final: float = 0.0, start: float = 0.0) -> Rate:
    """Return a rate that rises linearly to ``peak`` at update ``warmup``, then falls as half a cosine.

    It reaches ``final`` at update ``total`` (Loshchilov & Hutter 2017, equation 5, without restarts).
    """

    def fall(s: int) -> float:
        share = min(1.0, (s - warmup) / max(1, total - warmup))
        return final + (peak - final) * 0.5 * (1 + math.cos(math.pi * share))

    return _add_warmup(peak, warmup, start, fall)


def constant(peak: float, warmup: int = 0, start: float = 0.0) -> Rate:
    """Return a rate that rises linearly from ``start`` to ``peak`` at update ``warmup``, and stays there."""
    return _add_warmup(peak, warmup, start, lambda _: peak)


def make_rate(training: Training, d_model: int, total: int) -> Rate:
    """Make the learning rate of a ``[training]`` as a function of the update, counted from 1 to ``total``.

    Its ``learning_rate`` and ``warmup_steps`` must be numbers, not ``auto``.
    """
    if training.schedule == "paper":
        return paper(training.rate, d_model, training.warmup)
    if training.schedule == "inverse-sqrt":
        return inverse_sqrt(training.rate, training.warmup, training.warmup_from)
    if training.schedule == "cosine":
        return cosine(training.rate, training.warmup, total, training.final_rate, training.warmup_from)
    return constant(training.rate, training.warmup, training.warmup_from)


def _add_warmup(peak: float, warmup: int, start: float, after: Rate) -> Rate:
    """Return a rate that rises linearly from ``start`` to ``peak``, and is ``after`` from update ``warmup`` on."""
    return lambda s: start + (peak - start) * s / warmup if s < warmup else after(s)
