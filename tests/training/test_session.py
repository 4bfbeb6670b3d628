"""Training end to end on a run of seconds: its folder, exact resume, its curves, and every way it can go wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, TrainerCallback, TrainerControl, TrainerState

from clockhands.cli.train import _describe_model_loss
from clockhands.errors import BusyError, CheckpointError, ClockhandsWarning, DataError, UsageError
from clockhands.files import lock_folder
from clockhands.runs import Run, checkpoints
from clockhands.runs import folder as run_module
from clockhands.runs.export import make_card
from clockhands.runs.folder import add_facts
from clockhands.runs.recipe.sections import Training
from clockhands.training import (
    Diverged,
    Recipe,
    TrainingData,
    TrainingStopped,
    callbacks,
    prepare,
    resume,
    session,
    train,
    trainer,
    vary_recipe,
)
from clockhands.training.callbacks import Stop
from clockhands.training.schedule import fill_in_auto
from clockhands.training.session import draw_curves
from clockhands.training.trainer import ClockhandsTrainer, make_arguments
from tests.training.tiny import tables

NOBODY = 65534
METRICS = [
    {"step": 10, "loss": 3.0, "learning_rate": 1e-3},
    {"step": 20, "loss": 2.0, "learning_rate": 2e-3, "validation_loss": 2.5},
]


@pytest.fixture(autouse=True)
def _heed_sighup() -> Iterator[None]:
    """As in a terminal, also where the suite itself was started with nohup, under which a run is not to stop."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="module")
def whole(material: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that was never stopped, with its curves drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "draw_curves", draw_curves)
        return train(tables(), tmp_path_factory.mktemp("runs") / "whole", material=material)


def weights(run: Run | Path) -> bytes:
    return (getattr(run, "path", run) / "model.safetensors").read_bytes()


def logged(run: Run) -> list[dict[str, Any]]:
    """The record of a run without its speed."""
    return [{key: value for key, value in line.items() if key != "tokens_per_second"} for line in run.metrics]


