"""A causal language model with its tokenizer, whoever made it: what ``evaluate``, ``generate`` and ``extend`` read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clockhands.devices import choose_device
from clockhands.errors import CheckpointError, UsageError
from clockhands.explanation import read_positions
from clockhands.pretrained import (
    CONFIG,
    count_numbers,
    explain_faults,
    is_known,
    is_own,
    load_configuration,
    load_tokenizer,
    read_configuration,
)
from clockhands.runs.changed_positions import find_table_length
from clockhands.runs.folder import RECIPE
from clockhands.runs.foreign import (
    load_foreign_model,
    measure_weight_files,
    read_checked_config,
    refuse_unknown_positions,
)
from clockhands.runs.foreign_positions import change_foreign_positions
from clockhands.runs.run import Run, open_run
from clockhands.runs.streaming import decide_streaming, find_device, open_streamed
from clockhands.shapes import Float, Int, Tensor

__all__ = ["LanguageModel", "find_position_table", "find_trained_length", "is_run", "open_language_model"]

LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
"""Keys under which configurations of transformers name the length of texts, if they say nothing about positions."""

WITH_OUTPUT_LAYER = re.compile("LM|ConditionalGeneration|ForCausal")
"""A pattern in the class names of models that have an output layer."""


@dataclass(frozen=True)
class LanguageModel:
    """A causal model that reads and continues text.

    Args:
        source: the folder or hub name that it was opened from.
        model: a model of transformers with an output layer, in evaluation mode; its class may be anybody's.
        tokenizer: its tokenizer, of any class too.
    """

    source: str
    model: Any
    tokenizer: Any

    @classmethod
    def from_run(cls, run: Run, action: str = "read a text") -> LanguageModel:
        """Return the model of an opened run; ``action``: what it is for. Raises UsageError unless it continues text."""
        run.require("decoder", action)
        return cls(str(run.path), run.model, run.tokenizers.source)

    @cached_property
    def trained_length(self) -> int | None:
        """The number of tokens of the texts that it was trained on (``find_trained_length``); None if not known."""
        return find_trained_length(self.source)

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return find_device(self.model)

    @cached_property
    def start_ids(self) -> tuple[int, ...]:
        """The tokens that its tokenizer puts before every text; empty for many models."""
        probe = "a"  # any text: what stands before its own tokens is searched for
        with_special = list(self.tokenizer(probe)["input_ids"])
        bare = list(self.tokenizer(probe, add_special_tokens=False)["input_ids"])
        before = next((n for n in range(len(with_special)) if with_special[n : n + len(bare)] == bare), 0)
        return tuple(with_special[:before])

    @property
    def vocabulary_size(self) -> int:
        """The rows of its token embedding, for which it computes logits; a tokenizer may have fewer tokens."""
        return int(self.model.get_input_embeddings().num_embeddings)

    @cached_property
    def max_length(self) -> int | None:
        """The most tokens that it can read: the rows of its learned table of positions; None without such a table."""
        named_table = find_position_table(self.model)
        if named_table is None:
            return find_table_length(self.model)
        _, table = named_table
        return int(table.num_embeddings) - int(getattr(table, "offset", 0))

    @torch.inference_mode()
    def compute_logits(self, ids_BS: Int[Tensor, "B S"]) -> Float[Tensor, "B S V"]:
        """Compute the logits of the next token at every token, in float32: [B, S, V].

        Raises UsageError for a text longer than ``max_length``.
        """
        if self.max_length is not None and ids_BS.shape[1] > self.max_length:
            raise UsageError(
                f"{self.source} has a table of {self.max_length:,} positions, and the window has {ids_BS.shape[1]:,} "
                "tokens; give a shorter --length"
            )
        ids_BS = ids_BS.to(self.device)
        logits: Tensor = self.model(input_ids=ids_BS, use_cache=False).logits
        return logits.float()


def find_position_table(model: nn.Module) -> tuple[str, nn.Embedding] | None:
    """Return the learned table of positions of a model of transformers, with its name; None if it has none."""
    for name, part in model.named_modules():
        leaf = name.rpartition(".")[2].lower()
        if isinstance(part, nn.Embedding) and ("pos" in leaf or leaf == "wpe") and part.weight.requires_grad:
            return name, part
    return None


def is_run(source: str | Path) -> bool:
    """Return whether a folder holds a model of this project; a hub name never does."""
    folder = Path(source)
    if (folder / RECIPE).is_file():
        return True
    # Not ``read_checked_config``: whether code that comes with another's model may run is for its opener to judge.
    return folder.is_dir() and (folder / CONFIG).is_file() and is_own(read_configuration(folder))


def find_trained_length(source: str | Path) -> int | None:
    """Return the number of tokens of the texts that a model was trained on; None where nothing says so.

    For a run that is the length of its windows, or the bound of its pairs; for another model, what its configuration
    says. Raises what ``Run.from_folder``, ``read_positions`` and ``read_checked_config`` raise.
    """
    if (Path(source) / RECIPE).is_file():
        return Run.from_folder(source).trained_length
    positions = read_positions(source)
    if positions.trained_length or positions.claimed_length:
        return positions.trained_length or positions.claimed_length
    raw = read_checked_config(source, trust_remote_code=True)
    lengths = (raw.get(key) for key in LENGTH_KEYS)
    return next((length for length in lengths if isinstance(length, int) and length > 0), None)


def open_language_model(
    source: str | Path,
    *,
    device: str | None = None,
    dtype: torch.dtype | None = None,
    position: Mapping[str, Any] | None = None,
    weights: str | None = None,
    trust_remote_code: bool = False,
) -> LanguageModel:
    """Open a run of this project, or a folder or hub name with any causal model of transformers.

    Args:
        source: the folder or name.
        device: where to compute; None: the GPU if there is one.
        dtype: of the weights; None: float32, or as a run was saved.
        position: options of position to change, such as ``{"spectrum": "yarn", "factor": 4.0}``.
        weights: ``memory``, or ``streamed`` from their files layer by layer; None: streamed where they do not fit.
        trust_remote_code: whether code that comes with the model may run.

    Raises CheckpointError for what cannot be opened, UsageError for an option that it does not have and for a model
    that does not continue text.
    """
    if is_run(source):
        if weights == "streamed":
            raise UsageError(f"{source} is a run of this project, whose weights are held in memory")
        return LanguageModel.from_run(open_run(source, device=device, dtype=dtype, position=position))
    raw = read_checked_config(source, trust_remote_code=trust_remote_code)
    refuse_unknown_positions(raw, source)
    _check_continues_text(raw, source)
    where = choose_device(device)
    config = load_configuration(source, trust_remote_code=trust_remote_code)
    if position:
        change_foreign_positions(config, position, str(source), find_trained_length(source))
    measure_weight_files(source, raw)  # refuses weights that are pickled, missing or damaged
    model = _load(str(source), config, where, dtype or torch.float32, weights, trust_remote_code)
    tokenizer = load_tokenizer(source, trust_remote_code=trust_remote_code)
    _check_tokenizer(tokenizer, model, source)
    return LanguageModel(str(source), model.eval(), tokenizer)


def _check_continues_text(raw: Mapping[str, Any], source: str | Path) -> None:
    """Raise UsageError for a model that transformers does not open as a causal one, or that has no output layer."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind, declared = str(raw.get("model_type")), " ".join(raw.get("architectures") or ())
    causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not raw.get("is_encoder_decoder")
    if is_known(raw) and (not causal or "MaskedLM" in declared):
        raise UsageError(
            f"{source} ({declared or kind}) does not continue text; this needs a causal language model, which "
            "transformers opens with AutoModelForCausalLM"
        )
    if declared and not WITH_OUTPUT_LAYER.search(declared):
        raise UsageError(f"{source} ({declared}) was saved without its output layer, so it predicts no token")


