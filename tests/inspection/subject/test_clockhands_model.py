"""Our own models as subjects of an inspection."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.subject.subject import Subject
from clockhands.model import PositionConfig
from tests.model.tiny import model, words


def test_the_next_logits_are_those_of_the_last_token() -> None:
    made, ids = model(), words(2, 7)
    next_BV = Subject.of(made).compute_next_logits(ids)
    torch.testing.assert_close(next_BV, made.eval()(input_ids=ids).logits[:, -1])
    assert Subject.of(model(kind="encoder")).compute_next_logits(ids) is None


@pytest.mark.parametrize("scheme", ["learned", "sinusoidal"])
def test_a_source_may_be_as_long_as_the_table_of_the_encoder(scheme: str) -> None:
    """Of a decoder that reads a source; whatever continues text reads none."""
    options = {"max_length": 16} if scheme == "learned" else {}
    made = model("encoder-decoder", encoder=PositionConfig(scheme, options))
    limit = 16 if scheme == "learned" else None
    assert Subject.of(made, side="decoder").max_source_length == limit
    assert Subject.of(model()).max_source_length is None
