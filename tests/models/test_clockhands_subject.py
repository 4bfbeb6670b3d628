"""Our own models as subjects of an inspection."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.inspection.measures import MEASURES
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.model import PositionConfig
from clockhands.models.subject import Subject
from tests.model.tiny import model, words


def test_the_next_logits_are_those_of_the_last_token() -> None:
    made, ids = model(), words(2, 7)
    next_BV = Subject.of(made).compute_next_logits(ids)
    torch.testing.assert_close(next_BV, made.eval()(input_ids=ids).logits[:, -1])
    assert Subject.of(model(kind="encoder")).compute_next_logits(ids) is None


@pytest.mark.parametrize(
    ("kind", "position", "sentence", "mechanisms"),
    [
        ("decoder", {"scheme": "none"}, "Nothing tells the model position, except a causal mask where it has one.",
         ("none",)),
        ("decoder", {"scheme": "alibi"}, "Alibi: position enters the attention itself.", ("attention",)),
        (
            "encoder",
            {"scheme": "composition", "options": {"schemes": ["sinusoidal", "rope"]}},
            "sinusoidal + rope: a vector per position is added to the token embedding, and position enters the "
            "attention too.",
            ("sinusoid", "rotary"),
        ),
    ],
)  # fmt: skip
def test_how_position_enters_is_said_of_every_way(
    kind: Any, position: dict[str, Any], sentence: str, mechanisms: tuple[str, ...]
) -> None:
    """Of a sum that rotates too the sum alone was named, and ALiBi was a learned bias per bucket."""
    subject = Subject.of(model(kind, **{kind: PositionConfig(**position)}))
    assert (subject.mechanism_sentence, subject.mechanisms) == (sentence, mechanisms)


@pytest.mark.parametrize("scheme", ["learned", "sinusoidal"])
def test_a_source_may_be_as_long_as_the_table_of_the_encoder(scheme: str) -> None:
    """Of a decoder that reads a source; whatever continues text reads none."""
    options = {"max_length": 16} if scheme == "learned" else {}
    made = model("encoder-decoder", encoder=PositionConfig(scheme, options))
    limit = 16 if scheme == "learned" else None
    assert Subject.of(made, side="decoder").max_source_length == limit
    assert Subject.of(model()).max_source_length is None


@pytest.mark.parametrize("name", ["loudness", "directions", "recovery"])
@pytest.mark.parametrize("max_length", [None, 530])
def test_measures_of_the_tables_read_windows_of_more_than_512_tokens(name: str, max_length: int | None) -> None:
    """The rows beyond 512 are among those that are measured, of a scheme without an end and of a learned table."""
    position = PositionConfig("sinusoidal") if max_length is None else PositionConfig("learned", {"max_length": 530})
    subject = Subject.of(model(decoder=position))
    ids = words(4, 520)
    tables = subject.read_tables(520)
    assert tables is not None and len(tables.positions_ND) == 520
    finding = MEASURES[name].run(Reading(subject, Capture(ids, [], [], torch.ones(520, dtype=torch.bool))))
    assert isinstance(finding.value, float)