def _load(
    source: str, config: Any, device: torch.device, dtype: torch.dtype, weights: str | None, trust_remote_code: bool
) -> Any:
    """Load the model, with its weights in memory or streamed (``decide_streaming``)."""
    from transformers import AutoModelForCausalLM

    options: dict[str, Any] = {"dtype": dtype, "trust_remote_code": trust_remote_code, "config": config}
    numbers = count_numbers(AutoModelForCausalLM, config, trust_remote_code=trust_remote_code)
    size = None if numbers is None else numbers * dtype.itemsize
    if decide_streaming(source, weights, size, device):
        with explain_faults(source, "with streamed weights the model in"):
            return open_streamed(AutoModelForCausalLM, source, device, **options)
    return load_foreign_model(AutoModelForCausalLM, source, **options).to(device)


def _check_tokenizer(tokenizer: Any, model: Any, source: str | Path) -> None:
    """Raise CheckpointError for a tokenizer of another model: one without tokens, or with ids that have no row."""
    if len(tokenizer) <= len(tokenizer.all_special_ids) + 1:
        raise CheckpointError(f"{source} holds no tokenizer: none of its files lists any tokens")
    rows = model.get_input_embeddings().num_embeddings
    largest = max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise CheckpointError(
            f"the tokenizer in {source} has ids up to {largest:,}, and the model has {rows:,} embeddings; it is not "
            "the one that the model was trained with: put back its own tokenizer files"
        )
