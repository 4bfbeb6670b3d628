"""Convert models between transformers and this project, with configuration and weights; the logits stay equal.

Architectures are converted whose layers our options express: those of ``fields.DECODERS``, which are
language models, and of ``ENCODERS``, which are masked language models.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

from clockhands.errors import ConfigError
from clockhands.interchange.fields import (
    ENCODERS,
    FIXED,
    check_architecture,
    check_fields,
    make_keys,
    read_fields,
)
from clockhands.interchange.pairs import pair_parameters
from clockhands.interchange.position_keys import make_position_keys
from clockhands.interchange.position_table import read_position_table
from clockhands.model.attention import LatentAttention
from clockhands.model.config import TransformerConfig
from clockhands.model.huggingface import ClockhandsForCausalLM, ClockhandsForMaskedLM
from clockhands.model.huggingface_base import SPECIAL_TOKEN_IDS, ClockhandsConfig
from clockhands.model.transformer import Transformer
from clockhands.pretrained.models import build_model
from clockhands.schemes import Composition, RoPE
from clockhands.schemes.convert import convert_rows
from clockhands.schemes.rotary.rotation import Layout
from clockhands.shapes import Tensor

OneStackModel: TypeAlias = ClockhandsForCausalLM | ClockhandsForMaskedLM

INTERLEAVED = ("cohere2", "llama4_text", "deepseek_v3")
"""Architectures that pair neighbouring channels; the others pair halves."""


@torch.no_grad()
def copy_from_transformers(theirs: PreTrainedModel) -> OneStackModel:
    """Return a model of this project with the configuration and weights of one of transformers.

    Both give the same logits. Raises UsageError for an architecture that is not among ``DECODERS``, ``ENCODERS`` and
    ``READ_ONLY``, CheckpointError for positions that no scheme expresses, and ConfigError for other settings that no
    option expresses.
    """
    config: Any = theirs.config
    check_architecture(config.model_type, read=True)
    origin = f"the configuration of {type(theirs).__name__}"
    faults = []
    for key, fixed in FIXED.get(config.model_type, {}).items():
        value = getattr(config, key, fixed)
        if value != fixed:
            faults.append(f"{key} is {value!r}, for which our layers have no option; only {fixed!r} is copied")
    if faults:
        raise ConfigError(faults, origin)
    fields = read_fields(config)
    transformer = TransformerConfig.from_dict({**fields, fields["kind"]: read_position_table(config.to_dict(), origin)})
    ids: dict[str, Any] = {}
    for name in SPECIAL_TOKEN_IDS:
        # Those that are a token's: a configuration that says nothing has the ids of the whole GPT-2, which a small
        # vocabulary does not hold.
        token_ids = getattr(config, name, None)
        known = [
            token
            for token in (token_ids if isinstance(token_ids, list) else [token_ids])
            if token in range(config.vocab_size)
        ]
        ids[name] = known if len(known) > 1 else known[0] if known else None
    kind: Any = ClockhandsForMaskedLM if config.model_type in ENCODERS else ClockhandsForCausalLM
    ours = kind(ClockhandsConfig(transformer=transformer, **ids)).to(theirs.dtype)
    for pair in pair_parameters(ours.transformer, theirs):
        pair.own.copy_(torch.cat(pair.parts) + pair.shift if pair.shift else torch.cat(pair.parts))
    made: OneStackModel = ours.to(theirs.device).train(theirs.training)
    return made


@torch.no_grad()
def copy_to_transformers(ours: OneStackModel, model_type: str, trained_length: int | None = None) -> PreTrainedModel:
    """Return a model of transformers with the configuration and weights of a model of this project.

    ``model_type``: one of ``DECODERS`` or ``ENCODERS``. Both give the same logits: rows of queries and keys are
    permuted where the architecture pairs other channels. Raises UsageError for another architecture, and ConfigError
    with everything that it cannot express.
    ``trained_length``: the most tokens that a text in training had (``Run.trained_length``), which is written as
    ``max_position_embeddings``, where that is not the length of a table; None leaves the architecture's default, which
    promises more than was trained.
    """
    check_architecture(model_type)
    ours_config = ours.config.transformer_config
    expected = "encoder" if model_type in ENCODERS else "decoder"
    if ours_config.architecture != expected:
        raise ConfigError([f"kind is {ours_config.architecture!r}, and {model_type} has {expected!r}"], "the model")
    side = ours_config.stack_sides[0]
    position = make_position_keys(
        ours_config.get_position_config(side), model_type, ours_config.count_layers(side),
        ours_config.resolved_head_dim, any_pairing=True,
    )  # fmt: skip
    ids = {name: getattr(ours.config, name) for name in SPECIAL_TOKEN_IDS}
    config = AutoConfig.for_model(**{**make_keys(ours_config, model_type), **position, **ids})
    says_length = hasattr(config, "max_position_embeddings") and "max_position_embeddings" not in position
    if trained_length is not None and says_length:
        config.max_position_embeddings = trained_length
    check_fields(ours_config, TransformerConfig.from_dict(read_fields(config)), model_type)
    kind = AutoModelForMaskedLM if model_type in ENCODERS else AutoModelForCausalLM
    theirs: Any = build_model(kind, config, dtype=ours.dtype)
    transformer = copy.deepcopy(ours.transformer)
    _change_pairing(transformer, "interleaved" if model_type in INTERLEAVED else "half")
    if ours_config.parallel:
        # A layer of Cohere's has only one norm. Where the weights of ours differ, each is multiplied into the matrix
        # that follows its norm, and both become 1.
        for block in transformer.get_stack("decoder").blocks:
            own: Any = block
            first, second = own.attention_residual.norm, own.feed_forward_residual.norm
            if not torch.equal(first.weight, second.weight):
                for norm, projection in ((first, own.attention.qkv), (second, own.feed_forward.up)):
                    projection.weight.mul_(norm.weight)
                    nn.init.ones_(norm.weight)
    for pair in pair_parameters(transformer, theirs):
        for source, part in zip(pair.own.split([len(part) for part in pair.parts]), pair.parts, strict=True):
            part.copy_(source - pair.shift if pair.shift else source)
    made: PreTrainedModel = theirs.to(ours.device).train(ours.training)
    return made


def _change_pairing(transformer: Transformer, to: Layout) -> None:
    """Permute the rows of queries and keys of the layers whose rotation pairs other channels than the layout ``to``."""
    stack: Any = transformer.input_stack
    for index, block in enumerate(stack.blocks):
        scheme = stack.schemes.get_scheme(index)
        parts = scheme.parts if isinstance(scheme, Composition) else (scheme,)
        rope = next((part for part in parts if isinstance(part, RoPE)), None)
        if rope is None or rope.layout == to:
            continue
        for rows, heads in _list_rotated_rows(block.attention):
            rows.copy_(convert_rows(rows, heads, to, rope.channels))


def _list_rotated_rows(attention: Any) -> Iterator[tuple[Tensor, int]]:
    """Yield the rows of the weights and biases of queries and keys, and the gains of their norms, with their heads.

    Of an attention with compressed keys these are the queries and the channels that all keys share.
    """
    if isinstance(attention, LatentAttention):
        yield attention.q_up.weight, len(attention.q_up.weight) // attention.head_dim
        for tensor in (attention.kv_down.weight, attention.kv_down.bias):
            if tensor is not None:
                yield tensor[attention.latent_width :], 1
        return
    for tensor in (attention.qkv.weight, attention.qkv.bias):
        if tensor is not None:
            for rows in tensor.split_with_sizes(attention.qkv.widths)[:2]:
                yield rows, len(rows) // attention.head_dim
    if attention.q_norm is not None:
        for gain in (attention.q_norm.weight, attention.k_norm.weight):
            yield gain, len(gain) // attention.head_dim
