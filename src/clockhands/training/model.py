"""The model of a recipe, with the weights that ``training.begin_from`` names, and checks before it is trained."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from clockhands.data import PairDataset, Tokenizers, WindowDataset
from clockhands.devices import check_threads, open_device, require_memory
from clockhands.errors import CheckpointError, ConfigError, UsageError
from clockhands.files import write_bytes
from clockhands.model.huggingface import MODEL_CLASSES
from clockhands.model.huggingface_base import ClockhandsConfig
from clockhands.model.size import count_bytes, find_memory_fault
from clockhands.runs import open_model, open_tokenizers
from clockhands.runs.folder import BEGIN, add_facts
from clockhands.runs.recipe import Recipe
from clockhands.runs.recipe.tables import (
    find_tokenizer_folder,
    make_model_table,
    read_model_config,
    require_model_folder,
)
from clockhands.shapes import Tensor
from clockhands.training.training_data import EVALUATED, TrainingData

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def configure(recipe: Recipe, tokenizers: Tokenizers) -> ClockhandsConfig:
    """Make the model's configuration: the recipe's architecture, the tokenizers' vocabularies and special tokens.

    Raises ConfigError if the vocabularies do not fit the architecture (three-way tying needs one for both sides).
    """
    source, target = tokenizers.source, tokenizers.target
    core = recipe.model.with_vocabularies(len(target), None if tokenizers.shared else len(source))
    first = next(token for token in (target.bos_token_id, target.pad_token_id) if token is not None)
    return ClockhandsConfig(
        transformer=core,
        label_smoothing=recipe.training.label_smoothing,
        smoothing=recipe.training.smoothing,
        pad_token_id=target.pad_token_id,
        bos_token_id=target.bos_token_id,
        eos_token_id=target.eos_token_id,
        decoder_start_token_id=first if recipe.model.architecture == "encoder-decoder" else None,
        tokenizer_fingerprint=tokenizers.fingerprint,
    )


def build(recipe: Recipe, tokenizers: Tokenizers) -> PreTrainedModel:
    """Build a new model, drawn from the global random numbers. Raises ConfigError as ``configure``."""
    return MODEL_CLASSES[recipe.model.architecture](configure(recipe, tokenizers))


FREE = ("dropout", "dropout_places", "initialisation", "attention_scale")
"""Fields of the model that may differ from the run to begin from: the weights mean the same with any value of them.

