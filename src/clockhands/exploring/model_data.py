"""A run as the page needs it: plain data of its model, and its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from clockhands.data import Pair
from clockhands.exploring.controls import list_applicable, read_token_scale
from clockhands.exploring.scheme_rules import describe_scheme
from clockhands.exploring.support import check_support, list_stacks
from clockhands.exploring.tokenizer_rules import describe_tokens, read_rules
from clockhands.exploring.weights import pack_weights
from clockhands.generation.engines.engine import get_end_tokens, get_start_token
from clockhands.model import TransformerConfig
from clockhands.model.block import Block
from clockhands.model.config_types import StackSide
from clockhands.runs import Run

__all__ = ["ExplorerModel", "describe_model"]


@dataclass(frozen=True)
class ExplorerModel:
    """A model on its way to the page: its data, ready for JSON, and the numbers of its weights."""

    data: dict[str, Any]
    weights: bytes

    @property
    def is_live(self) -> bool:
        """Whether the page runs it; else it shows what was recorded."""
        return bool(self.data["config"]["kind"] != "recorded")

    def read_array(self, name: str) -> np.ndarray[Any, Any]:
        """Return one of the arrays in ``weights``, as float32."""
        place, dtype = self.data["tensors"][name], np.dtype(self.data["weights"]["type"]).newbyteorder("<")
        count = math.prod(place["shape"])
        array = np.frombuffer(self.weights, dtype, count, place["offset"] * dtype.itemsize)
        return array.reshape(place["shape"]).astype(np.float32)


def describe_model(
    run: Run, name: str, label: str, task: str, pairs: Sequence[Pair], dtype: str = "float16"
) -> ExplorerModel:
    """Return a run's model with held-out pairs. ``name`` is its key on the page; ``dtype`` that of its weights there.

    Raises UsageError with every reason for which it does not run in a page.
    """
    check_support(run)
    weights, places = pack_weights(run, dtype)
    tokenizers = run.tokenizers
    config: TransformerConfig = run.model.config.transformer_config
    stacks = list_stacks(config)
    ends = "decoder" in stacks  # the texts of a language model do not end
    data = {
        "id": name,
        "label": label,
        "task": task,
        "config": _describe_sizes(run),
        "rules": _describe_rules(run),
        "schemes": {"decoder": _NO_SCHEME, **{side: describe_scheme(run, own) for side, own in stacks.items()}},
        "applicable": {"decoder": [], **{side: list_applicable(run, own) for side, own in stacks.items()}},
        "tokens": describe_tokens(tokenizers.source, config.get_vocabulary_size(stacks["encoder"])),
        "targetTokens": None if tokenizers.shared else describe_tokens(tokenizers.target, config.vocab_size),
        "tokenizer": read_rules(tokenizers.source, ends=ends),
        "targetTokenizer": read_rules(tokenizers.target, ends=ends),
        "heldOut": [{"source": pair.source, "target": pair.target} for pair in pairs],
        "tensors": places,
        "weights": {"element": f"explorer-weights-{name}", "type": dtype},
    }
    return ExplorerModel(data, weights)


_NO_SCHEME: dict[str, Any] = {
    "name": "none",
    "options": {},
    "combine": "add",
    "everyLayer": False,
    "skipEvery": 0,
    "frequencies": [],
}
"""The decoder's scheme of a model without one."""


def _describe_sizes(run: Run) -> dict[str, Any]:
    config: TransformerConfig = run.model.config.transformer_config
    return {
        "kind": config.architecture,
        "dModel": config.d_model,
        "heads": config.num_heads,
        "headDim": config.resolved_head_dim,
        "dFf": config.d_ff,
        "encoderLayers": config.decoder_layers if config.architecture == "decoder" else config.encoder_layers,
        "decoderLayers": 0 if config.architecture == "decoder" else config.decoder_layers,
        "norm": config.norm,
        "vocabulary": config.vocab_size,
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
    }


def _describe_rules(run: Run) -> dict[str, Any]:
    config: TransformerConfig = run.model.config.transformer_config
    stacks = list_stacks(config)
    scales: dict[str, float] = {side: _find_scale(run, own) for side, own in stacks.items()}
    return {
        "eps": config.norm_eps,
        "normKind": config.norm_kind,
        "preNorm": config.norm == "pre",
        "finalNorm": config.has_final_norm,
        "embeddingNorm": config.embedding_norm,
        "causalEncoder": config.causal_encoder or config.architecture == "decoder",
        "keyHeads": config.resolved_num_kv_heads,
        "tokenScale": {"decoder": 1.0, **{side: read_token_scale(run, own) for side, own in stacks.items()}},
        "outputScale": config.output_scale,
        "activation": config.activation,
        "gated": config.gated,
        "residual": config.residual,
        "attentionScale": {
            "decoder": 1.0,
            **scales,
            "cross": config.resolved_head_dim**-0.5 if config.attention_scale is None else config.attention_scale,
        },
        "startId": 0 if config.architecture == "decoder" else get_start_token(run.model),
        "endIds": get_end_tokens(run.model),
    }


def _find_scale(run: Run, side: StackSide) -> float:
    """Return the factor on q·k of a side's self-attention, as the model itself chooses it."""
    stack = run.model.transformer.get_stack(side)
    return cast(Block, stack.blocks[0]).attention.choose_scale(stack.schemes.at_input)
