"""Texts that repeat each other are noticed, and running text is not taken for such."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.reading.repeated_texts import group_repeats, measure_fixed_share


def draw_text(texts: int = 24, length: int = 40, seed: int = 0) -> torch.Tensor:
    return torch.randint(200, (texts, length), generator=torch.Generator().manual_seed(seed))


def test_copies_with_some_changed_tokens_are_one_group() -> None:
    ids = draw_text()
    ids[5] = ids[2]
    ids[5, ::13] = 199  # four tokens of forty
    ids[9] = ids[2].roll(7)  # the same text, cut at another place
    found = group_repeats(ids)
    assert found[2] == found[5] == found[9]
    assert len(found.unique()) == 22


def test_half_of_a_text_is_the_border() -> None:
    ids = draw_text(8)
    ids[1, :30] = ids[0, :30]
    ids[3, :12] = ids[2, :12]
    assert group_repeats(ids).tolist() == [0, 0, 2, 3, 4, 5, 6, 7]


def test_what_is_fixed_is_counted_against_other_places() -> None:
    """One token that is everywhere is fixed by no place; one text many times is fixed whole."""
    assert measure_fixed_share(torch.full((6, 10), 3)) == 0.0
    assert measure_fixed_share(torch.arange(10).expand(6, -1)) == pytest.approx(1.0)
