"""The right checkpoints are kept and averaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.runs import checkpoints
from clockhands.runs.recipe.sections import Training
from clockhands.training import keeping
from tests.runs.test_checkpoints import make


@pytest.mark.parametrize(("average", "kept"), [("none", [30, 40]), ("last", [30, 40]), ("best", [10, 20, 40])])
def test_what_is_needed_is_kept(tmp_path: Path, average: str, kept: list[int]) -> None:
    for step in (10, 20, 30, 40):
        make(tmp_path, step)
    loss = {10: 1.0, 20: 0.5, 30: 2.0, 40: 3.0}
    training = Training(max_steps=1, save_steps=10, eval_steps=10, keep=2, average=average)  # type: ignore[arg-type]
    keeping.discard(tmp_path, training, loss, 100)
    assert [checkpoints.get_step(path) for path in checkpoints.list_checkpoints(tmp_path)] == kept
    best = keeping.rank_best(checkpoints.list_checkpoints(tmp_path), loss, 1)
    assert checkpoints.get_step(best[0]) == min(kept, key=lambda step: loss[step])


@pytest.mark.parametrize(("average", "kept"), [("none", [20, 30, 34]), ("last", [20, 30, 34]), ("best", [10, 20, 34])])
def test_what_a_stop_saved_displaces_no_planned_one_and_is_not_averaged(
    tmp_path: Path, average: str, kept: list[int]
) -> None:
    for step in (10, 20, 25, 30, 34):
        make(tmp_path, step)
    loss = {10: 1.0, 20: 0.5, 30: 2.0}
    training = Training(max_steps=40, save_steps=10, eval_steps=10, keep=2, average=average)  # type: ignore[arg-type]
    keeping.discard(tmp_path, training, loss, 40)
    assert [checkpoints.get_step(path) for path in checkpoints.list_checkpoints(tmp_path)] == kept
    if average != "none":
        assert 34 not in [checkpoints.get_step(path) for path in keeping.select_averaged(tmp_path, training, loss, 40)]
        # The end is averaged wherever it lies; it has no validation loss here.
        last = keeping.select_averaged(tmp_path, training, loss, 34)[-1]
        assert checkpoints.get_step(last) == {"best": 10, "last": 34}[average]


def metrics(*losses: float) -> list[dict[str, float]]:
    """Lines as a run writes them: every second one has no validation loss."""
    return [
        line
        for step, loss in enumerate(losses, 1)
        for line in ({"step": 10 * step - 5, "loss": 1.0}, {"step": 10 * step, "validation_loss": loss})
    ]


@pytest.mark.parametrize("losses", [(), (2.0,), (3.0, 2.0, 1.0), (3.0, 2.0, 2.03)])
def test_a_validation_loss_that_falls_or_rises_within_its_noise_is_not_told(losses: tuple[float, ...]) -> None:
    assert keeping.describe_rise(metrics(*losses), Training(max_steps=30)) is None


def test_a_rise_is_told_with_a_setting_that_a_recipe_accepts_and_that_exports_the_lowest() -> None:
    said = keeping.describe_rise(metrics(3.0, 2.0, 2.5, 2.1), Training(max_steps=40, eval_steps=10, export="last"))
    assert said is not None and "lowest after 20 steps (2.0000) and has risen since" in said
    assert said.endswith("--set training.export=lowest")
    training = Training(max_steps=40, eval_steps=10, export="lowest")
    assert training.find_faults() == []
    told = keeping.describe_rise(metrics(3.0, 2.0, 2.5), training)
    assert told is not None and told.endswith("has risen since, to 2.5000 after 30")
    best = Training(max_steps=40, average="best", keep=1, eval_steps=10, save_steps=10)
    assert keeping.describe_rise(metrics(3.0, 2.0, 2.5), best) is None, "the best weights are exported already"


def test_the_checkpoint_that_is_exported_stays(tmp_path: Path) -> None:
    for step in (10, 20, 25, 30, 40):
        make(tmp_path, step)
    loss = {10: 1.0, 20: 0.5, 30: 0.5, 40: 3.0}
    training = Training(max_steps=40, eval_steps=10, keep=1, export="lowest")
    keeping.discard(tmp_path, training, loss, 40)
    saved = checkpoints.list_checkpoints(tmp_path)
    assert [checkpoints.get_step(path) for path in saved] == [20, 40], "of equal losses the first"
    assert keeping.select_lowest(saved, training, loss) == saved[0]
    assert keeping.select_lowest(saved, replace(training, export="last"), loss) is None
    assert keeping.select_lowest(saved, training, {}) is None, "a checkpoint without a validation loss is not judged"


def test_a_loss_that_is_no_number_is_never_the_lowest() -> None:
    history = [{"step": step, "eval_loss": loss} for step, loss in ((1, float("nan")), (2, 3.0), (3, float("nan")))]
    losses = keeping.read_losses({"log_history": history})
    first, second, third = ({step: losses[step] for step in range(1, last + 1)} for last in (1, 2, 3))
    assert [keeping.is_lowest(known) for known in (first, second, third)] == [True, True, False]
    assert keeping.rank_best([Path(f"checkpoint-{step}") for step in losses], losses, 1) == [Path("checkpoint-2")]


@pytest.mark.parametrize(
    ("values", "lowest"), [([1.0], True), ([2.0, 1.0], True), ([1.0, 1.0], False), ([1, 2], False)]
)
def test_a_loss_is_the_lowest_only_below_all_others(values: list[float], lowest: bool) -> None:
    assert keeping.is_lowest(dict(enumerate(values))) is lowest
