"""What ``auto`` stands for in a recipe: the learning rate, its warm-up, evaluations, and which weights are exported.

docs/lab/training-defaults.md has the grid search behind them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from clockhands.errors import ConfigError
from clockhands.model.config import TransformerConfig
from clockhands.runs.recipe import Recipe
from clockhands.runs.recipe.sections import Training

if TYPE_CHECKING:
    from clockhands.training.training_data import TrainingData


NARROW = 64
"""The width of the models in the grid search; a narrower model gets no higher rate."""
PEAKS = {"encoder-decoder": 8e-3, "decoder": 8e-3, "encoder": 16e-3}
"""The peak at that width with pre-norm, by architecture."""
PAPER_WARMUP, PAPER_LAYERS = 4000, 6
WARMUP_SHARE = 0.1
"""The share of all updates that are warm-up."""
POST_NORM_WARMUP = 1000
"""Updates of the shortest warm-up of a post-norm model with the paper's six layers; fewer layers need less."""
EVALUATIONS, SHORTEST_INTERVAL = 10, 100
"""How many evaluations a training has, and the fewest steps between two of them."""
LONGEST, SHORTEST, LONGEST_EPOCHS, PATIENCE = 20_000, 1_000, 40, 3
"""Where a recipe says no length: the bounds of the steps that are made at most, and the evaluations without a lower
validation loss after which training stops."""
FINE_TUNING_DIVISOR = 4.0
"""How many times lower the peak is for a training that begins with trained weights."""


def compute_peak_rate(model: TransformerConfig) -> float:
    """Return the peak learning rate for a model that is trained from its beginning, with a warm-up.

    With pre-norm it falls as 1 / d_model (Yang et al. 2022, "Tensor Programs V", table 3: Adam's rate for matrices).
    With post-norm it is that of the paper at the end of its warm-up, (4000 · d_model)^-0.5 (Vaswani et al. 2017,
    equation 3), times six layers over those of this model, since deeper post-norm stacks stand lower rates
    (Liu et al. 2020, "Understanding the difficulty of training Transformers"); never more than with pre-norm.
    """
    peak = PEAKS[model.architecture] * min(1.0, NARROW / model.d_model)
    if model.norm != "post":
        return peak
    return min(peak, (PAPER_WARMUP * model.d_model) ** -0.5 * PAPER_LAYERS / max(1, _count_depth(model)))


