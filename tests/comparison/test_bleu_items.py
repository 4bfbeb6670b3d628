"""BLEU as a mean over sentences: the mean is sacreBLEU's BLEU, and the spread that of its bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from clockhands.comparison.bleu_items import linearise_bleu

WORDS = ("a", "the", "man", "dog", "red", "runs", "over", "grass", "white", "fence", "in", "with", "two", "women", ".")


def _score(hypotheses: list[str], references: list[str]) -> float:
    return float(BLEU().corpus_score(hypotheses, [references]).score)


def _plant(count: int, right: float, seed: int = 0) -> tuple[list[str], list[str]]:
    """Draw references, and hypotheses that keep a share of their words and lose some of their ends."""
    rng = np.random.default_rng(seed)
    references = [" ".join(rng.choice(WORDS, rng.integers(4, 14))) for _ in range(count)]
    written = [reference.split()[: rng.integers(3, 14)] for reference in references]
    return [" ".join(w if rng.random() < right else "x" for w in words) for words in written], references


@pytest.mark.parametrize("right", [0.9, 0.6])
def test_the_mean_is_the_bleu_of_sacrebleu(right: float) -> None:
    texts, references = _plant(60, right)
    assert linearise_bleu(texts, references).mean() == pytest.approx(_score(texts, references), abs=1e-9)


def test_an_order_without_a_match_is_smoothed_as_there() -> None:
    texts, references = ["a man x x x x", "the dog x x x"], ["a man runs over grass .", "the dog in white ."]
    assert 0 < _score(texts, references) < 50
    assert linearise_bleu(texts, references).mean() == pytest.approx(_score(texts, references), abs=1e-9)


def test_nothing_right_is_zero() -> None:
    assert not linearise_bleu(["x", "y z"], ["a man runs over", "the dog"]).any()


def test_each_value_is_what_leaving_the_sentence_out_takes_away() -> None:
    """The jackknife, by sacreBLEU itself: N × BLEU - (N - 1) × BLEU without the sentence."""
    texts, references = _plant(80, 0.8, seed=1)
    whole = _score(texts, references)
    left_out = [
        80 * whole - 79 * _score(texts[:i] + texts[i + 1 :], references[:i] + references[i + 1 :]) for i in range(80)
    ]
    assert np.abs(linearise_bleu(texts, references) - left_out).max() < 1.0 < np.std(left_out) / 10


def test_the_standard_error_is_that_of_the_bootstrap() -> None:
    texts, references = _plant(150, 0.8, seed=2)
    rng = np.random.default_rng(0)
    drawn = [
        _score([texts[i] for i in row], [references[i] for i in row]) for row in rng.integers(0, 150, size=(150, 150))
    ]
    assert linearise_bleu(texts, references).std() / 150**0.5 == pytest.approx(np.std(drawn), rel=0.2)
