"""Scores against sacreBLEU itself and hand-counted matches."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu

from clockhands.errors import DataError, UsageError
from clockhands.generation import compute_exact_match, score_translations
from clockhands.generation.score import Score, bootstrap_mean_interval

REFERENCES = ["the cat sat on the mat", "a dog was here today, was it not", "nothing at all like it here"] * 8
HYPOTHESES = ["the cat sat on the mat", "a dog is here today, is it not", "something else entirely for once"] * 8


def test_bleu_and_chrf_are_sacrebleus() -> None:
    bleu, chrf, _ = score_translations(HYPOTHESES, REFERENCES)
    assert bleu.value == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score)
    assert chrf.value == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score)
    assert bleu.low < bleu.value < bleu.high
    assert "tok:13a" in bleu.signature and "bs:1000" in bleu.signature


def test_tokenised_text_is_scored_as_it_is() -> None:
    bleu = score_translations(["a , b c d"], ["a , b c d"], tokenize="none")[0]
    assert bleu.value == pytest.approx(100)
    assert "tok:none" in bleu.signature


@pytest.mark.parametrize("right", [0, 4])
def test_resamples_without_any_right_word_are_no_error(right: int) -> None:
    """sacreBLEU cannot average their zeros with other resamples."""
    scores = score_translations([*["a b c d e"] * right, *["x y z w v"] * (9 - right)], ["a b c d e"] * 9)
    assert [round(score.value) for score in scores] == ([44, 44, 44] if right else [0, 0, 0])


def test_exact_match_is_a_count_with_an_interval() -> None:
    score = compute_exact_match(["a", "b ", "c", "d"], ["a", "b", "x", "y"])
    assert score.value == 50
    assert (score.low, score.high) == pytest.approx((6.76, 93.24), abs=0.01), "two of four, by the tables of Clopper"


@pytest.mark.parametrize(
    ("written", "expected"), [("a", (100, 100 * 0.025 ** (1 / 20), 100)), ("x", (0, 0, 100 - 100 * 0.025 ** (1 / 20)))]
)
def test_twenty_of_twenty_leave_room_for_chance(written: str, expected: tuple[float, float, float]) -> None:
    """If p^20 is 2.5 %, all of twenty are right that often by chance: the bound of Clopper & Pearson."""
    score = compute_exact_match([written] * 20, ["a"] * 20)
    assert (score.value, score.low, score.high) == pytest.approx(expected)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        low, high = bootstrap_mean_interval(rng.normal(5, 2, 60))
        inside += low <= 5 <= high
    assert 0.89 <= inside / 200 <= 0.98


def test_unequal_numbers_and_nothing_are_refused() -> None:
    with pytest.raises(DataError, match=r"^1 translations for 2 references; they must be as many$"):
        score_translations(["a"], ["a", "b"])
    with pytest.raises(DataError, match="nothing to score"):
        score_translations([], [])
    with pytest.raises(DataError, match=r"^2 translations for 1 references; they must be as many$"):
        compute_exact_match(["a", "b"], ["a"])
    with pytest.raises(DataError, match="nothing to score"):
        compute_exact_match([], [])


def test_a_tokenization_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="unknown tokenization of sacreBLEU 'zzz'; choose one of 13a, char, intl"):
        score_translations(["a"], ["a"], tokenize="zzz")


@pytest.mark.parametrize(
    ("name", "text"),
    [("loss", "1.235 [1.200, 1.300]"), ("perplexity", "1.23 [1.20, 1.30]"), ("BLEU", "1.2 [1.2, 1.3]")],
)
def test_a_score_is_written_with_the_decimals_of_its_unit(name: str, text: str) -> None:
    assert str(Score(name, 1.23456, 1.2, 1.3, "c:1")) == f"{name}|c:1 = {text}"
