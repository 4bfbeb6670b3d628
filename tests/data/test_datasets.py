"""Rows kept in one array, and the windows of a long text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockhands.data.datasets import IGNORED_LABEL, Ragged, WindowDataset
from clockhands.errors import UsageError


@given(st.lists(st.lists(st.integers(0, 9))))
def test_ragged_rows(rows: list[list[int]]) -> None:
    ragged = Ragged.of(rows)
    assert [ragged[row].tolist() for row in range(len(ragged))] == rows
    assert ragged.lengths.tolist() == [len(row) for row in rows]


@given(st.integers(2, 60), st.integers(2, 20))
def test_windows_side_by_side_predict_every_token_once(size: int, length: int) -> None:
    stream = np.arange(size, dtype=np.int32)
    if size < length:
        with pytest.raises(UsageError, match=f"the text has {size} tokens, less than one window of length={length}"):
            WindowDataset(stream, length)
        return
    data = WindowDataset(stream, length)
    predicted = [token for row in range(len(data)) for token in data[row]["labels"][1:].tolist()]
    assert predicted == list(range(1, len(predicted) + 1))
    assert size - len(predicted) - 1 < length - 1
    anywhere = WindowDataset(stream, length, stride=1)
    assert anywhere[len(anywhere) - 1]["input_ids"][-1] == size - 1
    assert anywhere.lengths.shape == (size - length + 1, 1)


def test_a_window_needs_two_tokens() -> None:
    with pytest.raises(UsageError, match="length=1; a window holds at least 2"):
        WindowDataset(np.arange(9, dtype=np.int32), 1)


def test_every_window_counts_under_its_index_and_under_no_other() -> None:
    """Index ~i gives window i as ballast: the same ids, and labels that no loss counts."""
    data = WindowDataset(np.arange(9, dtype=np.int32), 4)
    for index in range(len(data)):
        counted, ballast = data[index], data[~index]
        assert counted["input_ids"].tolist() == counted["labels"].tolist() == ballast["input_ids"].tolist()
        assert set(ballast["labels"].tolist()) == {IGNORED_LABEL}
