"""Scores against sacreBLEU itself and hand-counted matches."""

from __future__ import annotations

import math
import string
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.signal import lfilter
from transformers import AutoModelForCausalLM, AutoTokenizer

from clockhands.errors import DataError, UsageError
from clockhands.generation import compute_exact_match, evaluate_windows, score_translations
from clockhands.generation import score as scoring
from clockhands.generation.score import (
    Loss,
    Score,
    bootstrap_mean_interval,
    bound_share,
    choose_batch,
    cut_evaluation_windows,
)
from clockhands.models import LanguageModel, open_language_model
from tests.runs.tiny import LENGTH, make_tokenizer, save_model

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


@given(st.integers(0, 40), st.integers(1, 40))
def test_a_share_of_whole_numbers_has_the_interval_of_the_binomial_test(hits: int, count: int) -> None:
    hits = min(hits, count)
    known = stats.binomtest(hits, count).proportion_ci(0.95, "exact")
    assert bound_share(hits / count, count) == pytest.approx((known.low, known.high), abs=1e-9)


def test_the_interval_is_scipys_and_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        values = rng.normal(5, 2, 60)
        low, high = bootstrap_mean_interval(values)
        inside += low <= 5 <= high
    known = stats.bootstrap((values,), np.mean, n_resamples=scoring.RESAMPLES, method="percentile", rng=scoring.SEED)
    assert (low, high) == pytest.approx(known.confidence_interval, rel=1e-12)
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


TEXT = "".join(np.random.default_rng(0).choice(list(string.ascii_lowercase + " .\n"), 300))


def plain_loop(folder: Path, text: str, length: int, stride: int) -> float:
    """The loop of the documentation of transformers ("Perplexity of fixed-length models")."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor(AutoTokenizer.from_pretrained(folder)(text)["input_ids"])[None]
    nats, tokens, previous_end = 0.0, 0, 0
    for begin in range(0, ids.shape[1] - length + 1, stride):
        end = begin + length
        window, labels = ids[:, begin:end], ids[:, begin:end].clone()
        labels[:, : -(end - previous_end)] = -100
        with torch.inference_mode():
            loss = model(window, labels=labels).loss
        counted = int((labels[:, 1:] != -100).sum())
        nats, tokens, previous_end = nats + float(loss) * counted, tokens + counted, end
    return nats / tokens


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mpt"])
@pytest.mark.parametrize("stride", [8, 31])
def test_the_loss_is_that_of_a_plain_loop(kind: str, stride: int, tmp_path: Path) -> None:
    folder = save_model(tmp_path, kind)
    model = open_language_model(folder)
    found = evaluate_windows(model, [TEXT], LENGTH, stride=stride, batch=3)
    tokens = model.tokenizer(TEXT)["input_ids"]
    # Ours ends the document with a token; the loop is given the same text.
    assert len(tokens) == 300
    expected = plain_loop(folder, TEXT + "</s>", LENGTH, stride)
    loss, perplexity = found.scores
    assert loss.value == pytest.approx(expected, abs=1e-6)
    assert perplexity.value == pytest.approx(math.exp(expected), rel=1e-6)
    assert loss.low < loss.value < loss.high


def make_model(*, start: bool = False) -> LanguageModel:
    return LanguageModel("none", None, make_tokenizer(start=start))


@pytest.mark.parametrize(("start", "stride"), [(False, None), (False, 3), (True, None), (True, 5)])
def test_every_token_counts_once_with_the_context_that_was_asked_for(start: bool, stride: int | None) -> None:
    model = make_model(start=start)
    windows = cut_evaluation_windows(model, [TEXT], 16, stride)
    counts = np.zeros(301, int)
    step = stride or 15
    for number, counted_S in enumerate(windows.counted_NS):
        for place in np.flatnonzero(counted_S):
            counts[number * step + place - start] += 1
            assert number == 0 or place >= 16 - step
    last = (len(windows) - 1) * step + 16 - start
    assert (counts[0 if start else 1 : last] == 1).all() and counts[last:].sum() == 0
    assert last > 301 - step
    if start:
        assert (windows.ids_NS[:, 0] == 2).all()


def test_intervals_are_over_documents_where_there_are_enough(tmp_path: Path) -> None:
    model = open_language_model(save_model(tmp_path, "llama"))
    few = evaluate_windows(model, [TEXT] * 4, LENGTH)
    many = evaluate_windows(model, [TEXT[: 40 + 10 * n] for n in range(12)], LENGTH)
    windows = len(cut_evaluation_windows(model, [TEXT] * 4, LENGTH))
    assert few.resampled == f"30 stretches of neighbouring windows, {windows} windows in all"
    assert len(few.loss.nats_N) == 30 and few.loss.tokens_N.sum() == windows * (LENGTH - 1)
    short = evaluate_windows(model, [TEXT], LENGTH)
    assert short.resampled.startswith(f"{len(short.loss.nats_N)} windows; as neighbours they are alike")
    assert many.resampled == f"{len(many.loss.nats_N)} documents" and len(many.loss.nats_N) > 5
    table = many.by_length
    assert sum(row[1] for row in table.rows) == many.loss.tokens_N.sum()
    assert sum(row[1] * row[2] for row in table.rows) / many.loss.tokens_N.sum() == pytest.approx(many.loss.mean)


def test_intervals_over_one_long_document_hold_its_mean() -> None:
    """Losses that drift as the subject of a text does: the interval holds the mean of what they were drawn from.

    Intervals of 95 % hold it in 190 of 200 texts; over 30 stretches, which are still a little alike, in 180 at least.
    Over single windows, of which neighbours are much alike, it is in 150 at most.
    """
    rng = np.random.default_rng(0)
    held = {"stretches": 0, "windows": 0}
    counted_NS = np.ones((700, 65), bool)
    counted_NS[:, 0] = False
    windows = scoring.EvaluationWindows(np.zeros((700, 65), int), counted_NS, np.zeros(700, int))
    for _ in range(200):
        drift_N = lfilter([0.6], [1, -0.8], rng.standard_normal(900))[200:]
        losses_NS = (2 + 0.2 * (drift_N + rng.standard_normal(700)))[:, None] + np.zeros((1, 64))
        grouped, _ = scoring._group_windows(losses_NS, windows)
        alone = Loss(losses_NS.sum(1), counted_NS.sum(1))
        for name, loss in (("stretches", grouped), ("windows", alone)):
            low, high = loss.interval
            held[name] += low < 2 < high
    assert held["stretches"] >= 180, held
    assert held["windows"] <= 150, held


@pytest.mark.parametrize(
    ("length", "stride", "message"),
    [
        (1, None, "a window holds at least 2 tokens"),
        (16, 16, "stride=16; windows of 16 tokens begin 1 to 15 apart"),
        (16, 0, "stride=0"),
        (400, None, "the text has 301 tokens, less than one window of length=400"),
    ],
)
def test_windows_that_cannot_be_cut_are_refused(length: int, stride: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cut_evaluation_windows(make_model(), [TEXT], length, stride)


def test_as_many_windows_are_read_as_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_language_model(save_model(tmp_path, "llama"))
    one = 8 * LENGTH * 100
    for free, batch in ((10**9, 32), (one * 20, 4), (one, 1)):
        monkeypatch.setattr(scoring, "measure_free_memory", lambda device, free=free: free)
        assert choose_batch(model, LENGTH) == batch
    monkeypatch.setattr(scoring, "measure_free_memory", lambda device: one - 1)
    with pytest.raises(UsageError, match="logits of one window of 32 tokens need"):
        choose_batch(model, LENGTH)
