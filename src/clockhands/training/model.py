"""Build the model of a recipe as a model of transformers, with the weights that ``training.begin_from`` names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from clockhands.data import Tokenizers
from clockhands.errors import CheckpointError, ConfigError
from clockhands.files import write_bytes
from clockhands.model.huggingface import MODEL_CLASSES
from clockhands.model.huggingface_config import ClockhandsConfig
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

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from clockhands.training.training_data import TrainingData


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
