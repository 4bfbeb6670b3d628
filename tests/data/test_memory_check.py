"""Text that does not fit the memory is refused before it fills it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

from clockhands.data import memory_check, open_corpus, readers
from clockhands.data.corpora.numbers import numbers
from clockhands.data.corpora.roles import roles
from clockhands.errors import DataError, UsageError


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """A machine with 12 MiB of free memory."""
    monkeypatch.setattr(memory_check, "measure_free_memory", lambda device: 12 << 20)
    monkeypatch.setattr(memory_check, "STEP", 1 << 16)
    return 12 << 20


@pytest.mark.parametrize("packed", [True, False])
def test_text_is_refused_as_soon_as_it_is_more_than_fits(
    tmp_path: Path, small: int, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    fits, more = (b"a\n" * (small // memory_check.COPIES // 2 + extra) for extra in (0, 1))
    pack = gzip.compress if packed else bytes
    (tmp_path / "fits").write_bytes(pack(fits))
    (tmp_path / "more").write_bytes(pack(more))
    assert readers.read_text(tmp_path / "fits") == fits.decode()
    with pytest.raises(DataError, match=r"more (unpacks to|holds) more than 4\.0 MiB, which does not fit the memory"):
        readers.read_text(tmp_path / "more")


def test_a_bomb_is_not_unpacked_to_its_end(tmp_path: Path, small: int) -> None:
    """The check value at the end of the file is wrong: whoever reads so far says "broken gzip"."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\n" * (64 << 20))[:-8] + bytes(8))
    with pytest.raises(DataError, match="unpacks to more than"):
        readers.read_text(path)


def test_a_device_without_end_is_refused(small: int) -> None:
    with pytest.raises(DataError, match="/dev/zero holds more than"):
        readers.read_text("/dev/zero")


def test_sentences_that_do_not_fit_are_refused_before_they_are_made() -> None:
    count = 2 * (memory_check.measure_free_memory(torch.device("cpu")) // memory_check.BYTES_A_PAIR)
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
