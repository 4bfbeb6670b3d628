"""A trial for real: what it measures, that it can be repeated, and that a failure is a result."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sacrebleu.metrics.bleu import BLEU

from clockhands.comparison.execution import make_job
from clockhands.comparison.results import Comparison
from clockhands.comparison.trial import Trial
from clockhands.comparison.trial_runner import (
    During,
    Inside,
    draw_by_name,
    find_groups,
    linearise_bleu,
    require_numbers,
    run_trial,
    score_trial,
)
from clockhands.data import Pair, open_corpus
from clockhands.errors import BusyError, DataError, UsageError
from clockhands.files import lock_folder
from clockhands.runs import open_run
from clockhands.runs.recipe import Recipe, make_recipe
from clockhands.training import TrainingData, prepare, train, vary_recipe
from clockhands.training.model import build
from tests.comparison.planted import COSTS, plan
from tests.training.tiny import tables


def test_a_trial_measures_what_it_says(tmp_path: Path) -> None:
    made = plan(target=100.0, inside=["loudness"])
    trial = run_trial(make_job(Comparison(made, COSTS), "sinusoidal", 1, tmp_path, 1, False))
    assert trial.finished and trial.steps == 6
    assert len(trial.items) == 20 and trial.items_N.mean() == pytest.approx(trial.scores["exact"])
    assert trial.curve[-1].step == 6 and trial.curve[-1].validation_loss > 0
    assert trial.reached.step == 4
    named = {"word over position", "position's share", "length of a word's row", "length of a position's row"}
    assert trial.inside.before.keys() == trial.inside.after.keys() == named
    assert trial.peak_mib > 10 and trial.parameters > 1000
    assert Trial.from_dict(json.loads(json.dumps(trial.to_dict()))) == trial
    assert not (tmp_path / "running" / "0-1").exists()
    again = run_trial(make_job(Comparison(made, COSTS), "sinusoidal", 1, tmp_path, 1, True))
    assert again.curve == trial.curve and again.items == trial.items
    assert (tmp_path / "running" / "0-1" / "model.safetensors").is_file()
    assert not list((tmp_path / "running" / "0-1" / "checkpoints").iterdir()), "no time is spent on what nobody reads"


def test_a_trial_keeps_the_weights_that_it_begins_with(tmp_path: Path) -> None:
    """Drawing by name, which pairs the seeds, must not draw over them."""
    job = make_job(Comparison(plan(), COSTS), "sinusoidal", 1, tmp_path, 1, True)
    first = run_trial(job)
    base = shutil.copytree(job.folder, tmp_path / "base")
    training = {**job.tables["training"], "begin_from": str(base), "learning_rate": 1e-12, "max_steps": 1}
    again = run_trial(replace(job, tables={**job.tables, "training": training}))
    assert again.finished and again.items == first.items
    assert again.curve[-1].validation_loss == pytest.approx(first.curve[-1].validation_loss, rel=1e-4)


def test_a_run_that_diverges_and_one_that_fails_are_results(tmp_path: Path) -> None:
    wild = plan(vary={"training.learning_rate": [0.01, 1e30]}, metric="loss")
    names = [variant.name for variant in wild.variants]
    costs = dict(zip(names, COSTS.values(), strict=True))
    diverged = run_trial(make_job(Comparison(wild, costs), names[1], 1, tmp_path, 1, False))
    assert diverged.status == "diverged" and "training stopped" in diverged.error
    assert Trial.from_dict(diverged.to_dict()) == diverged
    job = make_job(Comparison(wild, costs), names[0], 1, tmp_path, 1, False)
    failed = run_trial(replace(job, tables={**job.tables, "data": {"corpus": "text", "train": str(tmp_path / "no")}}))
    assert failed.status == "failed" and failed.error


def test_a_trial_that_another_process_runs_is_no_result(tmp_path: Path) -> None:
    job = make_job(Comparison(plan(), COSTS), "sinusoidal", 1, tmp_path, 1, False)
    found: list[type[Exception]] = []

    def another() -> None:
        try:
            run_trial(job)
        except BusyError as fault:
            found.append(type(fault))

    with lock_folder(Path(job.folder)):
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
    assert found == [BusyError]


def test_weights_agree_across_variants_and_differ_across_seeds() -> None:
    recipe = make_recipe(tables(), {})
    material = prepare(recipe)
    drawn = {}
    for scheme in ("sinusoidal", "learned", "t5"):
        for seed in (1, 2):
            torch.manual_seed(hash(scheme) % 1000)
            model = build(vary_recipe(recipe, {"position.scheme": scheme}), material.tokenizers)
            draw_by_name(model, seed)
            drawn[scheme, seed] = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    plain = drawn["sinusoidal", 1]
    for scheme in ("learned", "t5"):
        other = drawn[scheme, 1]
        assert set(other) > set(plain), "a learned scheme has parameters of its own"
        assert all(torch.equal(plain[name], other[name]) for name in plain)
    changed = [
        name for name in plain if plain[name].dim() > 1 and not torch.equal(plain[name], drawn["sinusoidal", 2][name])
    ]
    assert len(changed) == sum(weight.dim() > 1 for weight in plain.values())


def test_drawing_by_name_keeps_the_law_of_the_weights() -> None:
    recipe = make_recipe({**tables(), "model": {"preset": "tiny", "encoder_layers": 1, "decoder_layers": 1}}, {})
    material = prepare(recipe)
    model = build(recipe, material.tokenizers)
    before = {name: float(weight.std()) for name, weight in model.named_parameters() if weight.numel() > 4000}
    draw_by_name(model, 7)
    assert before
    for name, weight in model.named_parameters():
        if name in before:
            assert abs(float(weight.std()) / before[name] - 1) < 0.05


def test_groups_are_numbered_in_the_order_of_the_items() -> None:
    pairs = [Pair("a", "", 7), Pair("b", ""), Pair("c", "", 0), Pair("d", "", 7), Pair("e", "")]
    assert find_groups(pairs) == (0, 1, 2, 0, 3)
    assert find_groups([Pair("a", ""), Pair("b", "", 1), Pair("c", "", 0)]) is None and find_groups([]) is None
    pairs = open_corpus("roles", train=20, validation=2, test=40).pairs("test")
    groups = find_groups(pairs)
    assert groups is not None and len(set(groups)) == 20, "twins of roles"
    words: dict[int, list[tuple[str, ...]]] = {}
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
    monkeypatch.setattr("clockhands.generation.score.measure_free_memory", lambda device: 1)
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


@pytest.mark.parametrize(
    ("texts", "references", "least", "most"),
    [
        (*_plant(60, 0.9), 50, 100),
        (*_plant(60, 0.6), 10, 100),
        (["a man x x x x", "the dog x x x"], ["a man runs over grass .", "the dog in white ."], 1, 50),
        (["x", "y z"], ["a man runs over", "the dog"], 0, 0),
    ],
    ids=["much right", "less right", "no match of four words", "nothing right"],
)
def test_the_mean_is_the_bleu_of_sacrebleu(texts: list[str], references: list[str], least: float, most: float) -> None:
    assert linearise_bleu(texts, references).mean() == pytest.approx(_score(texts, references), abs=1e-9)
    assert least <= _score(texts, references) <= most


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
    draws = np.random.default_rng(0).integers(0, 150, size=(150, 150))
    scores = [_score([texts[i] for i in row], [references[i] for i in row]) for row in draws]
    assert linearise_bleu(texts, references).std() / 150**0.5 == pytest.approx(np.std(scores), rel=0.2)


def _look(*measures: str, **changes: Any) -> dict[str, float]:
    recipe = vary_recipe(
        Recipe.from_tables(tables()), {key.replace("__", "."): value for key, value in changes.items()}
    )
    material = prepare(recipe)
    torch.manual_seed(1)
    return Inside(material, measures).look(build(recipe, material.tokenizers).eval())


def test_no_position_is_read_from_an_encoder_that_has_none() -> None:
    """It cannot know: attention without positions does not see the order (the words are shuffled before)."""
    blind, told = _look("survival", position__scheme="none"), _look("survival")
    chance = blind["position read back by chance"]
    assert blind["position read back, layer 1"] < 1.6 * chance
    assert told["position read back, layer 1"] > 2 * chance


def test_a_step_along_the_sinusoid_is_a_turn_and_along_random_vectors_none() -> None:
    clock, noise = _look("shift"), _look("shift", position__scheme="random")
    assert clock["error of a step as a rotation"] < 0.05 < 0.9 < noise["error of a step as a rotation"]
    assert clock["similarity told by distance"] > 0.9 > 0.1 > noise["similarity told by distance"]


def test_louder_positions_lose_words() -> None:
    found = _look("recovery", "louder")
    louder = [found[f"words recovered, positions {times} times as long"] for times in (4, 16)]
    assert found["words recovered"] >= louder[0] > louder[1]


def test_only_what_is_cheap_is_looked_at_during_training() -> None:
    recipe = Recipe.from_tables(tables())
    material: TrainingData = prepare(recipe)
    during = During(Inside(material, ("loudness", "survival", "terms")))
    assert during.measures == ["loudness", "terms"]


def test_without_positions_a_translator_has_no_terms_of_theirs() -> None:
    """Its texts are shuffled, or the words that are usual at a place would pass as positions."""
    blind, told = _look("terms", position__scheme="none"), _look("terms", position__amplitude=4.0)
    assert abs(blind["position–position, layer 1"]) < 0.01 < 0.1 < told["position–position, layer 1"]
    assert sum(told.values()) == pytest.approx(1, abs=1e-4)


def test_a_language_model_is_measured_on_windows_of_its_text() -> None:
    recipe = Recipe.from_tables(
        {
            "data": {"corpus": "stdlib", "limit": 200_000, "file_limit": 4000},
            "tokenizer": {"kind": "character"},
            "model": {"kind": "decoder", "d_model": 16, "num_heads": 2, "d_ff": 32, "decoder_layers": 2},
            "batches": {"size": 4, "window": 33},
            "training": {"max_steps": 2},
        }
    )
    material = prepare(recipe)
    inside = Inside(material, ("loudness", "terms"))
    assert inside.texts.ids_NT.shape == (96, 32)
    torch.manual_seed(1)
    found = inside.look(build(recipe, material.tokenizers).eval())
    assert found["word over position"] > 0 and sum(found.values()) > 2
    for layer in (1, 2):
        shares = [value for name, value in found.items() if name.endswith(f"layer {layer}")]
        assert len(shares) == 7 and sum(shares) == pytest.approx(1, abs=1e-4)
