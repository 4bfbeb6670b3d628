"""The tables of a recipe as dataclasses: values that contradict each other, and numbers that are still open."""

from __future__ import annotations

import pytest

from clockhands.runs.recipe.sections import Batching, Tokenization, Training


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (Training(), "training.max_steps is missing"),
        (Training(max_steps=1, epochs=1.0), "both say how long"),
        (Training(max_steps=1, schedule="paper"), "needs training.warmup_steps"),
        (Training(max_steps=1, warmup_from=0.1, warmup_steps=0), "means nothing without training.warmup_steps"),
        (Training(max_steps=1, patience=2, eval_steps=None), "give training.eval_steps"),
        (Training(max_steps=1, export="lowest", eval_steps=None), "give training.eval_steps"),
        (Training(max_steps=1, export="lowest", average="last", save_steps=1), "give one of them"),
        (Training(max_steps=4, average="best", save_steps=2), "a validation loss of every checkpoint"),
        (Batching(tokens=5, size=5), "both bound a batch"),
        (Batching(tokens=5, bucketed=False), "give batches.size"),
        (Batching(longer="cut"), "means nothing without batches.max_length"),
        (Tokenization(target_name="x"), "needs tokenizer.name"),
        (Tokenization(name="x", lowercase=True), "tokenizer.lowercase is for a tokenizer learned here"),
    ],
)
def test_values_that_contradict_each_other_are_one_sentence(
    section: Training | Batching | Tokenization, words: str
) -> None:
    (fault,) = section.find_faults()
    assert words in fault


def test_what_is_consistent_has_no_fault() -> None:
    average = Training(max_steps=4, average="best", save_steps=2, eval_steps=1)
    assert (
        average.find_faults()
        == Batching(size=4).find_faults()
        == Tokenization(name="x", target_name="y").find_faults()
        == []
    )


def test_auto_has_to_be_a_number_before_it_is_used() -> None:
    with pytest.raises(ValueError, match="learning_rate is 'auto'"):
        _ = Training(max_steps=1).rate
    with pytest.raises(ValueError, match="warmup_steps is 'auto'"):
        _ = Training(max_steps=1).warmup
    before = Training(max_steps=1, learning_rate=None, warmup_steps=3)
    assert (before.rate, before.warmup) == (5e-4, 3)
    assert Training(max_steps=1, learning_rate=None, schedule="paper").rate == 1.0


def test_checkpoints_are_saved_by_steps_or_by_the_clock() -> None:
    assert Training(save_steps=5, save_minutes=0.0).is_saved_regularly and Training().is_saved_regularly
    assert not Training(save_minutes=0.0).is_saved_regularly
