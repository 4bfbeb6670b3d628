"""Heads whose logits depend on position are counted."""

from __future__ import annotations

from .. import planted
from .readings import (
    answer_splits,
    attend_to_content,
    split_layers,
)


def test_heads_that_depend_on_position_are_counted_with_an_interval() -> None:
    models = (planted.copying(), planted.previous_token(), attend_to_content())
    both, one, none = (answer_splits("logits.heads", split_layers(model)) for model in models)
    assert (one.value, one.interval) == (1.0, (1.0, 1.0)), "head 0 by position, head 1 by words"
    assert (none.value, none.interval) == (0.0, None)
    assert both.value == 1.0 and "its share is largest in head 0" in both.verdict
    assert "in 1 of 2 heads (1 surely and 1 possibly, by each head's own 95 % interval)" in one.verdict
