"""Cutting text into windows."""

from __future__ import annotations

import pytest
import torch

from clockhands.errors import DataError, UsageError
from clockhands.inspection.texts import windows


class Letters:
    """A tokenizer of single letters, with one special token before and two after."""

    def __call__(self, text: str, add_special_tokens: bool = True, **_: object) -> dict[str, list[int]]:
        bare = [10 + ord(letter) for letter in text]
        return {"input_ids": [1, *bare, 2, 3] if add_special_tokens else bare}


def test_windows_are_equal_and_lose_no_token_in_between() -> None:
    found = windows(Letters(), ["a" * 150, "b" * 150], length=13, count=100)
    assert found.ids_NT.shape == (30, 13)
    assert found.ordinary_T.tolist() == [False, *[True] * 10, False, False]
    assert found.ids_NT[:, found.ordinary_T].flatten().tolist() == [10 + ord("a")] * 150 + [10 + ord("b")] * 150
    assert found.ids_NT[:, [0, -2, -1]].unique(dim=0).tolist() == [[1, 2, 3]]


def test_short_text_gives_shorter_windows_so_that_there_are_a_few() -> None:
    assert windows(Letters(), ["a" * 80], length=128, count=96).ids_NT.shape == (8, 13)


@pytest.mark.parametrize("text", ["", "a", "ab" * 10])
def test_too_little_text(text: str) -> None:
    with pytest.raises(DataError, match=f"the text has {len(text)} tokens; 32 are the least"):
        windows(Letters(), [text], length=128, count=96)


def test_windows_longer_than_the_model() -> None:
    with pytest.raises(UsageError, match="windows of 600 tokens do not fit this model, which reads at most 512"):
        windows(Letters(), ["a" * 9999], length=600, count=96, longest=512)
    with pytest.raises(UsageError, match="texts of 600 tokens do not fit"):
        windows(None, torch.zeros(4, 600, dtype=torch.long), length=128, count=96, longest=512)


def test_text_without_a_tokenizer() -> None:
    with pytest.raises(UsageError, match="without a tokenizer"):
        windows(None, ["words"], length=128, count=96)


@pytest.mark.parametrize("ids", [torch.zeros(4, 12), torch.zeros(12, dtype=torch.long), torch.zeros(1, 12).long()])
def test_token_ids_of_the_wrong_form(ids: torch.Tensor) -> None:
    with pytest.raises(DataError, match="token ids must be a long tensor"):
        windows(None, ids, length=128, count=96)
