"""The Trainer of transformers with our batches, schedule, evaluation and safe checkpoints, and which of them stay."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import IntervalStrategy

from clockhands.data import IGNORED_LABEL, PlannedBatches
from clockhands.files import write_text
from clockhands.pretrained import explain_faults
from clockhands.runs import checkpoints
from clockhands.runs.recipe import Recipe
from clockhands.runs.recipe.sections import Training
from clockhands.shapes import Tensor
from clockhands.training.schedule import Precision, make_rate
from clockhands.training.training_data import Data, TrainingData

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def make_arguments(training: Training, folder: Path) -> TrainingArguments:
    """Translate a recipe into the arguments of the Trainer. ``folder`` is where checkpoints go."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        seed=training.seed,
        max_steps=training.max_steps or -1,
        num_train_epochs=training.epochs or 1.0,
        learning_rate=training.rate,
        optim="adamw_torch_fused",
        adam_beta1=training.beta1,
        adam_beta2=training.beta2,
        adam_epsilon=training.epsilon,
        weight_decay=training.weight_decay,
        max_grad_norm=training.clip,
        gradient_accumulation_steps=training.accumulate,
        use_cpu=training.device == "cpu" or not torch.cuda.is_available(),
        torch_compile=training.compile,
        logging_steps=training.log_steps,
        logging_nan_inf_filter=False,
        save_strategy="steps" if training.save_steps else "no",
        save_steps=training.save_steps or 500,
        report_to=list(training.report_to),
        run_name=folder.parent.name,
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
        log_level="error",
        log_level_replica="error",
    )
    # Several GPUs without torchrun would be driven by DataParallel, which computes something else.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    _set_evaluations(arguments, training)
    return arguments


def complete_arguments(arguments: TrainingArguments, training: Training, precision: Precision) -> None:
    """Set what is known only once the text is read, in arguments that exist: length, evaluations and precision."""
    arguments.max_steps = training.max_steps or -1
    arguments.bf16 = precision.name == "bf16"
    arguments.mixed_precision = "bf16" if arguments.bf16 else arguments.mixed_precision
    _set_evaluations(arguments, training)


def _set_evaluations(arguments: TrainingArguments, training: Training) -> None:
    arguments.eval_steps = training.evaluation_interval
    arguments.eval_strategy = IntervalStrategy.STEPS if training.evaluation_interval else IntervalStrategy.NO


RANK_STRIDE = 1_000_003
"""The distance between the seeds of two processes, so that their dropout differs."""


