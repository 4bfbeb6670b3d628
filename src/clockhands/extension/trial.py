"""Tries every method on few texts, the better half on more, and searches factors, before anything is judged.

A text is scored on all tokens of its later half, so that a few texts tell methods apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from clockhands.errors import UsageError
from clockhands.extension.archive import Archive
from clockhands.extension.attention_methods import Method
from clockhands.extension.methods import apply, make_longrope
from clockhands.extension.reading import FEWEST_TEXTS, Stream, cut_texts, measure_losses, multiply_texts
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float, Int

Factors = Float[np.ndarray, " F"]
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
    tried: list[tuple[float, Factors, list[float]]] = []  # score, factors, and their loss on each text that they read

    def attempt(factors_F: Factors) -> None:
        """Measure factors on the first text, and on the others unless the last of the parents beats them there.

        The score of those that are given up is that parent's, more by what they lose to it on the first text.
        """
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
        attempt(_repair(np.asarray(start_F), factor))
    while len(tried) < evaluations:
        parents = [factors_F for _, factors_F, _ in sorted(tried, key=lambda entry: entry[0])[:POPULATION]]
        for _ in range(min(POPULATION, evaluations - len(tried))):
            attempt(_repair(_change(parents, rng), factor))
    loss, best_F, _ = min(tried, key=lambda entry: entry[0])
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


FIRST_TEXTS = 2
"""Texts on which every method is tried, or so many times as many as ``multiply_texts`` says."""
FINALISTS = 4
"""Methods that are judged besides the model as it is and what the search found."""
SEARCH_TEXTS = 4
"""Texts that a candidate of the search reads, unless the first shows that it is none of the best; or as many groups."""


def cut_trial_texts(
    model: LanguageModel, stream: Stream, longest: int, count: int
) -> tuple[Int[np.ndarray, "N S"], int]:
    """Cut texts of ``longest`` tokens, and return how many of their last tokens are scored.

    Half of them; fewer where the stream is short. Raises UsageError where not even a few are left for each.
    """
    own = longest - len(model.start_ids)
    tail = min(longest // 2, (len(stream) - own) // (FEWEST_TEXTS - 1))
    if tail < 1:
        raise UsageError(
            f"the text has {len(stream):,} tokens here, too few for {FEWEST_TEXTS} texts of {longest:,}; give more "
            "text, or a smaller --to"
        )
    return cut_texts(stream, longest, tail, count, model.start_ids), tail


def try_methods(
    model: LanguageModel,
    methods: Sequence[Method],
    stream: Stream,
    longest: int,
    *,
    texts: int,
    archive: Archive,
    progress: CountProgress = ignore_count,
) -> dict[str, tuple[float, int]]:
    """Return of every method the mean loss in the last round that it was in, with the number of its texts.

    Successive halving: all methods on ``FIRST_TEXTS``, the better half on twice as many, until ``FINALISTS`` are left.
    """
    tried: dict[str, tuple[float, int]] = {}
    rivals, count, times = list(methods), FIRST_TEXTS, multiply_texts(model, longest)
    while len(rivals) > FINALISTS and count <= texts:
        texts_NS, tail = cut_trial_texts(model, stream, longest, times * count)
        for number, method in enumerate(rivals):
            progress(f"trying methods on {len(texts_NS)} texts", number, len(rivals))

            def measure(method: Method = method, texts_NS: np.ndarray = texts_NS, tail: int = tail) -> float:
                return _measure(model, method, texts_NS, tail)

            read = len(texts_NS)
            tried[method.name] = (archive.keep(f"try/{method.key}/{read}/{longest}", measure), read)
        rivals.sort(key=lambda method: tried[method.name][0])
        rivals, count = rivals[: max(FINALISTS, -(-len(rivals) // 2))], 2 * count
    return tried


def search(
    model: LanguageModel,
    starts: Sequence[np.ndarray],
    stream: Stream,
    trained: int,
    longest: int,
    evaluations: int,
    *,
    seed: int,
    archive: Archive,
    progress: CountProgress = ignore_count,
) -> tuple[Method, float, int]:
    """Search the factors of LongRoPE, and return the best as a method, with its loss and the texts of that."""
    texts_NS, tail = cut_trial_texts(model, stream, longest, SEARCH_TEXTS * multiply_texts(model, longest))
    groups = min(SEARCH_TEXTS, len(texts_NS))
    factor = longest / trained

    def make(factors_F: np.ndarray) -> Method:
        return make_longrope(
            "searched", "factors found by search, beyond the trained length", tuple(map(float, factors_F)), trained,
            factor,
        )  # fmt: skip

    def measure(factors_F: np.ndarray, group: int) -> float:
        name = ",".join(f"{value:.6g}" for value in factors_F)
        group_NS = texts_NS[group::groups]
        key = f"search/{name}/{group}/{len(group_NS)}/{longest}"
        return archive.keep(key, lambda: _measure(model, make(factors_F), group_NS, tail))

    best_F, loss = search_factors(measure, starts, factor, evaluations, texts=groups, seed=seed, progress=progress)
    return make(best_F), loss, len(texts_NS)


def _measure(model: LanguageModel, method: Method, texts_NS: Int[np.ndarray, "N S"], tail: int) -> float:
    """Return the mean loss of the last tokens under a method; infinite where the model cannot read so far."""
    with apply(model, method) as extended:
        if extended.max_length is not None and texts_NS.shape[1] > extended.max_length:
            return np.inf
        return float(measure_losses(extended, texts_NS, tail).mean())
