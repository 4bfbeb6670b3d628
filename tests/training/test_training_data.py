"""What a recipe trains on: shares of the batches for each process, and a fingerprint of the text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clockhands.data import Pair, PairDataset, encode_pairs
from clockhands.errors import DataError
from clockhands.runs.recipe import Recipe, vary_recipe
from clockhands.training.training_data import TrainingData, prepare
from tests.training.tiny import TABLES


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return Recipe.from_tables(TABLES)


def test_each_process_has_its_share_of_every_batch(recipe: Recipe, material: TrainingData) -> None:
    whole = [sorted(batch) for batch in material.batches(recipe)]
    shares = [list(material.batches(recipe, shard, 2)) for shard in range(2)]
    assert len(shares[0]) == len(shares[1]) == len(whole)
    together = {index for share in shares for batch in share for index in batch}
    assert together == {index for batch in whole for index in batch}


def test_without_a_validation_split_there_is_nothing_to_evaluate_on(recipe: Recipe, material: TrainingData) -> None:
    assert material.require_validation() is material.validation
    lacking = replace(material, validation=None)
    with pytest.raises(DataError, match="has no validation split"):
        lacking.require_validation()
    with pytest.raises(DataError, match="has no validation split"):
        lacking.validation_batches(recipe)


def test_a_seed_of_the_text_changes_the_training_text_alone(recipe: Recipe, material: TrainingData) -> None:
    """Tokens, validation and test are those of the first text, so that scores of two texts can be compared."""
    other, third = (prepare(vary_recipe(recipe, {"training.text_seed": number})) for number in (1, 2))
    assert len({material.fingerprint, other.fingerprint, third.fingerprint}) == 3
    assert len(other.train) == len(material.train)
    assert other.tokenizers.source.get_vocab() == material.tokenizers.source.get_vocab()
    assert other.corpus["test"] == material.corpus["test"]
    ours, theirs = (data.require_validation() for data in (other, material))
    assert isinstance(ours, PairDataset) and isinstance(theirs, PairDataset)
    assert (ours.sources.values == theirs.sources.values).all()


@pytest.mark.parametrize("task", ["pairs", "windows"])
def test_a_validation_example_larger_than_a_batch_is_a_batch_of_its_own(task: str, tmp_path: Path) -> None:
    """It stopped a training at its first evaluation."""
    tables: dict[str, Any] = {**TABLES, "batches": {"tokens": 12}}
    if task == "windows":
        (tmp_path / "long.txt").write_text("who saw whom? " * 40)
        tables["data"] = {"corpus": "text", "train": str(tmp_path / "long.txt"), "unit": "file", "holdout": 0.4}
        tables["batches"] = {"tokens": 16, "window": 100}
        tables["tokenizer"] = {"kind": "character"}
    recipe = Recipe.from_tables(tables)
    material = prepare(recipe)
    if task == "pairs":
        long = " ".join(["Tom"] * 60)
        corpus = replace(material.corpus, splits={**material.corpus.splits, "validation": [Pair(long, "Tomo")]})
        validation = encode_pairs(corpus.pairs("validation"), material.tokenizers)
        material = replace(material, validation=validation)
    batches = list(material.validation_batches(recipe))
    assert sorted(index for batch in batches for index in batch) == list(range(len(material.require_validation())))
    assert len(batches[0]) == 1


def test_the_fingerprint_is_that_of_the_text(recipe: Recipe, material: TrainingData) -> None:
    assert prepare(recipe).fingerprint == material.fingerprint
    assert prepare(vary_recipe(recipe, {"data.seed": 5})).fingerprint != material.fingerprint


def test_a_language_model_is_told_its_floor(
    tmp_path: Path, material: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a text of one character over and over a trigram is nearly certain: Witten-Bell leaves it 1 in the count."""
    (tmp_path / "a.txt").write_text("a" * 2000)
    tables = {
        **TABLES,
        "data": {"corpus": "text", "train": str(tmp_path / "a.txt"), "unit": "file", "holdout": 0.1},
        "tokenizer": {"kind": "character"},
        "batches": {"size": 4, "window": 16},
    }
    text = prepare(Recipe.from_tables(tables))
    ceiling, floor = text.describe_bounds()
    assert ceiling == text.find_ceiling().sentence
    assert re.fullmatch(r"A trigram model of the same text has 0\.0\d nats per token on the 1\d\d held-out .*", floor)
    assert len(material.describe_bounds()) == 1 and material.find_floor() is None, "made text has none"
    monkeypatch.setattr("clockhands.training.training_data.MOST_COUNTED", 1000)
    assert text.describe_bounds() == [ceiling], "a long text is not counted"


def test_a_test_split_shorter_than_a_window_stops_nothing(tmp_path: Path) -> None:
    for name, length in (("train", 400), ("short", 5)):
        (tmp_path / name).write_text("ab" * length)
    data = {"corpus": "text", "train": str(tmp_path / "train"), "test": str(tmp_path / "short"), "unit": "file"}
    tables = {**TABLES, "data": data, "tokenizer": {"kind": "character"}, "batches": {"size": 4, "window": 16}}
    assert len(prepare(Recipe.from_tables(tables)).describe_bounds()) == 1