class ClockhandsTrainer(Trainer):
    """The Trainer of transformers on a recipe and its material.

    It differs from its base class in six places: where batches come from, the learning rate, the evaluation (a mean
    over tokens, not over batches), how checkpoints are written, what is counted without waiting for the device (target
    tokens, the first step whose loss is not finite), and no estimate of floating-point operations at every step.

    A checkpoint also holds the sum of the losses since the last log line (``loss.json``), so that a resumed run logs
    the same means as one that was not stopped.
    """

    def __init__(
        self,
        recipe: Recipe,
        material: TrainingData,
        model: PreTrainedModel,
        arguments: TrainingArguments,
        callbacks: list[TrainerCallback],
    ) -> None:
        self.recipe, self.material = recipe, material
        self.last: Path | None = None
        self.saving_seconds = 0.0
        self.folder = Path(str(arguments.output_dir))
        self._place = self.folder
        super().__init__(model, arguments, material.collate, material.train, material.validation)
        for callback in callbacks:
            self.add_callback(callback)
        # It would print every line of the log a second time.
        self.remove_callback(PrinterCallback)
        if self.args.process_index:
            torch.manual_seed(recipe.training.seed + RANK_STRIDE * self.args.process_index)
        self.tokens = torch.zeros((), dtype=torch.float64, device=self.args.device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=self.args.device)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Load our own batches; each process reads its share, so that accelerate has nothing to divide."""
        batches = self.material.batches(self.recipe, self.args.process_index, self.args.world_size)
        return EpochLoader(self.material.train, batches, self.material.collate, self.args.dataloader_pin_memory)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Make the recipe's schedule, as factors of the peak."""
        training = self.recipe.training
        of_step = make_rate(training, self.recipe.model.d_model, num_training_steps)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer or self.optimizer or self.create_optimizer(), lambda updates: of_step(updates + 1) / training.rate
        )
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Return 0: nothing here reads the estimate, which would walk over all modules at every step."""
        return 0

    def training_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Make the step of the base class; keep, on the device, the first step whose loss was not finite."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        is_first = ~torch.isfinite(loss) & (self.first_bad < 0)
        self.first_bad = torch.where(is_first, self.state.global_step + 1, self.first_bad)
        return loss

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        """Return the base class's batches, and count their target tokens over all processes."""
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if items is not None:
            self.tokens += items
        return batches, items

    @torch.no_grad()
    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Compute the mean loss of a target token of the validation split, in nats, without smoothing."""
        model = self.model_wrapped.eval()
        # All logits of a large batch would need much memory, and nobody asks for them.
        spare = {} if self.recipe.model.architecture == "encoder" else {"logits_to_keep": 1}
        total = torch.zeros(2, dtype=torch.float64, device=self.args.device)
        shard = self.material.validation_batches(self.recipe, self.args.process_index, self.args.world_size)
        for batch in EpochLoader(self.material.require_validation(), shard, self.material.collate, False):
            labels = batch["labels"][:, 1:] if self._loss_shifts_labels else batch["labels"]
            loss = model(**self._prepare_inputs(batch), num_items_in_batch=1, **spare).loss
            total += torch.stack([loss.double(), labels.ne(IGNORED_LABEL).sum().to(loss.device, torch.float64)])
        total = self.accelerator.reduce(total, "sum")
        metrics = {"eval_loss": float(total[0] / total[1])}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def unwrap_model(self) -> PreTrainedModel:
        """Return the model itself, without what accelerate and torch.compile put around it."""
        return self.accelerator.unwrap_model(self.model_wrapped, keep_torch_compile=False)

    def weights(self) -> dict[str, Tensor] | None:
        """Return what to save instead of the weights of ``unwrap_model``, if they are not whole there."""
        return None

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: torch.nn.Module | None = None) -> None:
        """Load as the base class does. Raises CheckpointError for weights of another model."""
        with explain_faults(resume_from_checkpoint, "the weights of the checkpoint"):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load as the base class does. Raises CheckpointError for the state of another optimiser."""
        with explain_faults(str(checkpoint), "the optimiser of the checkpoint"):
            super()._load_optimizer_and_scheduler(checkpoint)

    def compute_running_loss(self) -> float | None:
        """Compute the mean loss of the steps since the last log line, over all processes; None where there are none."""
        steps = self.state.global_step - self._globalstep_last_logged
        return None if steps < 1 else float(self._gather_losses().mean()) / steps

    def restore_loss(self) -> None:
        """Restore the sum of the losses since the last log line from the checkpoint."""
        if self.last is not None:
            sums, self._globalstep_last_logged = checkpoints.read_loss(self.last)
            fits, place = len(sums) == self.args.world_size, self.args.process_index
            self._tr_loss.fill_(sums[place] if fits else sum(sums) / len(sums))

    def _gather_losses(self) -> Tensor:
        return self.accelerator.gather(self._tr_loss.detach().reshape(1))

    def _get_output_dir(self, trial: Any) -> str:
        """Return where the base class writes a checkpoint: the staging folder while one is saved."""
        return str(self._place)

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """Save the base class's checkpoint under another name, and rename it when it is whole."""
        begun = time.monotonic()
        folder, step = self.folder, self.state.global_step
        writer, sums = self.args.should_save, self._gather_losses().tolist()
        with checkpoints.stage_checkpoint(
            folder, step, writer=writer, wait=self.accelerator.wait_for_everyone
        ) as staging:
            self._place = staging
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self._place = folder
            whole = staging / f"{checkpoints.PREFIX}{step}"
            # A pickle of the arguments, which stand in recipe.toml.
            (whole / "training_args.bin").unlink(missing_ok=True)
            if writer:
                loss = {"sums": sums, "logged": self._globalstep_last_logged}
                write_text(whole / checkpoints.LOSS, json.dumps(loss) + "\n")
        if writer:
            discard(folder, self.recipe.training, read_losses(vars(self.state)), self.compute_end())
        self.accelerator.wait_for_everyone()
        self.saving_seconds = time.monotonic() - begun

    def compute_end(self) -> int:
        """Return the step with which training ends: the present one if ``patience`` is exhausted, else the last."""
        state = self.state
        over = is_exhausted(read_losses(vars(state)), self.recipe.training.patience)
        return state.global_step if over else state.max_steps