Only ``attention_scale`` changes what they do, which is how logits are sharpened for longer texts."""


@dataclass(frozen=True)
class _BeginWeights:
    """The weights that a model takes over from another, by name.

    ``drawn`` are the names that only the new model has, whose weights stay random; ``left`` those that only the old one
    has, whose weights are not used.
    """

    source: Path
    weights: dict[str, Tensor]
    drawn: list[str]
    left: list[str]

    @property
    def sentence(self) -> str:
        """One line about the weights that are not taken over; empty if all are."""
        said = []
        for what, names in (("new, with random weights", self.drawn), ("not taken over", self.left)):
            # One name stands for the same weight of all layers.
            short = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name.removeprefix("model.")) for name in names)
            said += [f"{what}: {', '.join(short)}"] if names else []
        return f"beginning from {self.source}; {'; '.join(said)}" if said else ""


def read_begin_weights(recipe: Recipe, material: TrainingData) -> _BeginWeights | None:
    """Read what ``training.begin_from`` gives to the model of this recipe; None if the recipe names nothing.

    Raises CheckpointError if there is no model, ConfigError with all that does not fit: vocabulary, sizes.
    """
    if recipe.training.begin_from is None:
        return None
    source = Path(recipe.training.begin_from)
    config = read_model_config(source)
    with torch.random.fork_rng(devices=[]):  # the random numbers that the new model will draw stay as they are
        opened = open_model(require_model_folder(source), dtype=torch.float32)
        with torch.device("meta"):
            new = dict(build(recipe, material.tokenizers).named_parameters())
    ours, theirs = material.tokenizers, open_tokenizers(find_tokenizer_folder(source), opened.config)
    faults = []
    for side in ("source",) if ours.shared and theirs.shared else ("source", "target"):
        mine, other = getattr(ours, side), getattr(theirs, side)
        if mine.get_vocab() != other.get_vocab():
            faults.append(
                f"the tokenizer of the {side} has another vocabulary here than in {source}: {len(mine):,} tokens and "
                f"{len(other):,}; leave [tokenizer] out, and that one is used"
            )
    here, there = make_model_table(recipe.model), make_model_table(config)
    differing = [name for name in here if name not in FREE and here[name] != there[name]]
    faults += [f"model.{name} is {here[name]!r}, and in {source} {there[name]!r}" for name in differing]
    if faults:
        raise ConfigError(faults, "training.begin_from")
    # Weights of a scheme mean something else in another scheme.
    changed = []
    for side in recipe.model.sides:
        mine, other = recipe.model.get_position_config(side), config.get_position_config(side)
        if (mine.name, mine.layers, mine.kinds.keys()) != (other.name, other.layers, other.kinds.keys()):
            changed.append("model.cross_schemes." if side == "cross" else f"model.{side}.schemes.")
    old = dict(opened.named_parameters())
    both = [name for name in new if name in old and not name.startswith(tuple(changed))]
    faults = [
        f"{name} has shape {list(new[name].shape)}, and in {source} {list(old[name].shape)}"
        for name in both
        if new[name].shape != old[name].shape
    ]
    if faults:
        raise ConfigError(faults, "training.begin_from")
    weights = {name: old[name].detach().contiguous() for name in both}
    return _BeginWeights(
        source, weights, [name for name in new if name not in both], [name for name in old if name not in both]
    )


def store_begin_weights(begun: _BeginWeights, run: Path) -> None:
    """Store the weights in a run folder, and record what is not among them. Raises DataError as ``write_bytes``."""
    write_bytes(run / BEGIN, save(begun.weights, {"format": "pt"}))
    add_facts(run, begun={"from": str(begun.source), "drawn": begun.drawn, "left": begun.left})


def load_begin_weights(recipe: Recipe, model: PreTrainedModel, run: Path) -> None:
    """Put the weights that a run began with into its newly drawn model. Raises CheckpointError if they are gone."""
    if recipe.training.begin_from is None:
        return
    try:
        weights = load_file(run / BEGIN)
    except (OSError, SafetensorError) as fault:
        raise CheckpointError(
            f"{run / BEGIN}, the weights that this run began with, cannot be read ({fault}); train it anew"
        ) from fault
    model.load_state_dict(weights, strict=False)


def find_training_device(recipe: Recipe) -> torch.device:
    """Return the device that the Trainer of transformers will use for a recipe."""
    usable = recipe.training.device != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if usable else "cpu")


def check_recipe(recipe: Recipe) -> None:
    """Raise UsageError if the model alone does not fit the memory, or for a number of threads that only slows it down.

    The vocabulary is assumed to have the usual size, because there is no tokenizer yet.
    """
    if recipe.training.threads is not None:
        check_threads(recipe.training.threads, "training.threads")
    # A model that is divided among processes is not judged: how much each holds is known only later.
    if not recipe.training.sharded:
        fault = find_memory_fault(recipe.model, training=True, device=find_training_device(recipe))
        if fault is not None:
            raise UsageError(fault)


def check_batches(recipe: Recipe, material: TrainingData) -> None:
    """Raise UsageError if the model with its real vocabulary, or its largest batch, does not fit the memory."""
    if recipe.training.sharded:
        return
    core, device = configure(recipe, material.tokenizers).transformer_config, find_training_device(recipe)
    fault = find_memory_fault(core, training=True, device=device)
    if fault is not None:
        raise UsageError(fault)
    windows = recipe.batches.per_epoch * (recipe.batches.size or 1)
    if isinstance(material.train, WindowDataset):
        what = f"batches.per_epoch x batches.size windows are {windows:,}, and their order alone needs"
        require_memory(8 * windows, what, "lower them", device)
    tokens = _count_largest_batch(recipe, material.train)
    # The least that the backward pass keeps of a token: its states in every layer, in float32.
    layers = max(core.count_layers(side) for side in core.stack_sides)
    needed = count_bytes(core, training=True) + tokens * 4 * layers * (6 * core.d_model + core.d_ff)
    if material.validation is not None:
        evaluated = EVALUATED * _count_largest_batch(recipe, material.validation)
        needed = max(needed, count_bytes(core) + evaluated * 4 * core.d_model)
    advice = "lower batches.size or batches.tokens, bound the examples with batches.max_length or batches.window, and "
    require_memory(
        needed, f"a batch of {tokens:,} tokens needs, with this model,", f"{advice}raise training.accumulate", device
    )


def _count_largest_batch(recipe: Recipe, data: PairDataset | WindowDataset) -> int:
    """Count the tokens of the largest batch, pads included, on both sides: examples times the longest of each."""
    tokens, size = recipe.batches.tokens, recipe.batches.size
    if isinstance(data, WindowDataset):
        return max(tokens or 0, (size or 1) * data.length)
    most = min(size or len(data), len(data)) * sum(data.longest)
    return min(2 * tokens, most) if tokens else most


def check_before_reading(recipe: Recipe) -> None:
    """Raise UsageError for what is wrong before any text is read: loggers, device, processes, memory."""
    training = recipe.training
    missing = [name for name in training.report_to if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training.report_to names {' and '.join(missing)}, not installed here: pip install {' '.join(missing)}"
        )
    if training.device != "auto":
        open_device(training.device, "training.device")
    if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
        raise UsageError(
            "accelerate's own FSDP (--use_fsdp) is not used here: leave it out, and set training.sharded = true"
        )
    if training.sharded and int(os.environ.get("WORLD_SIZE", "1")) < 2:
        raise UsageError(
            "training.sharded divides the model among processes, and there is one; start several: "
            "torchrun --nproc-per-node 2 -m clockhands train ..."
        )
    check_recipe(recipe)


def check_material(recipe: Recipe, material: TrainingData) -> None:
    """Raise UsageError or ConfigError for what a recipe asks of its text and cannot have."""
    configure(recipe, material.tokenizers)
    check_batches(recipe, material)
    material.batches(recipe)
    splits = [split for split in (material.train, material.validation) if split is not None]
    # Pairs have two lengths, source and target; windows have one, whichever side reads them.
    longest = {"encoder": max(split.longest[0] for split in splits), "decoder": max(s.longest[-1] for s in splits)}
    for side in recipe.model.stack_sides:
        position = recipe.model.get_position_config(side)
        declares = recipe.model.summarise_schemes(side).declares
        limit, length = declares.max_length, longest[side]
        if limit is not None and declares.beyond == "raise" and position.transform is None and length > limit:
            raise UsageError(
                f"the {side}'s {position.name} has {limit} positions and the longest example {length} tokens; "
                "raise position.max_length, or bound the examples (batches.max_length, batches.longer = 'drop')"
            )
    training = recipe.training
    needed = {"eval_steps": training.evaluation_interval, "patience": training.patience,
              "export": training.export == "lowest"}  # fmt: skip
    if material.validation is None and any(needed.values()):
        name = next(name for name, is_needed in needed.items() if is_needed)
        raise UsageError(f"training.{name} is given, but corpus {recipe.corpus!r} has no validation split")
