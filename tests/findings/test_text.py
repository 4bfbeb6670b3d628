"""Words and numbers in the sentences of findings."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from clockhands.findings import choose_digits, join_words


@pytest.mark.parametrize(
    ("words", "text"), [((), "none"), (("a",), "a"), (("a", "b"), "a and b"), (iter(["a", "b", "c"]), "a, b and c")]
)
def test_words_are_joined_as_in_a_sentence(words: Iterable[str], text: str) -> None:
    assert join_words(words) == text


def test_different_ends_of_an_interval_look_different() -> None:
    """As few digits as show it, six more at most; equal ends need none."""
    assert [choose_digits(*ends) for ends in [(0.1, 0.2, 1), (0.12, 0.14, 1), (0.1234, 0.1235, 1)]] == [1, 2, 4]
    assert choose_digits(0.5, 0.5, 1) == 1 and choose_digits(0.1, 0.1 + 1e-12, 1) == 1
