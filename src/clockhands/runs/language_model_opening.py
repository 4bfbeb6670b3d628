"""Opens a language model: a run of this project, or any model of transformers that continues text or fills in masks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from clockhands.devices import choose_device
from clockhands.errors import CheckpointError, UsageError
from clockhands.pretrained import count_numbers, explain_faults, is_known, load_configuration, load_tokenizer
from clockhands.runs.foreign import (
    load_foreign_model,
    measure_weight_files,
    read_checked_config,
    refuse_unknown_positions,
)
from clockhands.runs.foreign_positions import change_foreign_positions
from clockhands.runs.language_model import LanguageModel, find_mask_id, find_trained_length, is_run
from clockhands.runs.run import open_run
from clockhands.runs.streaming import decide_streaming, open_streamed

__all__ = ["open_language_model"]

WITH_OUTPUT_LAYER = re.compile("LM|ConditionalGeneration|ForCausal")
"""A pattern in the class names of models that have an output layer."""


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
    raw = read_checked_config(source, trust_remote_code=trust_remote_code)
    refuse_unknown_positions(raw, source)
    fills_in = masked and _fills_in(raw)
    if not fills_in:
        _check_continues_text(raw, source)
    where = choose_device(device)
    config = load_configuration(source, trust_remote_code=trust_remote_code)
    if position:
        change_foreign_positions(config, position, str(source), find_trained_length(source))
    measure_weight_files(source, raw)  # refuses weights that are pickled, missing or damaged
    auto = _choose_class(fills_in)
    model = _load(auto, str(source), config, where, dtype or torch.float32, weights, trust_remote_code)
    tokenizer = load_tokenizer(source, trust_remote_code=trust_remote_code)
    _check_tokenizer(tokenizer, model, source)
    return LanguageModel(str(source), model.eval(), tokenizer, find_mask_id(tokenizer, source) if fills_in else None)


def _fills_in(raw: Mapping[str, Any]) -> bool:
    """Return whether a configuration is that of a model that fills in masked tokens."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    declared = " ".join(raw.get("architectures") or ())
    known = str(raw.get("model_type")) in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return known and ("MaskedLM" in declared or "ForPreTraining" in declared) and not raw.get("is_encoder_decoder")


def _choose_class(fills_in: bool) -> Any:
    """Return the class of transformers that opens a model with the output layer that is needed."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    return AutoModelForMaskedLM if fills_in else AutoModelForCausalLM


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
    auto: Any, source: str, config: Any, device: torch.device, dtype: torch.dtype, weights: str | None,
    trust_remote_code: bool,
) -> Any:  # fmt: skip
    """Load the model, with its weights in memory or streamed (``decide_streaming``)."""
    options: dict[str, Any] = {"dtype": dtype, "trust_remote_code": trust_remote_code, "config": config}
    numbers = count_numbers(auto, config, trust_remote_code=trust_remote_code)
    size = None if numbers is None else numbers * dtype.itemsize
    if decide_streaming(source, weights, size, device):
        with explain_faults(source, "with streamed weights the model in"):
            return open_streamed(auto, source, device, **options)
    return load_foreign_model(auto, source, **options).to(device)


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
