"""The Trainer of transformers with what is ours: batches, rates, evaluation, and counts kept on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from clockhands.data import IGNORED_LABEL
from clockhands.runs.recipe import Recipe, vary_recipe
from clockhands.training.model import build
from clockhands.training.schedule import Precision
from clockhands.training.trainer import RANK_STRIDE, ClockhandsTrainer, EpochLoader, complete_arguments, make_arguments
from clockhands.training.training_data import TrainingData
from tests.training.tiny import TABLES


@pytest.fixture
def make(material: TrainingData, tmp_path: Path) -> Callable[..., ClockhandsTrainer]:
    """Make a trainer of the tiny recipe with other fields of [training], around a new model."""

    def make_trainer(**training: Any) -> ClockhandsTrainer:
        fields = {f"training.{name}": value for name, value in {"device": "cpu", **training}.items()}
        recipe = vary_recipe(Recipe.from_tables(TABLES), fields)
        torch.manual_seed(0)
        arguments = make_arguments(recipe.training, tmp_path / "checkpoints")
        return ClockhandsTrainer(recipe, material, build(recipe, material.tokenizers), arguments, [])

    return make_trainer


def test_the_arguments_are_those_of_the_recipe(tmp_path: Path) -> None:
    training = Recipe.from_tables(TABLES).training
    arguments = make_arguments(training, tmp_path / "run" / "checkpoints")
    assert (arguments.max_steps, arguments.gradient_accumulation_steps, arguments.seed) == (24, 2, 0)
    assert (arguments.adam_beta1, arguments.adam_beta2, arguments.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (arguments.run_name, arguments.eval_steps, arguments.save_steps) == ("run", 7, 7)
    assert not arguments.bf16 and arguments.n_gpu <= 1
    complete_arguments(arguments, training, Precision("bf16", "cpu"))
    assert arguments.bf16 and arguments.mixed_precision == "bf16"


def test_the_rate_is_that_of_the_schedule_at_every_update(make: Callable[..., ClockhandsTrainer]) -> None:
    """Linear over 5 updates to 0.01, then 0.01 · √(5 / s): the formula, with no line of the module."""
    trainer = make()
    scheduler = trainer.create_scheduler(24)
    rates = []
    for _ in range(24):
        rates.append(scheduler.get_last_lr()[0])
        scheduler.optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([0.01 * s / 5 if s < 5 else 0.01 * math.sqrt(5 / s) for s in range(1, 25)])


def test_the_first_step_without_a_finite_loss_is_noted(
    make: Callable[..., ClockhandsTrainer], material: TrainingData
) -> None:
    trainer = make()
    batch = material.collate([material.train[0], material.train[1]])
    trainer.training_step(trainer.model, dict(batch), 9)
    assert int(trainer.first_bad) == -1
    with torch.no_grad():
        next(iter(trainer.model.parameters())).fill_(torch.nan)
    for trainer.state.global_step in (6, 7):
        trainer.training_step(trainer.model, dict(batch), 9)
        assert int(trainer.first_bad) == 7, "the step that is being made is the one after those that were"


def test_target_tokens_are_counted_without_pads(make: Callable[..., ClockhandsTrainer], material: TrainingData) -> None:
    trainer = make()
    shortest_first = sorted(range(len(material.train)), key=lambda index: len(material.train[index]["labels"]))
    batches = [
        material.collate([material.train[index] for index in (*shortest_first[:n], shortest_first[-1])]) for n in (1, 2)
    ]
    trainer.get_batch_samples(iter(batches), 2, torch.device("cpu"))
    assert int(trainer.tokens) == sum(int((batch["labels"] != IGNORED_LABEL).sum()) for batch in batches)
    assert any((batch["labels"] == IGNORED_LABEL).any() for batch in batches), "there are pads to leave out"


def test_every_epoch_has_an_order_of_its_own_and_costs_no_random_number(material: TrainingData) -> None:
    recipe = Recipe.from_tables(TABLES)

    def read(epoch: int) -> list[list[int]]:
        loader = EpochLoader(material.train, material.batches(recipe), material.collate, pin=False)
        loader.set_epoch(epoch)
        return [batch["input_ids"].tolist() for batch in loader]

    before = torch.get_rng_state()
    first = read(0)
    assert torch.equal(torch.get_rng_state(), before)
    assert first == read(0) != read(1)


def test_processes_draw_other_dropout(make: Callable[..., ClockhandsTrainer], monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed of another process lies far from that of the next recipe seed."""
    seeds: list[int] = []
    monkeypatch.setattr("transformers.TrainingArguments.process_index", 2)
    monkeypatch.setattr("clockhands.training.trainer.torch.manual_seed", seeds.append)
    make(seed=3)
    assert seeds[-1] == 3 + 2 * RANK_STRIDE
