"""The arguments of the Trainer of transformers: a recipe in its words."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy

from clockhands.runs.recipe.sections import Training
from clockhands.training.precision import Precision

__all__ = ["complete_arguments", "make_arguments"]


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
    """Set what is known only once the text is read, in arguments that exist: the evaluations and the precision."""
    arguments.bf16 = precision.name == "bf16"
    arguments.mixed_precision = "bf16" if arguments.bf16 else arguments.mixed_precision
    _set_evaluations(arguments, training)


def _set_evaluations(arguments: TrainingArguments, training: Training) -> None:
    arguments.eval_steps = training.evaluation_interval
    arguments.eval_strategy = IntervalStrategy.STEPS if training.evaluation_interval else IntervalStrategy.NO
