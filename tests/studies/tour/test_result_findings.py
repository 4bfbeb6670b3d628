"""What the tour says of its translators, on translations that are written here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clockhands.data import Pair
from clockhands.generation import Translation, compute_exact_match
from clockhands.studies.tour.result_findings import share_told_apart
from clockhands.studies.tour.training import Translator


def test_told_apart_counts_pairs_with_two_translations() -> None:
    pairs = [Pair("a b c", "x"), Pair("c b a", "y"), Pair("d e f", "x"), Pair("f e d", "y"), Pair("only one", "z")]
    texts = ["x", "y", "same", "same", "z"]
    done = tuple(Translation(pair.source, text, 0.0) for pair, text in zip(pairs, texts, strict=True))
    assert share_told_apart(pairs, done) == 0.5


def test_a_perfect_translator_is_not_certain_and_twins_count_once() -> None:
    """Of 20 that are all right at least 0.025^(1/20) are; of ten pairs of twins, 0.025^(1/10)."""
    evaluation: Any = SimpleNamespace(scores=(compute_exact_match(["x"] * 20, ["x"] * 20),))
    run: Any = None
    alone = Translator("main", run, evaluation, [Pair(str(n), "x") for n in range(20)]).exact
    twins = Translator("main", run, evaluation, [Pair(str(n), "x", n // 2) for n in range(20)]).exact
    assert (alone.low, alone.high) == pytest.approx((83.16, 100), abs=0.01)
    assert (twins.low, twins.high) == pytest.approx((69.15, 100), abs=0.01)
