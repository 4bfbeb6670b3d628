"""Counts over held-out sentences: untouched they are those of `clockhands translate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.data import open_corpus
from clockhands.exploring.controls import Controls
from clockhands.exploring.measuring import MEASURED, UNTOUCHED, count_right, measure, translate_controlled
from clockhands.generation import Search, translate
from clockhands.runs import Run
from tests.exploring.models import PAIRS, make_run


@pytest.mark.parametrize("beam", [1, 3])
def test_untouched_texts_are_those_of_translate(translator: Run, beam: int) -> None:
    recipe = translator.recipe
    sources = open_corpus(recipe.corpus, **recipe.corpus_options).sources("test")
    ours = translate_controlled(translator, sources, Controls(), beam)
    for translation, expected in zip(ours, translate(translator, sources, Search(beam)), strict=True):
        assert (translation.source, translation.text) == (expected.source, expected.text)
        assert translation.score == pytest.approx(expected.score, abs=1e-4)


def test_what_was_trained_without_the_factor_is_not_measured_without_it(tmp_path: Path) -> None:
    names = {
        scale: {row["name"] for row in measure(make_run(tmp_path / scale, token_scale=scale), PAIRS)}
        for scale in ("sqrt", "one")
    }
    assert names["sqrt"] - names["one"] == {"tokens without √d"}


def test_a_translator_without_its_positions_gets_less_right(translator: Run) -> None:
    recipe = translator.recipe
    pairs = open_corpus(recipe.corpus, **recipe.corpus_options).pairs("test")
    rows = {row["name"]: row for row in measure(translator, pairs)}
    assert list(rows) == list(MEASURED)
    assert rows[UNTOUCHED]["right"] == count_right(translator, pairs, Controls())["right"] > 20
    assert 0 < rows["tokens without √d"]["confidence"] < rows[UNTOUCHED]["confidence"] <= 1
    assert rows["every token at position 0"]["right"] <= rows[UNTOUCHED]["right"] // 2
    assert {row["of"] for row in rows.values()} == {len(pairs)}


def test_a_model_without_sinusoids_is_counted_untouched(tmp_path: Path) -> None:
    (row,) = measure(make_run(tmp_path, encoder="rope", decoder="rope"), PAIRS)
    assert (row["name"], row["controls"], row["of"]) == (UNTOUCHED, {}, 2)
