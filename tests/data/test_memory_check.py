"""Sentences that do not fit the memory are refused before they are made."""

from __future__ import annotations

import pytest

from clockhands.data import open_corpus
from clockhands.data.corpora.numbers import numbers
from clockhands.data.corpora.roles import roles
from clockhands.errors import UsageError
from clockhands.machine import measure_free_memory
from clockhands.reading import BYTES_A_LINE


def test_sentences_that_do_not_fit_are_refused_before_they_are_made() -> None:
    count = 2 * (measure_free_memory() // BYTES_A_LINE)
    with pytest.raises(
        UsageError, match=rf"corpus 'numbers': train={count:,} sentences need .* are free; ask for fewer"
    ):
        numbers(largest=10**12 - 1, train=count)
    with pytest.raises(UsageError, match=rf"corpus 'roles': test={count:,} sentences need"):
        roles(test=count)
    with pytest.raises(UsageError, match="corpus 'numbers': longer=600,000,000,000 sentences"):
        numbers(longer=200_000_000_000)


def test_fewer_longer_numbers_than_none_are_refused() -> None:
    with pytest.raises(UsageError, match="longer is -1, but must be at least 0"):
        open_corpus("numbers", longer=-1)
