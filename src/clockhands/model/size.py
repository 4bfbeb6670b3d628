"""How large a model is, counted from its configuration before anything of it is built.

Everything that builds a model from numbers that somebody else wrote (a recipe, a ``config.json``) asks ``size_fault``
first: a width of ten million or a vocabulary of 10¹¹ is answered in a sentence instead of by the operating system.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from clockhands.machine import free_memory, in_words
from clockhands.model.config import Side, TransformerConfig
from clockhands.schemes import Scheme

LIMITS = {
    "vocab_size": 2**31 - 1,
    "source_vocab_size": 2**31 - 1,
    "d_model": 2**20,
    "num_heads": 2**16,
    "num_kv_heads": 2**16,
    "head_dim": 2**17,
    "d_ff": 2**22,
    "encoder_layers": 2_000,
    "decoder_layers": 2_000,
}
"""The largest sizes that are taken at all, on any machine: each is more than that of every model known. The deepest one
published has 1,000 layers (Wang et al. 2022, DeepNet); more than 2,000 take longer to build than anybody waits."""
SMALL = 2**26
"""Bytes up to which a scheme is simply built; above, it is built without storage (which takes a second to prepare)."""
LAYER_OVERHEAD = 2**17
"""Bytes that the Python objects of one layer take besides its numbers, rounded up."""
TRAINING_COPIES = 4
"""Numbers kept for each parameter in training: itself, its gradient, and Adam's two moments."""
ROOM = 1.2
"""What is needed besides the parameters, as a factor: the least with which a model can compute anything."""


def count_parameters(config: TransformerConfig) -> int:
    """Count the parameters of a model, tied matrices once, without building it.

    Only the schemes are built, one of each side and without storage: their tables are theirs to know.
    """
    total = sum(_stack(config, side) for side in config.sides if side != "cross")
    total += sum(_schemes(config, side) for side in config.sides)
    return total + _output(config) - _tied(config)


def bytes_needed(config: TransformerConfig, *, training: bool = False, itemsize: int = 4) -> int:
    """Count the bytes that a model needs at least, to be used or to be trained (with Adam), besides its data.

    ``itemsize``: bytes of one parameter.
    """
    copies = TRAINING_COPIES if training else 1
    layers = sum(config.layers(side) for side in config.sides if side != "cross")
    return int(count_parameters(config) * itemsize * copies * ROOM) + layers * LAYER_OVERHEAD


def size_fault(
    config: TransformerConfig,
    *,
    training: bool = False,
    itemsize: int = 4,
    device: torch.device | None = None,
    available: int | None = None,
) -> str | None:
    """Say in one sentence that a model does not fit the memory, or return None if it does.

    ``device``: where it is to be (default: the CPU). ``available``: bytes that are free there, by default as measured.
    """
    if available is None:
        available = free_memory(device or torch.device("cpu"))
    needed = bytes_needed(config, training=training, itemsize=itemsize)
    if needed <= available:
        return None
    use = "trained" if training else "used"
    return (
        f"a model of these sizes has {count_parameters(config):,} parameters and needs {in_words(needed)} of memory to "
        f"be {use}, and {in_words(available)} are free; lower vocab_size, d_model, d_ff or the number of layers, "
        "or take a machine with more memory"
    )


def outline(config: TransformerConfig, side: Side) -> Scheme:
    """Build one scheme of a side to look at: without storage if its tables could be large. No random number is spent.

    Raises ConfigError where the scheme refuses these sizes or options.
    """
    with torch.random.fork_rng(devices=[]):
        if 4 * _bound(config, side) <= SMALL:
            return config.scheme(side)
        with torch.device("meta"):
            return config.scheme(side)


def _bound(config: TransformerConfig, side: Side) -> int:
    """The product of the two largest numbers that a scheme is given: no table of ours has more entries."""
    sizes = config.sizes(side)
    given = [sizes.width, sizes.d_model, sizes.num_heads * sizes.head_dim]
    given += [abs(int(number)) for number in _numbers(config.position(side).options)]
    first, second = sorted([*given, 1], reverse=True)[:2]
    return first * second


def _numbers(value: Any) -> Iterator[int]:
    """All integers in an option, those in lists and tables too."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int):
        yield value


def _schemes(config: TransformerConfig, side: Side) -> int:
    """The parameters of a side's schemes: one for all layers, or one for each."""
    one = outline(config, side)
    count = config.layers(side) if one.per_layer else 1
    return max(count, 1) * sum(parameter.numel() for parameter in one.parameters())


def _stack(config: TransformerConfig, side: Side) -> int:
    """Input layer, layers and last norm of the encoder or the decoder, without its schemes."""
    position, width = config.position(side), config.d_model
    total = config.vocabulary(side) * position.token_width(width)
    total += config.token_scale == "learned"
    total += (width + position.encoding_width(width)) * width if position.combine == "project" else 0
    total += _norm(config) if config.embedding_norm else 0
    last = config.norm == "pre" if config.final_norm is None else config.final_norm
    return total + config.layers(side) * _layer(config, side) + (_norm(config) if last else 0)


def _layer(config: TransformerConfig, side: Side) -> int:
    attention = _attention(config) + _norm(config)
    crosses = side == "decoder" and config.kind == "encoder-decoder"
    up = (1 + config.gated) * config.d_ff
    feed_forward = config.d_model * (up + config.d_ff) + config.ffn_bias * (up + config.d_model)
    return (1 + crosses) * attention + feed_forward + _norm(config)


def _attention(config: TransformerConfig) -> int:
    """Projections of queries, keys and values, and of what comes out; cross-attention has as many."""
    inner = config.num_heads * config.d_head
    projected = inner + 2 * config.kv_heads * config.d_head
    return config.d_model * (projected + inner) + config.attention_bias * (projected + config.d_model)


def _norm(config: TransformerConfig) -> int:
    return config.d_model * (2 if config.norm_kind == "layer" and config.norm_bias else 1)


def _output(config: TransformerConfig) -> int:
    width = config.d_model
    transform = width * width + width + _norm(config) if config.output_transform else 0
    return width * config.vocab_size + config.output_bias * config.vocab_size + transform


def _tied(config: TransformerConfig) -> int:
    """What is counted twice or three times, and is one matrix."""
    if config.tying == "none":
        return 0
    shared = config.kind == "encoder-decoder" and config.tying == "three-way"
    return (1 + shared) * config.vocab_size * config.d_model
