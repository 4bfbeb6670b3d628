"""Tries every method on few texts, the better half on more, and searches factors, before anything is judged.

A text is scored on all tokens of its later half, so that a few texts tell methods apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from clockhands.extension.archive import Archive
from clockhands.extension.methods import Method, apply, make_longrope
from clockhands.extension.reading import FEWEST_TEXTS, Stream, cut_texts, measure_losses, multiply_texts
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float, Int

Factors = Float[np.ndarray, " F"]
POPULATION = 8
"""Factors that are kept, and that are made from them, in every round."""
FIRST_TEXTS = 2
"""Texts on which every method is tried, or so many times as many as ``multiply_texts`` says."""
FINALISTS = 4
"""Methods that are judged besides the model as it is and what the search found."""
SEARCH_TEXTS = 4
"""Texts that a candidate of the search reads, unless the first shows that it is none of the best; or as many groups."""


@dataclass(frozen=True)
class Setting:
    """On what methods are tried or judged: lengths from the trained one on, a text, and how much of it.

    ``texts``: at most so many are read in a trial. A judgement reads half as many at every length, and four times as
    many of the trained one. ``tasks``: those of retrieval that the model has learned, of each ``items`` questions. Of
    short texts more are read, and more is asked, as ``multiply_texts`` says.
    """

    model: LanguageModel
    stream: Stream
    lengths: Sequence[int]
    texts: int
    items: int
    tasks: Sequence[str]
    seed: int = 0
    archive: Archive = field(default_factory=lambda: Archive(None))
    progress: CountProgress = ignore_count

    @property
    def trained(self) -> int:
        """The trained length, which is the shortest."""
        return self.lengths[0]

    @property
    def longest(self) -> int:
        """The longest length."""
        return self.lengths[-1]

    @property
    def times(self) -> int:
        """How many times as many texts and questions there are where model and texts are small."""
        return multiply_texts(self.model, self.longest)


def cut_trial_texts(
    model: LanguageModel, stream: Stream, longest: int, count: int
) -> tuple[Int[np.ndarray, "N S"], int]:
    """Cut texts of ``longest`` tokens, and return how many of their last tokens are scored.

    Half of them; fewer where the stream is short. Raises UsageError where not even a few are left for each.
    """
    own = longest - len(model.start_ids)
    tail = min(longest // 2, (len(stream) - own) // (FEWEST_TEXTS - 1))
    return cut_texts(stream, longest, max(tail, 0), count, model.start_ids), tail


def try_methods(setting: Setting, methods: Sequence[Method]) -> dict[str, tuple[float, int]]:
    """Return of every method the mean loss in the last round that it was in, with the number of its texts.

    Successive halving: all methods on ``FIRST_TEXTS``, the better half on twice as many, until ``FINALISTS`` are left.
    """
    model, longest = setting.model, setting.longest
    tried: dict[str, tuple[float, int]] = {}
    rivals, count = list(methods), FIRST_TEXTS
    while len(rivals) > FINALISTS and count <= setting.texts:
        texts_NS, tail = cut_trial_texts(model, setting.stream, longest, setting.times * count)
        read = len(texts_NS)
        for number, method in enumerate(rivals):
            setting.progress(f"trying methods on {read} texts", number, len(rivals))
            key = f"try/{method.key}/{read}/{longest}"
            tried[method.name] = (_measure_mean(setting, key, method, texts_NS, tail), read)
        rivals.sort(key=lambda method: tried[method.name][0])
        rivals, count = rivals[: max(FINALISTS, -(-len(rivals) // 2))], 2 * count
    return tried


def search(setting: Setting, starts: Sequence[Factors], evaluations: int) -> tuple[Method, float, int]:
    """Search the factors of LongRoPE, and return the best as a method, with its loss and the texts of that."""
    longest, factor = setting.longest, setting.longest / setting.trained
    texts_NS, tail = cut_trial_texts(setting.model, setting.stream, longest, SEARCH_TEXTS * setting.times)
    groups = min(SEARCH_TEXTS, len(texts_NS))

    def make(factors_F: Factors) -> Method:
        description = "factors found by search, beyond the trained length"
        return make_longrope("searched", description, tuple(map(float, factors_F)), setting.trained, factor)

    def measure(factors_F: Factors, group: int) -> float:
        name, group_NS = ",".join(f"{value:.6g}" for value in factors_F), texts_NS[group::groups]
        key = f"search/{name}/{group}/{len(group_NS)}/{longest}"
        return _measure_mean(setting, key, make(factors_F), group_NS, tail)

    best_F, loss = search_factors(
        measure, starts, factor, evaluations, texts=groups, seed=setting.seed, progress=setting.progress
    )
    return make(best_F), loss, len(texts_NS)


def _measure_mean(setting: Setting, key: str, method: Method, texts_NS: Int[np.ndarray, "N S"], tail: int) -> float:
    """Return the mean loss of the last tokens under a method; infinite where the model cannot read so far."""

    def measure() -> float:
        with apply(setting.model, method) as extended:
            if extended.max_length is not None and texts_NS.shape[1] > extended.max_length:
                return np.inf
            return float(measure_losses(extended, texts_NS, tail).mean())

    return float(setting.archive.keep(key, measure))


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
    tried: list[tuple[float, Factors, list[float]]] = []  # score, factors, and their loss on each text that they read

    def attempt(factors_F: Factors) -> None:
        """Measure factors on the first text, and on the others unless the last of the parents beats them there.

        The score of those that are given up is that parent's, more by what they lose to it on the first text.
        """
        # At least 1, at most twice the extension, and never falling from fast hands to slow.
        factors_F = np.maximum.accumulate(np.clip(factors_F, 1.0, 2 * factor))
        losses, ranked = [measure(factors_F, 0)], sorted(tried, key=lambda entry: entry[0])
        score, _, parent = ranked[POPULATION - 1] if len(ranked) >= POPULATION else (0.0, factors_F, losses)
        if losses[0] > parent[0]:
            score += losses[0] - parent[0]
        else:
            losses += [measure(factors_F, text) for text in range(1, texts)]
            score = float(np.mean(losses))
        tried.append((score, factors_F, losses))
        progress("searching factors", len(tried), evaluations)

    for start_F in list(seeds)[:evaluations]:
        attempt(np.asarray(start_F))
    while len(tried) < evaluations:
        parents = [factors_F for _, factors_F, _ in sorted(tried, key=lambda entry: entry[0])[:POPULATION]]
        for _ in range(min(POPULATION, evaluations - len(tried))):
            # The mean of two parents in the logarithm, or one of them, with some neighbouring factors changed.
            first, second = rng.integers(len(parents), size=2)
            share = rng.choice([0.0, 0.5])
            child_F: Factors = np.exp((1 - share) * np.log(parents[first]) + share * np.log(parents[second]))
            centre, width = rng.uniform(0, len(child_F)), rng.uniform(0.5, len(child_F) / 3 + 0.5)
            bump_F = np.exp(-0.5 * ((np.arange(len(child_F)) - centre) / width) ** 2)
            attempt(child_F * np.exp(rng.normal(0, 0.35) * bump_F))
    loss, best_F, _ = min(tried, key=lambda entry: entry[0])
    return best_F, loss
