"""A language model with its tokenizer, whoever made it: what ``evaluate``, ``generate`` and ``extend`` read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clockhands.devices import choose_device
from clockhands.errors import CheckpointError, PositionError, UsageError
from clockhands.explanation import read_positions
from clockhands.models.door import (
    HeadTask,
    choose_class,
    find_task,
    judge_configuration,
    load_weights,
    open_tokenizer,
    read_checked_config,
)
from clockhands.models.facts import is_sinusoid
from clockhands.models.positions import change_foreign_positions
from clockhands.models.streaming import find_device
from clockhands.pretrained import CONFIG, find_special_tokens, is_known, is_own, read_configuration
from clockhands.runs import Run, open_run
from clockhands.runs.folder import RECIPE
from clockhands.runs.opening import find_table_length
from clockhands.shapes import Float, Int, Tensor

_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
"""Keys under which configurations of transformers name the length of texts, if they say nothing about positions."""


@dataclass(frozen=True)
class LanguageModel:
    """A model that continues text, or one that fills in masked tokens.

    Args:
        source: the folder or hub name that it was opened from.
        model: a model of transformers with an output layer, in evaluation mode; its class may be anybody's.
        tokenizer: its tokenizer, of any class too.
        mask_id: the token that it fills in; None for a model that continues text.
    """

    source: str
    model: Any
    tokenizer: Any
    mask_id: int | None = None

    @classmethod
    def from_run(cls, run: Run, action: str = "read a text", *, masked: bool = False) -> LanguageModel:
        """Return the model of an opened run; ``action``: what it is for.

        Raises UsageError unless it continues text, or with ``masked`` fills in tokens.
        """
        if masked and run.architecture == "encoder":
            return cls(str(run.path), run.model, run.tokenizers.source, _find_mask_id(run.tokenizers.source, run.path))
        run.require("decoder", action)
        return cls(str(run.path), run.model, run.tokenizers.source)

    @cached_property
    def trained_length(self) -> int | None:
        """The number of tokens of the texts that it was trained on (``find_trained_length``); None if not known.

        No more than its table of positions has: RoBERTa's claims two rows more, which hold no position.
        """
        length = find_trained_length(self.source)
        return length if None in (length, self.max_length) else min(length, self.max_length)  # type: ignore[type-var]

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return find_device(self.model)

    @cached_property
    def start_ids(self) -> tuple[int, ...]:
        """The tokens that its tokenizer puts before every text; empty for many models."""
        return tuple(find_special_tokens(self.tokenizer)[0])

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """The tokens that its tokenizer puts after every text; empty for most models that continue text."""
        return tuple(find_special_tokens(self.tokenizer)[1])

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
        return int(table.num_embeddings) - count_rows_before(table)

    @torch.inference_mode()
    def compute_logits(self, ids_BS: Int[Tensor, "B S"]) -> Float[Tensor, "B S V"]:
        """Compute the logits at every token, in float32: [B, S, V].

        They are of the next token; of a model that fills in masked tokens they are of that token itself.

        Raises PositionError for a text longer than ``max_length``.
        """
        if self.max_length is not None and ids_BS.shape[1] > self.max_length:
            raise PositionError(
                f"{self.source} has a table of {self.max_length:,} positions, and the window has {ids_BS.shape[1]:,} "
                "tokens; give a shorter --length"
            )
        no_cache = {"use_cache": False} if self.mask_id is None else {}
        logits: Tensor = self.model(input_ids=ids_BS.to(self.device), **no_cache).logits
        return logits.float()


def open_language_model(
    source: str | Path,
    *,
    device: str | None = None,
    dtype: torch.dtype | None = None,
    position: Mapping[str, Any] | None = None,
    weights: str | None = None,
    trust_remote_code: bool = False,
    masked: bool = False,
) -> LanguageModel:
    """Open a run of this project, or a folder or hub name with any causal model of transformers.

    Args:
        source: the folder or name.
        device: where to compute; None: the GPU if there is one.
        dtype: of the weights; None: float32, or as a run was saved.
        position: options of position to change, such as ``{"spectrum": "yarn", "factor": 4.0}``.
        weights: ``memory``, or ``streamed`` from their files layer by layer; None: streamed where they do not fit.
        trust_remote_code: whether code that comes with the model may run.
        masked: whether a model that fills in masked tokens is opened too.

    Raises CheckpointError for what cannot be opened, UsageError for an option that it does not have and for a model
    that does not continue text.
    """
    if is_run(source):
        if weights == "streamed":
            raise UsageError(f"{source} is a run of this project, whose weights are held in memory")
        run = open_run(source, device=device, dtype=dtype, position=position)
        return LanguageModel.from_run(run, masked=masked)
    config = judge_configuration(source, trust_remote_code=trust_remote_code)
    task = _find_written_task(config, source, masked=masked)
    if position:
        change_foreign_positions(config, position, str(source), find_trained_length(source))
    model = load_weights(
        choose_class(config), source, config, device=choose_device(device), dtype=dtype or torch.float32,
        weights=weights, trust_remote_code=trust_remote_code,
    )  # fmt: skip
    tokenizer = open_tokenizer(source, trust_remote_code=trust_remote_code)
    return _join(str(source), model, tokenizer, task)


def to_language_model(
    run: str | Path | Run | LanguageModel | nn.Module, action: str, *, tokenizer: Any = None, masked: bool = False
) -> LanguageModel:
    """Return ``run`` as a language model, and open it if it is a folder or a hub name.

    ``action``: what the model is to do, such as "generate", for messages. ``tokenizer``: that of a model of
    transformers which is open already. ``masked``: whether a model that fills in masked tokens is opened too. Raises
    UsageError for what cannot do that, for an open model without its tokenizer, and what ``open_run`` and
    ``open_language_model`` raise.
    """
    if isinstance(run, nn.Module):
        name = type(run).__name__
        if tokenizer is None:
            raise UsageError(f"{name} is open already: give its tokenizer too (tokenizer=...)")
        if getattr(run, "get_output_embeddings", lambda: None)() is None:
            raise UsageError(f"cannot {action} with {name}, which is no model of transformers with an output layer")
        task = _find_written_task(run.config, name, masked=masked)
        return _join(getattr(run, "name_or_path", "") or name, run.eval(), tokenizer, task)
    if tokenizer is not None:
        raise UsageError(f"{type(run).__name__} has a tokenizer of its own; give tokenizer with an open model alone")
    if isinstance(run, LanguageModel):
        return run
    if not isinstance(run, Run) and not is_run(run):
        return open_language_model(run, masked=masked)
    return LanguageModel.from_run(open_run(run), action, masked=masked)


def _find_written_task(config: Any, source: str | Path, *, masked: bool) -> HeadTask:
    """Return what a model does: continue text or, with ``masked``, fill in tokens. Raises UsageError for any other."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    task, has_head = find_task(config)
    declared, kind = " ".join(config.architectures or ()), config.model_type
    continues = task == "causal" and (not is_known({"model_type": kind}) or kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    if not (continues or (masked and task == "masked")):
        or_masked = ", or one that fills in masked tokens (AutoModelForMaskedLM)" if masked else ""
        raise UsageError(
            f"{source} ({declared or kind}) does not continue text; this needs a causal language model, which "
            f"transformers opens with AutoModelForCausalLM{or_masked}"
        )
    if not has_head:
        raise UsageError(f"{source} ({declared}) was saved without its output layer, so it predicts no token")
    return task


def _join(source: str, model: Any, tokenizer: Any, task: HeadTask) -> LanguageModel:
    """Join a model with its tokenizer. Raises CheckpointError for one with ids that have no row."""
    rows, largest = model.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values(), default=0)
    if largest >= rows:
        raise CheckpointError(
            f"the tokenizer in {source} has ids up to {largest:,}, and the model has {rows:,} embeddings; it is not "
            "the one that the model was trained with: put back its own tokenizer files"
        )
    return LanguageModel(source, model, tokenizer, _find_mask_id(tokenizer, source) if task == "masked" else None)


