"""Make the keys about position of a configuration of transformers from a ``PositionConfig``.

The keys say how each layer rotates, and which window, chunks or other schemes it has. They are read back and compared
layer by layer with what they were made from, and an architecture is refused if its keys do not say all of that.
Whether the architecture has a causal mask is not compared. An architecture is here a ``model_type`` of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clockhands.errors import CheckpointError, ConfigError, UsageError, describe_unknown
from clockhands.explanation.filled import fill_in
from clockhands.explanation.huggingface import read_huggingface
from clockhands.explanation.table import Layer
from clockhands.interchange.architectures import ARCHITECTURES
from clockhands.interchange.layer_parts import FAULT_SOURCE, Parts, describe_parts, have_equal_effect, list_parts
from clockhands.interchange.position_table import TWO_SIDED, read_position_table
from clockhands.model.config import read_config
from clockhands.model.position_config import PositionConfig
from clockhands.pretrained import read_configuration, read_json
from clockhands.pretrained.files import OWN
from clockhands.schemes import RoPE


def make_position_keys(
    position: PositionConfig, model_type: str, num_layers: int, head_dim: int, *, any_pairing: bool = False
) -> dict[str, Any]:
    """Make the keys about position of a configuration of transformers from a position configuration of this project.

    ``model_type``: one of ``architectures.ARCHITECTURES``. ``head_dim``: the width of a head of queries.
    ``any_pairing``: whether the architecture may pair other channels, in which case the rows of queries and keys have
    to be permuted (``schemes.convert``).

    Raises UsageError for another architecture, and ConfigError for what it has no keys for.
    """
    if model_type not in ARCHITECTURES:
        raise UsageError(describe_unknown("architecture", model_type, ARCHITECTURES))
    layers = list_parts(position, num_layers)
    keys = {"model_type": model_type, "num_hidden_layers": num_layers, **_make_keys(layers, model_type, head_dim)}
    try:
        table = read_position_table({"head_dim": head_dim, **keys}, f"a configuration of {model_type}")
    except CheckpointError as error:
        raise ConfigError([str(error)], FAULT_SOURCE) from error
    # The encoders: those of TWO_SIDED, whose windows reach to both sides, and MPNet, which has no windows.
    causal = model_type not in (*TWO_SIDED, "mpnet")
    written = list_parts(PositionConfig.from_dict(table), num_layers)
    for index, (ours, theirs) in enumerate(zip(layers, written, strict=True)):
        if not have_equal_effect(ours, theirs, head_dim, causal, any_pairing):
            sentence = (
                f"a configuration of {model_type} has no keys for these positions: layer {index} has "
                f"{describe_parts(ours)}, and would be read as {describe_parts(theirs)}"
            )
            raise ConfigError([sentence], FAULT_SOURCE)
    return keys


def convert_position_keys(source: str | Path, model_type: str) -> dict[str, Any]:
    """Make the keys about position for another architecture from a run or from a configuration of transformers.

    Raises CheckpointError for what cannot be read, UsageError for an encoder-decoder of this project, whose two stacks
    do not fit into one configuration, and what ``make_position_keys`` raises.
    """
    path = Path(source)
    raw = read_json(path) if path.is_file() else read_configuration(source)
    if raw.get("model_type") == OWN:
        config = read_config(raw.get("transformer") or {})
        if config.architecture == "encoder-decoder":
            sentence = f"{source} has an encoder and a decoder, and a configuration of {model_type} describes one stack"
            raise UsageError(f"{sentence}; give a model with one stack")
        (side,) = config.stack_sides
        return make_position_keys(
            config.get_position_config(side), model_type, config.count_layers(side), config.resolved_head_dim
        )
    layers = read_huggingface(raw, str(source)).layers
    position = PositionConfig.from_dict(read_position_table(raw, str(source)))
    return make_position_keys(position, model_type, len(layers), _find_head_dim(layers, raw))


def _find_head_dim(layers: Sequence[Layer], raw: Mapping[str, Any]) -> int:
    """Return the width of a head of queries, including the channels that do not rotate.

    ``layers``: what ``read_huggingface`` says of each layer. The width is 1 where the configuration does not say it:
    then nothing rotates, and the width is not needed.
    """
    filled = fill_in(raw, "config.json", "transformers5")
    width = next((layer.rotation.head_dim for layer in layers if layer.rotation), None)
    if filled.get("qk_nope_head_dim") is not None:
        return int(filled.get("qk_nope_head_dim")) + int(filled.get("qk_rope_head_dim"))
    return width or int(filled.get("hidden_size", 0)) // int(filled.get("num_attention_heads", 1)) or 1


def _make_keys(layers: Sequence[Parts], model_type: str, head_dim: int) -> dict[str, Any]:
    """Return the keys about position; what they leave out is found when they are read back.

    What an architecture supports is told by words of ``ARCHITECTURES``, whose docstring explains each. Some are names
    of keys, such as "no_rope_layers"; others, such as "windows", are not.
    """
    supported = ARCHITECTURES[model_type]
    if "table and buckets" in supported:
        return _make_mpnet_keys(layers)
    keys: dict[str, Any] = {}
    kinds = [_name_kind(layer, supported) for layer in layers]
    window = next((layer["window"]["left"] for layer in layers if "window" in layer), None)
    chunk = next((layer["chunks"]["size"] for layer in layers if "chunks" in layer), None)
    # Reversed, so that the first layer of each kind is the one that stays.
    ropes = {kind: layer["rope"] for kind, layer in reversed([*zip(kinds, layers, strict=True)]) if "rope" in layer}
    if {"windows", "chunks", "full attention"} & set(supported):
        keys["layer_types"] = kinds
    # A window of transformers counts the query itself, and that of ModernBERT both sides.
    if "local_attention" in supported:
        keys |= {} if window is None else {"local_attention": 2 * window}
    elif "windows" in supported or "one window" in supported:
        keys["sliding_window"] = None if window is None else window + 1
    if "use_sliding_window" in supported:
        keys["use_sliding_window"] = window is not None
    if "chunks" in supported and chunk is not None:
        keys["attention_chunk_size"] = chunk
    if "no_rope_layers" in supported:
        keys["no_rope_layers"] = [int("rope" in layer) for layer in layers]
    if "temperature" in supported:
        keys |= _make_temperature_keys(layers)
    tables = {kind: _make_rope_table(options, head_dim, "slice" not in supported) for kind, options in ropes.items()}
    # Transformers' dynamic rule reads the trained length from ``max_position_embeddings``.
    lengths = [options["original_length"] for options in ropes.values() if options["spectrum"] == "dynamic"]
    keys |= {"max_position_embeddings": lengths[0]} if lengths else {}
    if tables:
        keys["rope_parameters"] = tables if "rotation by kind" in supported else next(iter(tables.values()))
    # A slice of the channels of each head rotates: the keys say how many channels do, and how many do not.
    if "slice" in supported:
        width = next((RoPE.from_options(head_dim, **options).channels for options in ropes.values()), 0)
        keys |= {"qk_rope_head_dim": width, "qk_nope_head_dim": head_dim - width, "head_dim": width}
    return keys


def _name_kind(layer: Parts, supported: Sequence[str]) -> str:
    """Return the name that transformers has for the kind of a layer; ``supported``: words of ``ARCHITECTURES``."""
    if "windows" in supported and "window" in layer:
        return "sliding_attention"
    return "chunked_attention" if "chunks" in supported and "chunks" in layer else "full_attention"


def _make_rope_table(options: Mapping[str, Any], head_dim: int, with_share: bool) -> dict[str, Any]:
    """Return ``rope_parameters`` of one rotation; ``with_share``: with the share of channels that rotate."""
    scheme = RoPE.from_options(head_dim, **options)
    table = scheme.spectrum.to_hf_config(scheme.base, scheme.channels)
    return {**table, "partial_rotary_factor": scheme.fraction} if with_share and scheme.fraction != 1.0 else table


def _make_temperature_keys(layers: Sequence[Parts]) -> dict[str, Any]:
    """Return Llama 4's keys about temperature; a temperature of another form is left out."""
    options = next((layer["temperature"] for layer in layers if "temperature" in layer), None)
    if options is None or options["form"] != "floor":
        return {"attn_temperature_tuning": False}
    scale, length = options["coefficient"], options["length"]
    return {"attn_temperature_tuning": True, "attn_scale": scale, "floor_scale": length}


def _make_mpnet_keys(layers: Sequence[Parts]) -> dict[str, Any]:
    """Return MPNet's keys about position. Raises ConfigError unless the first layer has its two schemes."""
    table, buckets = layers[0].get("learned"), layers[0].get("t5")
    if table is None or buckets is None:
        sentence = "a configuration of mpnet has a learned table and T5's buckets, and layer 0 lacks one of the two"
        raise ConfigError([sentence], FAULT_SOURCE)
    # The first two rows of its table stand for no position.
    return {
        "max_position_embeddings": table["max_length"] + 2,
        "relative_attention_num_buckets": buckets["num_buckets"],
    }
