"""The tables of a recipe as dataclasses: values that contradict each other, and numbers that are still open."""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.errors import ConfigError
from clockhands.runs.recipe.sections import Batching, Tokenization, Training


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        (Training, {"max_steps": 1, "epochs": 1.0}, "both say how long"),
        (Training, {"schedule": "paper"}, "needs training.warmup_steps"),
        (Training, {"warmup_from": 0.1, "warmup_steps": 0}, "means nothing without training.warmup_steps"),
        (Training, {"patience": 2, "eval_steps": None}, "give training.eval_steps"),
        (Training, {"export": "lowest", "eval_steps": None}, "give training.eval_steps"),
        (Training, {"export": "lowest", "average": "last", "save_steps": 1}, "give one of them"),
        (Training, {"average": "best", "save_steps": 3, "eval_steps": 2}, "a validation loss of every checkpoint"),
        (Batching, {"tokens": 5, "size": 5}, "both bound a batch"),
        (Batching, {"tokens": 5, "bucketed": False}, "give batches.size"),
        (Batching, {"longer": "cut"}, "means nothing without batches.max_length"),
        (Tokenization, {"target_name": "x"}, "needs tokenizer.name"),
        (Tokenization, {"name": "x", "lowercase": True}, "tokenizer.lowercase is for a tokenizer learned here"),
    ],
)
def test_values_that_contradict_are_one_sentence(section: type[Any], values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        section(**values)
    (fault,) = caught.value.faults
    assert words in fault


def test_what_is_consistent_has_no_fault() -> None:
    assert Training(max_steps=4, average="best", save_steps=2, eval_steps=1).keep == 2
    assert Batching(size=4).size == 4 and Tokenization(name="x", target_name="y").name == "x"


def test_auto_has_to_be_a_number_before_it_is_used() -> None:
    with pytest.raises(ValueError, match="learning_rate is 'auto'"):
        _ = Training(max_steps=1).rate
    with pytest.raises(ValueError, match="warmup_steps is 'auto'"):
        _ = Training(max_steps=1).warmup
    given = Training(max_steps=1, learning_rate=0.5, warmup_steps=3)
    assert (given.rate, given.warmup) == (0.5, 3)


def test_checkpoints_are_saved_by_steps_or_by_the_clock() -> None:
    assert Training(save_steps=5, save_minutes=0.0).is_saved_regularly and Training().is_saved_regularly
    assert not Training(save_minutes=0.0).is_saved_regularly