def find_position_table(model: nn.Module) -> tuple[str, nn.Embedding] | None:
    """Return the learned table of positions of a model of transformers, with its name; None if it has none."""
    for name, part in model.named_modules():
        leaf = name.rpartition(".")[2].lower()
        if isinstance(part, nn.Embedding) and ("pos" in leaf or leaf == "wpe"):
            # Some models keep sinusoids in an embedding too. Of weights that stay in their files only the gradient
            # tells them apart; of all others the rows do, for a learned table may be frozen.
            weight_ND = part.weight.detach()
            learned = part.weight.requires_grad if weight_ND.is_meta else not is_sinusoid(weight_ND)
            if learned:
                return name, part
    return None


def count_rows_before(table: nn.Embedding) -> int:
    """Return how many rows of a table of positions come before that of the first token: OPT's and RoBERTa's have 2."""
    padding = table.padding_idx
    return int(getattr(table, "offset", 0 if padding is None else padding + 1))


def _find_mask_id(tokenizer: Any, source: str | Path) -> int:
    """Return the token that stands for a masked one. Raises CheckpointError for a tokenizer without it."""
    mask_id = getattr(tokenizer, "mask_token_id", None)
    if mask_id is None:
        raise CheckpointError(f"the tokenizer in {source} has no mask token, and the model there fills in masked ones")
    return int(mask_id)


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
    raw = read_checked_config(source, trust_remote_code=True)  # one file is read, and no code runs
    lengths = (raw.get(key) for key in _LENGTH_KEYS)
    return next((length for length in lengths if isinstance(length, int) and length > 0), None)
