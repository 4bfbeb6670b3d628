"""The head whose logits depend on position most is named, with its share."""

from __future__ import annotations

from .. import planted
from .readings import (
    answer_splits,
    attend_to_content,
    split_layers,
)


def test_the_head_that_depends_on_position_most_is_named_with_its_share() -> None:
    models = (planted.copying(), planted.previous_token(), attend_to_content())
    both, one, none = (answer_splits("logits.heads", split_layers(model)) for model in models)
    for found in (both, one):
        assert found.value > 0.98 and found.interval is not None and found.interval[0] > 0.9  # type: ignore[operator]
        assert "is largest in layer 1 head 1" in found.verdict and "No effect" not in found.verdict
    assert {row[:2]: round(float(row[2]), 1) for row in one.table.rows} == {(1, 1): 1.0, (1, 2): 0.0}  # type: ignore[arg-type]
    assert none.value < 0.05 and none.verdict.startswith("No effect of position alone")  # type: ignore[operator]
