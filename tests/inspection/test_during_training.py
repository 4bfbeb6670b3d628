"""What a comparison follows in its models, against models made by hand whose answers are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from clockhands.comparison.plan import MEASURES
from clockhands.inspection.during_training import CHEAP_MEASURES, FOUR_TERMS, MEASURE_FUNCTIONS, OF_EVERY_QUERY
from clockhands.inspection.reading.logit_split import TERMS
from clockhands.inspection.reading.windows import Windows
from clockhands.models.subject import Subject

from . import planted
from .measures import readings

TEXTS = 48


def _measure(name: str, model: Any) -> Mapping[str, float]:
    ordinary_T = torch.ones(planted.LENGTH, dtype=torch.bool)
    return MEASURE_FUNCTIONS[name](Subject.of(model), Windows(planted.ids(TEXTS), ordinary_T))


def test_a_plan_knows_every_measure() -> None:
    assert set(MEASURES) == set(MEASURE_FUNCTIONS) > set(CHEAP_MEASURES)


@torch.no_grad()
def _change_heads(kind: str) -> Any:
    """The heads of `previous_token` with positions in both alone, in keys alone, or in keys for one query of all."""
    model = planted.previous_token()
    query, key = (getattr(model.encoder.layer[0].attention.self, name) for name in ("query", "key"))
    if kind == "position–position":
        query.weight[planted.HALF :].zero_()  # the head of words
    elif kind == "word–position":
        query.weight[: planted.HALF].zero_()
        key.weight[planted.HALF :] = key.weight[: planted.HALF].clone()
    elif kind == "every query–position":
        query.weight.zero_()
        query.bias[0] = 1.0
    return model


@pytest.mark.parametrize(
    ("term", "least", "most_of_others"),
    [
        # Without positions their terms are noise of means over 24 texts.
        ("word–word", 0.8, 0.02),
        # What is left is the mean of all positions, which is a part of its own: the hands have not all come round.
        ("position–position", 0.97, 1e-3),
        ("word–position", 0.9, 1e-3),
        ("every query–position", 0.999, 1e-3),
    ],
)
def test_a_layer_that_is_made_for_one_term_has_that_one_and_the_query_is_named_first(
    term: str, least: float, most_of_others: float
) -> None:
    found = _measure("terms", readings.attend_to_content() if term == "word–word" else _change_heads(term))
    assert least < found[f"{term}, layer 1"] < 1.001
    kind = "position" if term == "word–word" else "word"
    others = [name for name in FOUR_TERMS.values() if kind in name and name != term]
    assert len(others) > 1 and all(abs(found[f"{name}, layer 1"]) < most_of_others for name in others)


def test_the_terms_are_those_that_inspect_finds_and_add_up() -> None:
    model = planted.previous_token()
    found = _measure("terms", model)
    assert sum(found.values()) == pytest.approx(1)
    (split,) = readings.split_layers(model, TEXTS)
    shares = dict(zip(TERMS, split.compute_layer_shares().tolist(), strict=True))
    for term, name in (FOUR_TERMS | OF_EVERY_QUERY).items():
        assert found[f"{name}, layer 1"] == pytest.approx(shares[term], abs=1e-6)


def test_equal_logits_have_no_terms() -> None:
    assert _measure("terms", planted.uniform()) == {}


def test_mixing_is_told_of_a_layer_with_positions_alone() -> None:
    found = _measure("mixing", planted.previous_token())
    assert found["mixed share of QK, layer 1"] < 0.05 < 0.2 < found["mixed share of QK by chance, layer 1"]
    assert _measure("mixing", readings.attend_to_content()) == {}


def test_lengths_are_those_of_the_rows() -> None:
    """Words are 32 channels of ±1, positions 16 hands and their opposites; position 0 is left out."""
    found = _measure("loudness", planted.previous_token())
    assert found["length of a word's row"] == pytest.approx(32**0.5)
    assert found["length of a position's row"] == pytest.approx(16**0.5)


def test_a_table_of_known_rank_fills_as_many_directions() -> None:
    model = planted.bert()
    with torch.no_grad():  # the corners of a square: two directions of equal variance
        corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
        model.embeddings.position_embeddings.weight[:, :2] = corners.repeat(planted.LENGTH // 4, 1)
    found = _measure("participation", model)
    assert found["directions filled by positions"] == pytest.approx(2, abs=0.05)
    assert found["directions filled by random rows"] > 10
    assert _measure("participation", planted.bert()) == {}, "all rows are zero"


def test_channels_without_positions_hardly_move() -> None:
    words, positions = readings.random_rows(planted.VOCAB), readings.half_rows(planted.LENGTH, upper=False)
    subject, _ = readings.with_tables(words, positions)
    found = _measure("channels", subject.model)
    assert found["share of channels that hardly move"] == 0.5
    assert found["move of a channel, first quarter"] > 0.5 > 0 == found["move of a channel, last quarter"]
    assert _measure("channels", planted.bert()) == {}, "half of the channels have no words"
