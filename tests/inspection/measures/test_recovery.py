"""Tokens are recovered from the sum with their position, or are not, as planted."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection import inspect
from clockhands.inspection.measures.recovery import FACTORS, Sample, _describe_limit
from clockhands.model import PositionConfig, Transformer, TransformerConfig
from clockhands.models.subject import Subject

from .. import planted
from ..planted import LENGTH, VOCAB, answer
from .readings import random_rows, read_own, with_tables


@pytest.mark.parametrize(
    ("factor", "sentence", "light"),
    [
        (0.2, "times their own length positions lose one token in twenty or more", "good"),
        (30.0, "At their own length positions already lose", "bad"),
    ],
)
def test_recovery(factor: float, sentence: str, light: str) -> None:
    found = answer("recovery", *with_tables(random_rows(VOCAB), factor * random_rows(LENGTH, 1)))
    assert sentence in found.verdict and found.light == light
    assert [reference.name for reference in found.references] == ["random vectors"]


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (1.0, "At 2 times their own length positions lose one token in twenty or more."),
        (8.0, "At 16 times their own length positions lose one token in twenty or more."),
        (32.0, "Even 32 times as long, positions lose less than one token in twenty."),
    ],
)
def test_how_much_longer_positions_may_be(last: float, said: str) -> None:
    sweep = [(factor, torch.tensor([float(factor <= last)]), torch.zeros(1)) for factor in FACTORS]
    assert _describe_limit(sweep) == said


def test_a_token_is_not_its_own_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another row than the token's own was nearest, a neighbour that stayed was subtracted in its place."""
    monkeypatch.setattr("clockhands.inspection.measures.recovery.NEIGHBOURS", 2)
    rows = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1], [0, -1, 0, 0], [0, 0, -1, 0]]).float()
    sample = Sample(rows, torch.tensor([0]), torch.tensor([0]), torch.zeros(1, 4), torch.zeros(1, 4))
    assert sample.compare_neighbours(torch.zeros(1, 4)) == 1.0
    away = torch.tensor([[-0.9, 1.0, 1.0, 0.5]])
    order = torch.nn.functional.cosine_similarity(rows[:1] + away, rows).argsort(descending=True).tolist()
    assert set(order[:2]) == {1, 2} and order[2] == 3, "both neighbours and another are nearer than the word"
    assert sample.compare_neighbours(away) == 1.0
    assert sample.compare_neighbours(torch.tensor([[-1.0, 1.0, 0.0, 9.0]])) == 0.5, "the second is lost"


def test_the_interval_is_exact_where_all_tokens_are_recovered() -> None:
    found = answer("recovery", *with_tables(random_rows(VOCAB), 0.001 * random_rows(LENGTH, 1)))
    assert found.value == 1.0
    assert found.interval == pytest.approx((0.025 ** (1 / 32), 1.0)), "of 32 texts, Clopper and Pearson"


@pytest.mark.parametrize(("tokens", "said"), [(200, "of the 10 rows nearest"), (4, "of the 3 rows nearest")])
def test_neighbours_are_no_more_than_there_are(tokens: int, said: str) -> None:
    _, recorded = with_tables(random_rows(VOCAB), random_rows(LENGTH, 1))
    recorded.ids_NT.remainder_(tokens)
    assert said in answer("recovery", Subject.of(planted.make_bert(vocab_size=tokens)), recorded).verdict


def test_concatenated_positions_are_not_added() -> None:
    found = answer("recovery", *read_own(PositionConfig("sinusoidal", combine="concatenate", width=16), tying="none"))
    assert found.light == "skip" and found.verdict.startswith("Positions are concatenated with the tokens here")
    assert answer("recovery", *read_own(PositionConfig("sinusoidal"))).light != "skip"


def test_a_model_of_one_token_has_no_other_to_take_it_for() -> None:
    torch.manual_seed(0)
    config = TransformerConfig(kind="decoder", vocab_size=1, d_model=8, num_heads=1, d_ff=8, decoder_layers=1)
    findings = inspect(Transformer(config), ids=torch.zeros(8, 12, dtype=torch.long), control=False)
    assert findings["recovery"].verdict == "The model knows one token only, which no other can be taken for."
