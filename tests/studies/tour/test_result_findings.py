"""What the tour says of its translators, on translations that are written here."""

from __future__ import annotations

from clockhands.data import Pair
from clockhands.generation import Translation
from clockhands.studies.tour.result_findings import share_told_apart


def test_told_apart_counts_pairs_with_two_translations() -> None:
    pairs = [Pair("a b c", "x"), Pair("c b a", "y"), Pair("d e f", "x"), Pair("f e d", "y"), Pair("only one", "z")]
    texts = ["x", "y", "same", "same", "z"]
    done = tuple(Translation(pair.source, text, 0.0) for pair, text in zip(pairs, texts, strict=True))
    assert share_told_apart(pairs, done) == 0.5
