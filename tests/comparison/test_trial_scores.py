"""Which test items hang together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from clockhands.comparison.trial_scores import find_groups, linearise_bleu, require_numbers, score_trial
from clockhands.data import Pair, open_corpus
from clockhands.errors import DataError, UsageError
from clockhands.runs import open_run
from clockhands.runs.recipe import make_recipe
from clockhands.training import prepare, train


def test_groups_are_numbered_in_the_order_of_the_items() -> None:
    pairs = [Pair("a", "", 7), Pair("b", ""), Pair("c", "", 0), Pair("d", "", 7), Pair("e", "")]
    assert find_groups(pairs) == (0, 1, 2, 0, 3)


def test_items_of_which_none_hang_together_have_no_groups() -> None:
    assert find_groups([Pair("a", ""), Pair("b", "", 1), Pair("c", "", 0)]) is None
    assert find_groups([]) is None


def test_the_twins_of_roles_are_one_group() -> None:
    pairs = open_corpus("roles", train=20, validation=2, test=40).pairs("test")
    groups = find_groups(pairs)
    assert groups is not None and len(set(groups)) == 20
    words = {}
    for group, pair in zip(groups, pairs, strict=True):
        words.setdefault(group, []).append(tuple(sorted(pair.source.split())))
    assert all(len(both) == 2 and both[0] == both[1] for both in words.values())


def test_items_without_a_score_are_named() -> None:
    require_numbers("0110")
    require_numbers((1.0, 2.0))
    with pytest.raises(DataError, match=r"there is no score for test items 1, 3 \(from 0\) of 4"):
        require_numbers((1.0, float("nan"), 2.0, float("inf")))


@pytest.mark.parametrize(
    ("length", "lines", "expected"),
    [
        (20, 200, {"2": None, "4": "the model has a table of 20 positions", "8": "the model has a table of 20"}),
        (80, 6, {"2": None, "4": None, "8": "less than one window of length=64"}),
    ],
    ids=["the table ends", "the text ends"],
)
def test_longer_windows_that_cannot_be_read_are_told_and_keep_the_trial(
    length: int, lines: int, expected: dict[str, str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {split: tmp_path / f"{split}.txt" for split in ("train", "test", "validation")}
    for file, count in zip(files.values(), (200, lines, 20), strict=True):
        file.write_text("abcdefgh\n" * count)
    recipe = make_recipe({
        "data": {"corpus": "text"} | {split: str(file) for split, file in files.items()},
        "tokenizer": {"kind": "character"},
        "model": {"preset": "tiny", "kind": "decoder", "decoder_layers": 1},
        "position": {"scheme": "learned", "max_length": length},
        "batches": {"window": 8},
        "training": {"max_steps": 1, "device": "cpu"},
    }, {})  # fmt: skip
    material = prepare(recipe)
    scores = score_trial(train(recipe, tmp_path / "run", material=material), material, "loss")
    monkeypatch.setattr("clockhands.generation.perplexity.measure_free_memory", lambda device: 1)
    with pytest.raises(UsageError, match="the logits of one window"):  # says nothing of the scheme, so the trial fails
        score_trial(open_run(tmp_path / "run"), material, "loss")
    for times, refusal in expected.items():
        longer = scores["longer"][f"{times} × 8 tokens"]
        assert longer.refused is None if refusal is None else refusal in longer.refused
        assert (longer.loss is None) == (refusal is not None) and str(tmp_path) not in str(longer.refused)
        assert "--length" not in str(longer.refused), "no option of a comparison"


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
