"""Build the model of a recipe as a model of transformers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from clockhands.data import Tokenizers
from clockhands.errors import CheckpointError, ConfigError, UsageError
from clockhands.files import write_bytes
from clockhands.model.config import TransformerConfig
from clockhands.model.huggingface import MODEL_CLASSES
from clockhands.model.huggingface_config import ClockhandsConfig
from clockhands.runs import open_model, open_tokenizers
from clockhands.runs.folder import BEGIN, add_facts
from clockhands.runs.recipe import Recipe
from clockhands.runs.recipe.inheritance import (
    find_tokenizer_folder,
    make_model_table,
    read_model_config,
    require_model_folder,
)
from clockhands.shapes import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from clockhands.runs.recipe import Recipe
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
class BeginWeights:
    """The weights that a model takes over from another, by name.

    ``drawn`` are the names that only the new model has, whose weights stay random; ``left`` those that only the old one
    has, whose weights are not used.
    """

    source: Path
    weights: dict[str, Tensor]
    drawn: tuple[str, ...]
    left: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """One line about the weights that are not taken over; empty if all are."""
        parts = [("new, with random weights", self.drawn), ("not taken over", self.left)]
        said = [f"{what}: {', '.join(_shorten_names(names))}" for what, names in parts if names]
        return f"beginning from {self.source}; {'; '.join(said)}" if said else ""


def read_begin_weights(recipe: Recipe, material: TrainingData) -> BeginWeights | None:
    """Read what ``training.begin_from`` gives to the model of this recipe; None if the recipe names nothing.

    Raises CheckpointError if there is no model, ConfigError with all that does not fit: vocabulary, sizes.
    """
    if recipe.training.begin_from is None:
        return None
    source = Path(recipe.training.begin_from)
    config = read_model_config(source)
    opened = _open(source)
    tokenizers = open_tokenizers(find_tokenizer_folder(source), opened.config)  # type: ignore[arg-type]
    _raise(
        _find_vocabulary_faults(material.tokenizers, tokenizers, source)
        + _find_model_faults(recipe.model, config, source)
    )
    old, new = dict(opened.named_parameters()), _list_parameters(recipe, material)
    changed = tuple(_list_changed(recipe.model, config))
    both = [name for name in new if name in old and not name.startswith(changed)]
    _raise(
        [
            f"{name} has shape {list(new[name].shape)}, and in {source} {list(old[name].shape)}"
            for name in both
            if new[name].shape != old[name].shape
        ]
    )
    drawn, left = (tuple(name for name in names if name not in both) for names in (new, old))
    return BeginWeights(source, {name: old[name].detach().contiguous() for name in both}, drawn, left)


def _open(source: Path) -> PreTrainedModel:
    """Open the old model, and leave the random numbers that the new one will draw as they are."""
    with torch.random.fork_rng(devices=[]):
        return open_model(require_model_folder(source), dtype=torch.float32)


def _list_parameters(recipe: Recipe, material: TrainingData) -> dict[str, Tensor]:
    """Return the parameters of the new model, without storage."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return dict(build(recipe, material.tokenizers).named_parameters())


def _raise(faults: list[str]) -> None:
    """Raise ConfigError if there are any faults."""
    if faults:
        raise ConfigError(faults, "training.begin_from")


def store_begin_weights(begin_weights: BeginWeights, run: Path, *, progress: bool) -> None:
    """Store the weights in a run folder; record, and with ``progress`` print, what is not among them.

    Raises DataError where they cannot be written.
    """
    write_bytes(run / BEGIN, save(begin_weights.weights, {"format": "pt"}))
    add_facts(
        run,
        begun={"from": str(begin_weights.source), "drawn": list(begin_weights.drawn), "left": list(begin_weights.left)},
    )
    if progress and begin_weights.sentence:
        print(begin_weights.sentence, file=sys.stderr, flush=True)


def refuse_itself(recipe: Recipe, out: Path) -> None:
    """Raise UsageError if the run to begin from lies in the folder that the new run would replace."""
    source = recipe.training.begin_from
    if source is not None and Path(source).resolve().is_relative_to(out.resolve()):
        raise UsageError(
            f"training.begin_from is {source}, which the new run in {out} would replace; choose another folder"
        )


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


def remove_begin_weights(run: Path) -> None:
    """Remove the weights that a finished run began with: it resumes from a checkpoint."""
    (run / BEGIN).unlink(missing_ok=True)


def _find_vocabulary_faults(ours: Tokenizers, theirs: Tokenizers, source: Path) -> list[str]:
    """Return a fault for each tokenizer whose vocabulary differs from that of the old model."""
    sides = ("source",) if ours.shared and theirs.shared else ("source", "target")
    pairs = [(side, getattr(ours, side), getattr(theirs, side)) for side in sides]
    return [
        f"the tokenizer of the {side} has another vocabulary here than in {source}: {len(mine):,} tokens and "
        f"{len(other):,}; leave [tokenizer] out, and that one is used"
        for side, mine, other in pairs
        if mine.get_vocab() != other.get_vocab()
    ]


def _find_model_faults(new: TransformerConfig, old: TransformerConfig, source: Path) -> list[str]:
    """Return a fault for each field of the model that differs and must not."""
    ours, theirs = make_model_table(new), make_model_table(old)
    return [
        f"model.{name} is {ours[name]!r}, and in {source} {theirs[name]!r}"
        for name in ours
        if name not in FREE and ours[name] != theirs[name]
    ]


def _list_changed(new: TransformerConfig, old: TransformerConfig) -> Iterator[str]:
    """Yield the prefix of the schemes' weights for each side whose scheme differs, so that its weights mean nothing."""
    for side in new.sides:
        ours, theirs = new.get_position_config(side), old.get_position_config(side)
        if ours.name != theirs.name or (ours.layers, ours.kinds.keys()) != (theirs.layers, theirs.kinds.keys()):
            yield "model.cross_schemes." if side == "cross" else f"model.{side}.schemes."


def _shorten_names(names: tuple[str, ...]) -> list[str]:
    """Return the names without the prefix ``model.``, with one name for the same weight of all layers."""
    return list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name.removeprefix("model.")) for name in names))