def compute_warmup_steps(updates: int, model: TransformerConfig, schedule: str = "inverse-sqrt") -> int:
    """Return the length of the warm-up: a tenth of the training, and at most the paper's 4000 updates.

    Post-norm needs a slow rise, since at first its gradients are large near the output (Xiong et al. 2020, "On Layer
    Normalization in the Transformer Architecture"), the deeper the slower: at least 1000 updates times its layers over
    six. A shorter training rises to its end, to half of the peak or more; with cosine at most to its middle.
    """
    usual = min(PAPER_WARMUP, int(WARMUP_SHARE * updates))
    if model.norm != "post":
        return usual
    longest = updates // 2 if schedule == "cosine" else 2 * updates
    return max(usual, min(longest, POST_NORM_WARMUP * _count_depth(model) // PAPER_LAYERS))


def fill_in_auto(recipe: Recipe, updates: int | None = None, *, validates: bool | None = None) -> Recipe:
    """Return the recipe with numbers in place of ``auto``: what a run keeps, so that it goes on with them.

    ``updates``: how many there will be; where ``training.max_steps`` does not say it and it is not given, the warm-up
    stays open. ``validates``: whether the text has a validation split; where that is not known, the evaluations and
    what is exported stay open.
    """
    training = recipe.training
    updates = training.max_steps or updates
    if training.learning_rate == "auto":
        # For the paper's schedule it is the factor of equation 3.
        peak = 1.0 if training.schedule == "paper" else compute_peak_rate(recipe.model)
        is_begun = training.begin_from is not None and training.schedule != "paper"
        rate = float(f"{peak / FINE_TUNING_DIVISOR if is_begun else peak:.4g}")
        training = replace(training, learning_rate=rate)
    if training.warmup_steps == "auto" and updates is not None:
        training = replace(training, warmup_steps=compute_warmup_steps(updates, recipe.model, training.schedule))
    if training.eval_steps == "auto" and validates is not None and updates is not None:
        # Whoever asks for what needs several evaluations gets them in a short training too.
        interval = max(1 if _needs_several(training) else SHORTEST_INTERVAL, math.ceil(updates / EVALUATIONS))
        training = replace(training, eval_steps=interval if validates and interval < updates else None)
    if training.export == "auto" and validates is not None and updates is not None:
        is_kept = training.average == "none" and training.is_saved_regularly
        # Of one evaluation there is no lowest loss.
        has_lowest = validates and training.eval_steps is not None and is_kept
        training = replace(training, export="lowest" if has_lowest else "last")
    return _put_training(recipe, training)


def fill_in_for_text(recipe: Recipe, material: TrainingData) -> Recipe:
    """Return the recipe with numbers in place of ``auto``, all of them, for a training on this text.

    One that says no length gets ``patience`` and a bound. Raises ConfigError where no validation loss could end it.
    """
    training = recipe.training
    if (training.max_steps, training.epochs) == (None, None):
        if material.validation is None:
            missing = "training.max_steps is missing, or training.epochs: there is no validation split to stop by"
            raise ConfigError([missing], "the recipe")
        longest = min(LONGEST, max(SHORTEST, LONGEST_EPOCHS * _count_epoch(recipe, material)))
        patience, interval = training.patience or PATIENCE, max(SHORTEST_INTERVAL, longest // (2 * EVALUATIONS))
        eval_steps = interval if training.eval_steps == "auto" else training.eval_steps
        training = replace(training, max_steps=longest, patience=patience, eval_steps=eval_steps)
        recipe = _put_training(recipe, training)
    return fill_in_auto(recipe, count_updates(recipe, material), validates=material.validation is not None)


def export_last(recipe: Recipe) -> Recipe:
    """Return the recipe with the weights of the last step as its model, and no evaluations, wherever it says ``auto``
    and asks for nothing that needs several evaluations.

    Comparisons train so: an equal number of steps is part of what they compare.
    """
    training = recipe.training
    eval_steps = None if training.eval_steps == "auto" and not _needs_several(training) else training.eval_steps
    export = "last" if training.export == "auto" else training.export
    return _put_training(recipe, replace(training, eval_steps=eval_steps, export=export))


def _needs_several(training: Training) -> bool:
    """Return whether a recipe asks for what needs several evaluations."""
    return bool(training.patience) or training.export == "lowest"


def _put_training(recipe: Recipe, training: Training) -> Recipe:
    return replace(recipe, training=training, tables={**recipe.tables, "training": asdict(training)})


def count_updates(recipe: Recipe, material: TrainingData) -> int:
    """Return how many updates the recipe makes with this text, as the Trainer of transformers counts them.

    Any number of processes makes as many: they share every batch.
    """
    if recipe.training.max_steps is not None:
        return recipe.training.max_steps
    return math.ceil((recipe.training.epochs or 0) * _count_epoch(recipe, material))


def _count_epoch(recipe: Recipe, material: TrainingData) -> int:
    return max(1, -(-len(material.batches(recipe)) // recipe.training.accumulate))


def _count_depth(model: TransformerConfig) -> int:
    return max(model.count_layers(side) for side in model.sides)


def make_rate(training: Training, d_model: int, total: int) -> Callable[[int], float]:
    """Make the learning rate of a ``[training]`` as a function of the update, counted from 1 to ``total``.

    ``paper`` is equation 3 of Vaswani et al. 2017 times a factor; the others rise linearly from ``warmup_from`` to the
    peak, and then fall as the inverse_sqrt schedule of fairseq, as half a cosine (Loshchilov & Hutter 2017, equation 5,
    without restarts), or stay. ``learning_rate`` and ``warmup_steps`` must be numbers, not ``auto``.
    """
    peak, warmup, start, final = training.rate, training.warmup, training.warmup_from, training.final_rate

    def compute_rate(s: int) -> float:
        if training.schedule == "paper":
            return peak * d_model**-0.5 * min(s**-0.5, s * warmup**-1.5)
        if s < warmup:
            return start + (peak - start) * s / warmup
        if training.schedule == "inverse-sqrt":
            return peak * math.sqrt(max(warmup, 1) / s)
        if training.schedule == "cosine":
            share = min(1.0, (s - warmup) / max(1, total - warmup))
            return final + (peak - final) * 0.5 * (1 + math.cos(math.pi * share))
        return peak

    return compute_rate


NARROWEST = 128
"""The smallest ``d_model`` at which ``auto`` takes bf16 on a CPU. Below it autocast's conversions cost what the
products save: with AVX512-BF16 a feed-forward layer of width 64 gains 1.1 times, of 128 1.6 times, of 256 2 times."""


@dataclass(frozen=True)
class Precision:
    """What a run computes in: ``name`` (fp32 or bf16), and on which ``device`` (cpu, cuda) that was decided."""

    name: str
    device: str


def choose_precision(training: Training, model: TransformerConfig, device: torch.device) -> Precision:
    """Choose the precision that ``training.precision`` asks for; for ``auto``, bf16 where the hardware has it.

    On a CPU ``auto`` takes bf16 for models at least ``NARROWEST`` wide. Log a warning where bf16 was asked for and is
    only emulated.
    """
    native = multiplies_in_bf16(device)
    if training.precision == "bf16" and not native:
        logging.getLogger(__name__).warning(
            "training.precision is 'bf16', which this %s only emulates; training.precision=fp32 or auto is faster",
            "GPU" if device.type == "cuda" else "processor",
        )
    wide = device.type != "cpu" or model.d_model >= NARROWEST
    auto = "bf16" if native and wide else "fp32"
    return Precision(auto if training.precision == "auto" else training.precision, device.type)


def choose_trial_precision(training: Training, device: torch.device) -> Precision:
    """Choose the precision of a trial: for ``auto``, bf16 on a GPU that has it, and fp32 on every CPU.

    Trials of one comparison may run on several machines and must all compute alike.
    """
    auto = "bf16" if device.type == "cuda" and multiplies_in_bf16(device) else "fp32"
    return Precision(auto if training.precision == "auto" else training.precision, device.type)


def read_precision(
    record: Mapping[str, Any], training: Training, model: TransformerConfig, device: torch.device
) -> Precision:
    """Return the precision that a run began with, as its record keeps it, so that it goes on exactly.

    On another kind of device that is impossible, and it is chosen anew.
    """
    stored = record.get("precision")
    if training.precision == "auto" and isinstance(stored, Mapping) and stored.get("device") == device.type:
        return Precision(stored["name"], stored["device"])
    return choose_precision(training, model, device)


def multiplies_in_bf16(device: torch.device) -> bool:
    """Return whether a device has instructions that multiply in bf16; what only emulates it is many times slower."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # torch's own reading of the processor; releases without one of these questions answer no, and compute in fp32.
    questions = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(ask is not None and ask() for ask in questions)