def on_step(step: int, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something in the middle of a run, after so many updates."""

    class Act(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == step:
                act()

    class Acting(ClockhandsTrainer):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given[:-1], [Act(), *given[-1]])

    monkeypatch.setattr(session, "ClockhandsTrainer", Acting)


def test_a_run_folder_holds_everything(whole: Run) -> None:
    files = {path.name for path in whole.path.iterdir()}
    assert {"recipe.toml", "run.json", "metrics.jsonl", "curves.svg", "config.json", "model.safetensors"} <= files
    assert Run.from_folder(whole.path).recipe == fill_in_auto(Recipe.from_tables(tables()), validates=True)
    assert whole.finished
    assert whole.record["step"] == 24
    lines = whole.metrics
    assert [line["step"] for line in lines if "loss" in line] == [4, 8, 12, 16, 20, 24]
    assert [line["step"] for line in lines if "validation_loss" in line] == [7, 14, 21, 24]
    assert [path.name for path in whole.checkpoints] == ["checkpoint-21", "checkpoint-24"]
    assert "training loss" in (whole.path / "curves.svg").read_text()


def test_a_run_opens_again_here_and_in_transformers(whole: Run) -> None:
    ours, theirs = whole.model, AutoModelForSeq2SeqLM.from_pretrained(whole.path)
    ids = torch.tensor([whole.tokenizers.source("Tom bit a dog")["input_ids"]])
    mine = ours(input_ids=ids, decoder_input_ids=ids).logits
    assert not ours.training
    assert torch.equal(mine, theirs.eval()(input_ids=ids, decoder_input_ids=ids).logits)
    assert whole.record["parameters"] == sum(parameter.numel() for parameter in ours.parameters())


def test_the_same_recipe_gives_the_same_weights_and_another_seed_others(
    whole: Run, material: TrainingData, tmp_path: Path
) -> None:
    assert weights(train(tables(), tmp_path / "again")) == weights(whole)
    assert weights(train(tables(seed=1), tmp_path / "other", material=material)) != weights(whole)


def test_looking_on_changes_nothing(whole: Run, material: TrainingData, tmp_path: Path) -> None:
    seldom = tables(log_steps=100, eval_steps=None, save_steps=None, save_minutes=0)
    rare = train(seldom, tmp_path / "rare", material=material)
    assert weights(rare) == weights(whole)
    assert rare.checkpoints == []


def test_checkpoints_by_the_clock_change_nothing(
    whole: Run, material: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "MAX_SAVING_SHARE", 1e9)  # as often as they are due, which is after every step
    saved: list[str] = []
    monkeypatch.setattr(
        trainer, "discard", lambda folder, *_: saved.extend(map(str, checkpoints.list_checkpoints(folder)))
    )
    often = train(tables(save_steps=None, save_minutes=1e-9), tmp_path / "often", material=material)
    assert {Path(path).name for path in saved} == {f"checkpoint-{step}" for step in range(1, 25)}
    assert weights(often) == weights(whole) and logged(often) == logged(whole)
    monkeypatch.undo()
    # As if it had been killed after step 13, one after a log line and between two evaluations.
    for path in often.checkpoints[13:]:
        shutil.rmtree(path)
    add_facts(often.path, finished=False)
    continued = resume(often.path)
    assert weights(continued) == weights(whole) and logged(continued) == logged(whole)


def test_checkpoints_by_the_clock_take_a_small_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: now[0])
    flow = callbacks.Flow(Training(max_steps=1000, learning_rate=1e-3, save_minutes=1.0), Stop(), validates=False)
    flow.trainer = SimpleNamespace(saving_seconds=0.1)  # type: ignore[assignment]
    args, state = make_arguments(flow.training, tmp_path), TrainerState(global_step=1, max_steps=1000)

    def saves_at(seconds: float) -> bool:
        now[0], control = seconds, TrainerControl()
        flow.on_step_end(args, state, control)
        return control.should_save

    assert [saves_at(59.0), saves_at(60.0)] == [False, True]
    flow.on_save(args, state, TrainerControl())
    flow.trainer.saving_seconds = 6.0
    assert [saves_at(60 + 60.0), saves_at(60 + 299.0), saves_at(60 + 300.0)] == [False, False, True]


def test_a_run_that_is_busy_is_refused_and_left_alone(material: TrainingData, tmp_path: Path) -> None:
    run = train(tables(max_steps=2), tmp_path / "run", material=material)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    found: list[BaseException] = []

    def another() -> None:
        for act in (
            lambda: resume(run.path, {"training.max_steps": 3}),
            lambda: train(tables(max_steps=3), run.path, material=material, overwrite=True),
        ):
            try:
                act()
            except BusyError as fault:
                found.append(fault)

    with lock_folder(run.path):
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
    assert [f"process {os.getpid()} on" in str(fault) for fault in found] == [True, True]
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_every_file_of_a_run_has_the_permissions_of_the_umask(material: TrainingData, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        run = train(tables(max_steps=2), tmp_path / "run", material=material)
    finally:
        os.umask(before)
    modes = {str(path.relative_to(run.path)): path.stat().st_mode & 0o777 for path in run.path.rglob("*")}
    assert {"model.safetensors", "checkpoints/checkpoint-2/model.safetensors", "run.json"} <= set(modes)
    assert {name: oct(mode) for name, mode in modes.items() if mode not in (0o640, 0o750)} == {}


def test_a_start_that_was_killed_is_taken_over_by_the_same_command(
    material: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: Any, **__: Any) -> None:
        # As kill -9 leaves it: nothing is cleaned up.
        monkeypatch.setattr(run_module.shutil, "rmtree", lambda *_, **__: None)
        raise Killed

    monkeypatch.setattr(session, "write_text", killed)
    with pytest.raises(Killed):
        train(tables(max_steps=2), tmp_path / "run", material=material)
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".starting"]
    with pytest.raises(CheckpointError, match=r"stopped before it began; give the command that started it again"):
        resume(tmp_path / "run")
    (tmp_path / "run/thesis.tex").write_text("mine")
    assert train(tables(max_steps=2), tmp_path / "run", material=material).finished
    train(tables(max_steps=1), tmp_path / "run", material=material, overwrite=True)
    assert (tmp_path / "run/thesis.tex").read_text() == "mine"
    assert [path.name for path in Run.from_folder(tmp_path / "run").checkpoints] == ["checkpoint-1"]


def test_a_faulty_start_leaves_the_former_run(
    material: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(tables(max_steps=1), tmp_path / "run", material=material)
    before = weights(run)

    def full(*_: Any, **__: Any) -> None:
        raise DataError("cannot write: No space left on device")

    monkeypatch.setattr(session, "write_text", full)
    with pytest.raises(DataError, match="No space left"):
        train(tables(max_steps=2), run.path, material=material, overwrite=True)
    assert weights(run) == before and Run.from_folder(run.path).finished
    assert not (run.path / ".starting").exists()


def test_fewer_steps_than_were_made_are_refused(material: TrainingData, tmp_path: Path) -> None:
    run = train(tables(max_steps=6), tmp_path / "run", material=material)
    with pytest.raises(UsageError, match=r"has made 6 steps already, and 4 are asked for; give training.max_steps = 6"):
        resume(run.path, {"training.max_steps": 4})
    assert run.finished and Run.from_folder(run.path).recipe.training.max_steps == 6
    assert resume(run.path, {"training.max_steps": 6, "training.keep": 5}).record["step"] == 6, "it only finishes"


# 11 is inside an epoch and between two checkpoints, 8 is the end of an epoch (8 updates), 14 is a checkpoint's step.
@pytest.mark.parametrize(
    ("step", "number"), [(8, signal.SIGTERM), (11, signal.SIGINT), (14, signal.SIGHUP)], ids=lambda value: str(value)
)
def test_ctrl_c_saves_and_resuming_ends_with_the_same_run(
    whole: Run,
    material: TrainingData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    number: signal.Signals,
) -> None:
    times = 2 if number == signal.SIGHUP else 1  # of a closed terminal both the system and the shell send word
    on_step(step, lambda: [os.kill(os.getpid(), number) for _ in range(times)], monkeypatch)
    with pytest.raises(TrainingStopped, match=rf"stopped at step {step} of 24; continue with: clockhands train --res"):
        train(tables(), tmp_path / "run", material=material)
    monkeypatch.undo()
    stopped = Run.from_folder(tmp_path / "run")
    assert not stopped.finished
    assert stopped.checkpoints[-1].name == f"checkpoint-{step}"
    assert stopped.model.training is False
    continued = resume(tmp_path / "run")
    assert weights(continued) == weights(whole)
    assert continued.finished
    assert logged(continued) == logged(whole)
    assert [path.name for path in continued.checkpoints] == [path.name for path in whole.checkpoints]


def test_under_nohup_the_end_of_the_terminal_is_no_reason_to_stop(material: TrainingData, tmp_path: Path) -> None:
    class Close(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            os.kill(os.getpid(), signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = train(tables(max_steps=2), tmp_path / "run", material=material, callbacks=[Close()])
    finally:
        signal.signal(signal.SIGHUP, before)
    assert run.record["step"] == 2


def test_a_second_ctrl_c_stops_at_once(material: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    on_step(9, twice, monkeypatch)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(tables(), tmp_path / "run", material=material)
    assert signal.getsignal(signal.SIGINT) is before
    assert [path.name for path in Run.from_folder(tmp_path / "run").checkpoints] == ["checkpoint-7"]


def test_a_run_without_a_checkpoint_starts_again(
    whole: Run, material: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_step(3, lambda: (_ for _ in ()).throw(MemoryError()), monkeypatch)
    with pytest.raises(MemoryError):
        train(tables(), tmp_path / "run", material=material)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="holds no model yet; continue with: clockhands train --resume"):
        assert Run.from_folder(tmp_path / "run").model
    assert weights(resume(tmp_path / "run")) == weights(whole)


def test_a_disk_that_fills_up_keeps_the_old_checkpoint_and_the_run_goes_on_later(
    whole: Run, material: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = torch.save

    def full(content: Any, file: Any, **given: Any) -> None:
        if "checkpoint-14" in str(file):
            raise OSError(28, "No space left on device")
        saved(content, file, **given)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(CheckpointError, match=r"step 14 cannot be saved .* No space left on device; checkpoint-7 is"):
        train(tables(), tmp_path / "run", material=material)
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["checkpoint-7"]
    assert weights(resume(tmp_path / "run")) == weights(whole)


def test_a_run_is_saved_by_default_and_can_be_made_longer(whole: Run, material: TrainingData, tmp_path: Path) -> None:
    run = train(tables(save_steps=None, max_steps=11), tmp_path / "run", material=material)
    assert [path.name for path in run.checkpoints] == ["checkpoint-7", "checkpoint-11"]
    assert resume(run.path).record["step"] == 11, "nothing is left to do"
    with pytest.raises(UsageError, match=r"keeps its recipe: training.learning_rate cannot be changed; only training"):
        resume(run.path, {"training.learning_rate": 1.0})
    assert weights(resume(run.path, {"training.max_steps": 24})) == weights(whole)


def test_a_finished_run_without_checkpoints_cannot_be_made_longer(material: TrainingData, tmp_path: Path) -> None:
    run = train(tables(max_steps=2, save_steps=None, save_minutes=0), tmp_path / "run", material=material)
    with pytest.raises(CheckpointError, match="is finished and kept no checkpoint"):
        resume(run.path, {"training.max_steps": 4})


def test_changed_text_and_damaged_checkpoints_are_refused(material: TrainingData, tmp_path: Path) -> None:
    run = train(tables(max_steps=8, eval_steps=None), tmp_path / "run", material=material)
    last = run.checkpoints[-1]
    (last / "optimizer.pt").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"checkpoint-8/optimizer.pt cannot be read .* delete that checkpoint"):
        resume(run.path, {"training.max_steps": 9})
    (run.path / "run.json").write_text(json.dumps({**run.record, "data": "other", "finished": False}))
    last.rename(tmp_path / "away")
    with pytest.raises(DataError, match="is not what it was when training began"):
        resume(run.path)


def test_a_run_of_bounded_pairs_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clockhands.training.training_data.LONGEST", 6)
    with pytest.warns(match="are left out"):
        run = train(tables(max_steps=7), tmp_path / "run")
        assert resume(run.path, {"training.max_steps": 8}).record["data"] == run.record["data"]


def test_a_run_is_not_written_over_without_being_asked(material: TrainingData, tmp_path: Path) -> None:
    run = train(tables(max_steps=1), tmp_path / "run", material=material)
    with pytest.raises(UsageError, match=r"already holds a run; replace it: --overwrite .*, or continue a training"):
        train(tables(max_steps=2), run.path, material=material)
    assert train(tables(max_steps=2), run.path, material=material, overwrite=True).record["step"] == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").touch()
    with pytest.raises(UsageError, match="exists and is not a training run; it is left alone"):
        train(tables(), tmp_path / "mine", material=material, overwrite=True)


@pytest.fixture
def powerless() -> Iterator[None]:
    """The superuser may write everywhere, so the test is somebody else for a while."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(NOBODY)
    yield
    os.seteuid(mine)


@pytest.fixture
def closed(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder with these rights, outside ``tmp_path``, which nobody else may enter."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(request.param)
        yield Path(folder)
        Path(folder).chmod(0o700)


@pytest.mark.parametrize("closed", [0o555, 0o000], indirect=True, ids=["may be read", "may not be entered"])
def test_a_folder_that_may_not_be_written_is_named(material: TrainingData, closed: Path, powerless: None) -> None:
    with pytest.raises(DataError, match=r"cannot make the folder .*: Permission denied"):
        train(tables(), closed / "run", material=material)


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become somebody else")
@pytest.mark.parametrize("closed", [0o755], indirect=True)
def test_weights_that_may_not_be_read_are_told_from_missing_ones(material: TrainingData, closed: Path) -> None:
    run = train(tables(max_steps=1), closed / "run", material=material)
    (run.path / "model.safetensors").chmod(0o600)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(CheckpointError, match=r"cannot read .*model\.safetensors: Permission denied"):
            assert run.model
    finally:
        os.seteuid(0)


def test_a_run_folder_below_a_file_is_named(material: TrainingData, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot make the folder .*file/run: Not a directory"):
        train(tables(), tmp_path / "file" / "run", material=material)


@pytest.mark.parametrize(("name", "found"), [("nowhere", "no such folder"), ("", "recipe.toml not found")])
def test_what_is_no_run_is_named(tmp_path: Path, name: str, found: str) -> None:
    with pytest.raises(CheckpointError, match=rf"is not a training run \({found}\)"):
        resume(tmp_path / name)


def test_a_loss_that_is_no_number_stops_at_its_step_and_keeps_the_last_good_checkpoint(
    material: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaking(ClockhandsTrainer):
        def compute_loss(self, *given: Any, **named: Any) -> Any:
            factor = float("nan") if self.state.global_step == 9 else 1.0
            return super().compute_loss(*given, **named) * factor

    monkeypatch.setattr(session, "ClockhandsTrainer", Breaking)
    advice = (
        r"the loss at step 10 is nan; training stopped, .*checkpoint-7\. Try a lower training.learning_rate \(now 0.0"
    )
    with pytest.raises(Diverged, match=advice):
        train(tables(), tmp_path / "run", material=material)
    assert [path.name for path in Run.from_folder(tmp_path / "run").checkpoints] == ["checkpoint-7"]


@pytest.mark.parametrize("validates", [True, False])
def test_weights_that_the_last_step_made_infinite_are_no_finished_run(
    material: TrainingData, tmp_path: Path, validates: bool
) -> None:
    """The loss of a step is that of the weights before it."""
    data = material if validates else replace(material, validation=None)
    changed = tables(max_steps=1, learning_rate=1e308, warmup_steps=None, eval_steps=None, save_steps=None)
    told = "the validation loss at step 1 is nan" if validates else "after step 1 there are weights that are NaN"
    with pytest.raises(Diverged, match=rf"{told}.* no checkpoint was saved before"):
        train(changed, tmp_path / "run", {"training.save_minutes": 0}, material=data)
    assert not Run.from_folder(tmp_path / "run").finished
    assert not (tmp_path / "run/model.safetensors").exists()


def test_a_loss_that_explodes_stops_the_run(material: TrainingData, tmp_path: Path) -> None:
    changed = tables(learning_rate=100.0, warmup_steps=None, clip=0.0, log_steps=1)
    with pytest.raises(Diverged, match=r"the loss rose to .* at step \d+, from .* no checkpoint was saved before"):
        train(changed, tmp_path / "run", material=material)
    unguarded = tables(learning_rate=100.0, warmup_steps=None, clip=0.0, log_steps=1, explosion=0.0)
    assert train(unguarded, tmp_path / "unguarded", material=material).finished


def test_accumulated_batches_make_the_step_of_one_big_batch(material: TrainingData, tmp_path: Path) -> None:
    # Mixed lengths, so that the two halves hold different numbers of tokens: a mean of means would differ.
    same = {"max_steps": 5, "label_smoothing": 0.0, "eval_steps": 5, "save_steps": None}
    base = vary_recipe(Recipe.from_tables(tables(**same)), {"model.dropout": 0.0, "batches.bucketed": False})
    halves = train(vary_recipe(base, {"batches.size": 40}), tmp_path / "halves", material=material)
    one = train(vary_recipe(base, {"batches.size": 80, "training.accumulate": 1}), tmp_path / "one", material=material)
    for ours, theirs in zip(halves.metrics, one.metrics, strict=True):
        key = "loss" if "loss" in ours else "validation_loss"
        assert ours[key] == pytest.approx(theirs[key], rel=1e-5)


@torch.no_grad()
def compute_validation_loss(run: Run, material: TrainingData) -> float:
    """The mean loss of a token of the validation split, one sentence after another, without our evaluation."""
    assert material.validation is not None
    total, count = 0.0, 0
    for row in range(len(material.validation)):
        batch = material.collate([material.validation[row]])
        logits = run.model(**{key: batch[key] for key in ("input_ids", "attention_mask", "labels")}).logits
        total += float(torch.nn.functional.cross_entropy(logits[0], batch["labels"][0], reduction="sum"))
        count += batch["labels"].numel()
    return total / count


def test_the_validation_loss_is_the_mean_over_tokens_without_smoothing(whole: Run, material: TrainingData) -> None:
    assert whole.metrics[-1]["validation_loss"] == pytest.approx(compute_validation_loss(whole, material), rel=1e-5)


def test_averaging_saves_the_mean_of_the_last_checkpoints(material: TrainingData, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    run = train(tables(average="last", keep=3), tmp_path / "run", material=material)
    parts = [load_file(path / "model.safetensors") for path in run.checkpoints]
    assert [path.name for path in run.checkpoints] == ["checkpoint-14", "checkpoint-21", "checkpoint-24"]
    name = "model.decoder.input.tokens.weight"
    mean = torch.stack([part[name] for part in parts]).mean(0)
    torch.testing.assert_close(load_file(run.path / "model.safetensors")[name], mean)


def test_the_best_checkpoint_is_chosen_and_training_stops_when_nothing_improves(
    material: TrainingData, tmp_path: Path
) -> None:
    # With this rate the validation loss soon rises; three evaluations without a better one end the run.
    changed = {"max_steps": 200, "save_steps": 2, "eval_steps": 2, "average": "best", "keep": 1, "patience": 3}
    run = train(tables(**changed, learning_rate=0.3, explosion=0.0), tmp_path / "run", material=material)
    losses = {line["step"]: line["validation_loss"] for line in run.metrics if "validation_loss" in line}
    best = min(losses, key=lambda step: losses[step])
    assert run.record["step"] == best + 6 < 200
    assert run.finished
    assert weights(run) == weights(run.path / f"checkpoints/checkpoint-{best}")


def test_bf16_trains_and_keeps_float32_weights(whole: Run, material: TrainingData, tmp_path: Path) -> None:
    run = train(tables(precision="bf16"), tmp_path / "run", material=material)
    assert next(run.model.parameters()).dtype == torch.float32
    assert weights(run) != weights(whole)
    assert run.metrics[-1]["validation_loss"] == pytest.approx(whole.metrics[-1]["validation_loss"], rel=0.03)


def test_threads_are_those_asked_for_and_as_before_afterwards(material: TrainingData, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    assert train(tables(max_steps=1, threads=before + 1), tmp_path / "run", material=material).record["threads"] == 2
    assert torch.get_num_threads() == before


def test_other_threads_than_a_run_began_with_are_told(material: TrainingData, tmp_path: Path) -> None:
    """Sums that other threads share have other last bits, so the run does not end as if it had not stopped."""
    run, more = train(tables(max_steps=1, save_steps=1), tmp_path / "run", material=material), {"training.max_steps": 2}
    add_facts(run.path, threads=64, torch="2.0.0")
    with pytest.warns(ClockhandsWarning, match=r"began with torch '2.0.0', threads 64, which is not so here; its last"):
        resume(run.path, more)
    with warnings.catch_warnings(action="error", category=ClockhandsWarning):
        resume(run.path, {"training.max_steps": 3})


def test_a_model_is_not_divided_in_one_process_nor_by_accelerate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"training\.sharded divides the model among processes, and there is one"):
        train(tables(sharded=True), tmp_path / "run")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(UsageError, match=r"--use_fsdp\) is not used here: leave it out, and set training.sharded"):
        train(tables(), tmp_path / "run")


def test_a_logger_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"training.report_to names mlflow, not installed here: pip install mlflow"):
        train(tables(report_to=["mlflow"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_tensorboard_gets_the_curves(material: TrainingData, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run = train(tables(max_steps=4, report_to=["tensorboard"]), tmp_path / "run", material=material)
    assert list(run.path.rglob("events.out.tfevents.*"))


def test_what_a_logger_refuses_is_one_message(material: TrainingData, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")

    class Refused(Exception):
        __module__ = "tensorboard.errors"

    class Refusing(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            raise Refused("no place to write to")

    given: dict[str, Any] = {"material": material, "callbacks": [Refusing()]}
    with pytest.raises(
        UsageError, match=r"tensorboard, which training\.report_to names, refused: no place to write to"
    ):
        train(tables(max_steps=4, report_to=["tensorboard"]), tmp_path / "run", **given)
    with pytest.raises(Refused):
        train(tables(max_steps=4), tmp_path / "other", **given)


@pytest.mark.parametrize(
    ("kind", "scheme"), [("decoder", "rope"), ("encoder", "sinusoidal")], ids=["language model", "masked"]
)
def test_other_kinds_train_too(tmp_path: Path, kind: str, scheme: str) -> None:
    (tmp_path / "text").write_text("the cat sat on the mat and the dog sat on the cat\n" * 60)
    given = {
        **tables(max_steps=6, save_steps=None, eval_steps=3, accumulate=None),
        "data": {"corpus": "text", "train": str(tmp_path / "text"), "unit": "file"},
        "position": {"scheme": scheme},
        "batches": {"size": 4, "window": 16},
    }
    given["model"] = {**given["model"], "kind": kind}
    run = train(given, tmp_path / "run")
    losses = [line["validation_loss"] for line in run.metrics if "validation_loss" in line]
    assert losses[-1] < losses[0]
    assert run.model.config.transformer_config.architecture == kind


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "curves.svg"])
def test_a_folder_where_a_file_will_be_written_is_refused_before_training(tmp_path: Path, name: str) -> None:
    run = train(tables(max_steps=2), tmp_path / "run", draw=False)
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).mkdir()
    with pytest.raises(CheckpointError, match=rf"{name} is a folder, and the run writes a file of that name"):
        resume(run.path, {"training.max_steps": 4})
    assert [checkpoints.get_step(path) for path in run.checkpoints][-1] == 2, "nothing was trained"


def test_without_a_loss_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "curves.svg"
    assert draw_curves([{"step": 1, "learning_rate": 0.1}], path, "a run") is None
    assert not path.exists()


def test_the_plot_names_its_curves_and_is_the_same_for_the_same_numbers(tmp_path: Path) -> None:
    paths = [draw_curves(METRICS, tmp_path / f"{number}.svg", "a run") for number in (1, 2)]
    texts = [path.read_text("utf8") for path in paths if path is not None]
    assert len(texts) == 2 and texts[0] == texts[1]
    for words in ("a run", "training loss", "validation loss", "learning rate (dotted)"):
        assert f">{words}<" in texts[0]
    changed = draw_curves([{**METRICS[0], "loss": 3.5}, METRICS[1]], tmp_path / "3.svg", "a run")
    assert changed is not None and changed.read_text("utf8") != texts[0]


def test_the_ending_decides_the_format(tmp_path: Path) -> None:
    path = draw_curves(METRICS, tmp_path / "curves.png", "a run")
    assert path is not None and path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("shown", [True, False])
def test_a_bar_is_made_only_where_progress_is_to_be_shown(
    shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Counted(callbacks.ProgressBar):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(session, "ProgressBar", Counted)
    train(tables(max_steps=1, save_steps=None, eval_steps=None), tmp_path / "run", progress=shown)
    assert len(made) == shown


def test_the_model_is_that_of_the_lowest_validation_loss(tmp_path: Path) -> None:
    """At this rate the loss rises again: the weights of the last step are not the best, and the run says so."""
    risen = tables(max_steps=12, eval_steps=3, save_steps=None, learning_rate=1.0, explosion=0.0)
    material = prepare(Recipe.from_tables(risen))
    run = train(risen, tmp_path / "run", material=material, draw=False)
    losses = {line["step"]: line["validation_loss"] for line in run.metrics if "validation_loss" in line}
    lowest = min(losses, key=lambda step: losses[step])
    assert lowest != 12, "the planted rise"
    assert run.model_loss == (lowest, losses[lowest])
    assert compute_validation_loss(run, material) == pytest.approx(losses[lowest], rel=1e-5)
    assert f"weights of step {lowest}, whose validation loss is {losses[lowest]:.4f}" in _describe_model_loss(run)
    assert f"after {lowest} steps is {losses[lowest]:.4f} nats" in make_card(run)
    last = train(risen, tmp_path / "last", {"training.export": "last"}, material=material, draw=False)
    assert last.model_loss == (12, losses[12]) and last.metrics[-1]["validation_loss"] == losses[12]
    assert compute_validation_loss(last, material) == pytest.approx(losses[12], rel=1e-5)
    assert "weights of step" not in _describe_model_loss(last)
    assert f"It was lowest after {lowest} steps: {losses[lowest]:.4f}." in make_card(last)