class EpochLoader(DataLoader[Any]):
    """A DataLoader over planned batches, which are planned anew for each epoch."""

    def __init__(self, data: Data, batches: PlannedBatches, collate: Any, pin: bool) -> None:
        pinned = pin and torch.cuda.is_available()
        # A generator of its own, or else every pass over data would draw from the one that dropout draws from.
        super().__init__(
            data, batch_sampler=batches, collate_fn=collate, pin_memory=pinned, generator=torch.Generator()
        )
        self.planned = batches

    def set_epoch(self, epoch: int) -> None:
        """Plan the batches of this epoch."""
        self.planned.set_epoch(epoch)


SMALL_RISE = 1.02
"""A validation loss that ends at less than this many times its lowest value has not risen: that much is noise."""


def read_losses(state: dict[str, Any]) -> dict[int, float]:
    """Read the validation loss at each step where it was measured, from a Trainer's state; NaN becomes infinity.

    Nothing is lower than NaN, and a list with one cannot be sorted.
    """
    losses = {line["step"]: line["eval_loss"] for line in state.get("log_history", []) if "eval_loss" in line}
    return {step: math.inf if math.isnan(loss) else loss for step, loss in losses.items()}


def rank_best(saved: Sequence[Path], losses: dict[int, float], count: int) -> list[Path]:
    """Return the ``count`` checkpoints of the lowest validation loss, best first; of equal ones the older."""
    steps = {path: checkpoints.get_step(path) for path in saved}
    return sorted(steps, key=lambda path: (losses.get(steps[path], math.inf), steps[path]))[:count]


def select_averaged(folder: Path, training: Training, losses: dict[int, float], end: int) -> list[Path]:
    """Return the checkpoints whose mean is the model of a run that ended after ``end`` steps.

    They are the last or best of those that the recipe plans: every ``save_steps`` steps, and the end; without it all.
    Training resumes from what a stop saved in between, and nothing else uses that: a run that was stopped averages and
    keeps the checkpoints of one that was not.
    """
    steps = {path: checkpoints.get_step(path) for path in checkpoints.list_checkpoints(folder)}
    planned = [path for path, step in steps.items() if step % (training.save_steps or 1) == 0 or step == end]
    return rank_best(planned, losses, training.keep) if training.average == "best" else planned[-training.keep :]


def discard(folder: Path, training: Training, losses: dict[int, float], end: int) -> None:
    """Delete the checkpoints that nothing needs.

    All but the newest, the last or best ``keep`` planned ones, and the one whose weights are exported.
    """
    saved = checkpoints.list_checkpoints(folder)
    kept = [*select_averaged(folder, training, losses, end), select_lowest(saved, training, losses)]
    for path in saved[:-1]:
        if path not in kept:
            checkpoints.remove_checkpoint(path)


def select_lowest(saved: Sequence[Path], training: Training, losses: dict[int, float]) -> Path | None:
    """Return the checkpoint with the lowest validation loss; None where the recipe exports the last weights."""
    judged = [path for path in saved if checkpoints.get_step(path) in losses and training.export == "lowest"]
    return next(iter(rank_best(judged, losses, 1)), None)


def is_lowest(losses: dict[int, float]) -> bool:
    """Return whether the last validation loss is lower than all before it."""
    *before, last = losses.values()
    return not before or last < min(before)


def is_exhausted(losses: dict[int, float], patience: int | None) -> bool:
    """Return whether the validation loss has not fallen for ``patience`` evaluations; False if ``patience`` is None."""
    values = list(losses.values())
    return bool(patience and values) and len(values) - 1 - values.index(min(values)) >= (patience or 0)


def describe_rise(metrics: Sequence[Mapping[str, Any]], training: Training) -> str | None:
    """Say how far the validation loss rose after its lowest value, and how to save the weights that had that value.

    How to save them is said where the weights of the last step were exported. None where the loss rose by 2 % at most,
    and where the recipe exports the mean of the best checkpoints.
    """
    losses = {line["step"]: line["validation_loss"] for line in metrics if "validation_loss" in line}
    if len(losses) < 2 or training.average == "best":
        return None
    best, last = min(losses, key=lambda step: (losses[step], step)), max(losses)
    if losses[last] <= SMALL_RISE * losses[best]:
        return None
    risen = f"the validation loss was lowest after {best:,} steps ({losses[best]:.4f}) and has risen since"
    if training.export == "lowest":
        return f"{risen}, to {losses[last]:.4f} after {last:,}"
    return f"{risen}. To save the weights with the lowest one, train again with: --set training.export=lowest"
