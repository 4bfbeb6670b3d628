"""Make the keys about position of a configuration of transformers from a ``PositionConfig``.

The keys say how each layer rotates, and which window, chunks or other schemes it has. They are read back and compared
layer by layer with what they were made from, and an architecture is refused if its keys do not say all of that.
Whether the architecture has a causal mask is not compared. An architecture is here a ``model_type`` of transformers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch

from clockhands.errors import CheckpointError, ConfigError, UsageError, describe_unknown
from clockhands.explanation.filled import fill_in
from clockhands.explanation.huggingface import read_huggingface
from clockhands.interchange.architectures import ARCHITECTURES
from clockhands.interchange.position_table import TWO_SIDED, read_position_table
from clockhands.model.config import read_config
from clockhands.model.position_config import PositionConfig
from clockhands.model.side_schemes import list_layer_specs
from clockhands.options import defaults_of, options_of
from clockhands.pretrained import is_own, read_configuration, read_json
from clockhands.schemes import CATALOGUE, RoPE, read_part

Parts: TypeAlias = dict[str, dict[str, Any]]
"""The schemes of one layer: the name of each, and all of its options."""
FAULT_SOURCE = "the position configuration"


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
    layers = _list_parts(position, num_layers)
    keys = {"model_type": model_type, "num_hidden_layers": num_layers, **_make_keys(layers, model_type, head_dim)}
    try:
        table = read_position_table({"head_dim": head_dim, **keys}, f"a configuration of {model_type}")
    except CheckpointError as error:
        raise ConfigError([str(error)], FAULT_SOURCE) from error
    # The encoders: those of TWO_SIDED, whose windows reach to both sides, and MPNet, which has no windows.
    causal = model_type not in (*TWO_SIDED, "mpnet")
    written = _list_parts(PositionConfig.from_dict(table), num_layers)
    for index, (ours, theirs) in enumerate(zip(layers, written, strict=True)):
        if not _have_equal_effect(ours, theirs, head_dim, causal, any_pairing):
            sentence = (
                f"a configuration of {model_type} has no keys for these positions: layer {index} has "
                f"{_describe_parts(ours)}, and would be read as {_describe_parts(theirs)}"
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
    if is_own(raw):
        config = read_config(raw.get("transformer") or {})
        if config.architecture == "encoder-decoder":
            sentence = f"{source} has an encoder and a decoder, and a configuration of {model_type} describes one stack"
            raise UsageError(f"{sentence}; give a model with one stack")
        (side,) = config.stack_sides
        return make_position_keys(
            config.get_position_config(side), model_type, config.count_layers(side), config.resolved_head_dim
        )
    layers, filled = read_huggingface(raw, str(source)).layers, fill_in(raw, "config.json", "transformers5")
    position = PositionConfig.from_dict(read_position_table(raw, str(source)))
    # The width of a head of queries, with the channels that do not rotate. Where nothing says it, nothing rotates.
    head_dim = next((layer.rotation.head_dim for layer in layers if layer.rotation), None)
    head_dim = head_dim or int(filled.get("hidden_size", 0)) // int(filled.get("num_attention_heads", 1)) or 1
    if filled.get("qk_nope_head_dim") is not None:
        head_dim = int(filled.get("qk_nope_head_dim")) + int(filled.get("qk_rope_head_dim"))
    return make_position_keys(position, model_type, len(layers), head_dim)


def _make_keys(layers: Sequence[Parts], model_type: str, head_dim: int) -> dict[str, Any]:
    """Return the keys about position; what they leave out is found when they are read back."""
    supported = ARCHITECTURES[model_type]
    # The first layer with a scheme tells the options of all.
    first = {name: options for layer in reversed(layers) for name, options in layer.items()}
    if "table and buckets" in supported:
        if not {"learned", "t5"} <= layers[0].keys():
            sentence = "a configuration of mpnet has a learned table and T5's buckets, and layer 0 lacks one of the two"
            raise ConfigError([sentence], FAULT_SOURCE)
        # The first two rows of its table stand for no position.
        rows, buckets = layers[0]["learned"]["max_length"], layers[0]["t5"]["num_buckets"]
        return {"max_position_embeddings": rows + 2, "relative_attention_num_buckets": buckets}
    keys: dict[str, Any] = {}
    kinds = ["full_attention"] * len(layers)
    for place, layer in enumerate(layers):
        if "windows" in supported and "window" in layer:
            kinds[place] = "sliding_attention"
        elif "chunks" in supported and "chunks" in layer:
            kinds[place] = "chunked_attention"
    if {"windows", "chunks", "full attention"} & set(supported):
        keys["layer_types"] = kinds
    # A window of transformers counts the query itself, and that of ModernBERT both sides.
    window = first["window"]["left"] if "window" in first else None
    if "local_attention" in supported:
        keys |= {} if window is None else {"local_attention": 2 * window}
    elif "windows" in supported or "one window" in supported:
        keys["sliding_window"] = None if window is None else window + 1
    if "use_sliding_window" in supported:
        keys["use_sliding_window"] = window is not None
    if "chunks" in supported and "chunks" in first:
        keys["attention_chunk_size"] = first["chunks"]["size"]
    if "no_rope_layers" in supported:
        keys["no_rope_layers"] = [int("rope" in layer) for layer in layers]
    if "temperature" in supported:  # one of another form than Llama 4's is left out
        temperature = first.get("temperature", {})
        keys["attn_temperature_tuning"] = temperature.get("form") == "floor"
        if keys["attn_temperature_tuning"]:
            keys |= {"attn_scale": temperature["coefficient"], "floor_scale": temperature["length"]}
    # The first layer of each kind tells how all of it rotate.
    ropes = {kind: layer["rope"] for kind, layer in reversed([*zip(kinds, layers, strict=True)]) if "rope" in layer}
    tables, width = {}, 0
    for kind, options in ropes.items():
        scheme = RoPE.from_options(head_dim, **options)
        tables[kind] = scheme.spectrum.to_hf_config(scheme.base, scheme.channels)
        if "slice" not in supported and scheme.fraction != 1.0:
            tables[kind]["partial_rotary_factor"] = scheme.fraction
        width = width or scheme.channels
        if options["spectrum"] == "dynamic":  # whose trained length transformers reads from another key
            keys.setdefault("max_position_embeddings", options["original_length"])
    if tables:
        keys["rope_parameters"] = tables if "rotation by kind" in supported else next(iter(tables.values()))
    # A slice of the channels of each head rotates: the keys say how many channels do, and how many do not.
    if "slice" in supported:
        keys |= {"qk_rope_head_dim": width, "qk_nope_head_dim": head_dim - width, "head_dim": width}
    return keys


def _list_parts(position: PositionConfig, num_layers: int) -> list[Parts]:
    """Return the schemes of every layer with all their options, so that two ways to write positions can be compared."""
    for name, default in (("transform", None), ("combine", "add"), ("every_layer", False)):
        if getattr(position, name) != default:
            sentence = f"position.{name} is {getattr(position, name)!r}, and no configuration of transformers says so"
            raise ConfigError([sentence], FAULT_SOURCE)
    entry: dict[str, Any] = {"scheme": position.scheme, **position.options}
    common = [read_part(part) for part in entry.get("schemes", [entry])]
    layers = []
    for index, specs in enumerate(list_layer_specs(position, num_layers)):
        named = [*common, *specs]
        named = [(name, options) for name, options in named if name != "none"]
        repeated = [name for name, count in Counter(name for name, _ in named).items() if count > 1]
        if repeated:
            sentence = f"layer {index} has two schemes {repeated[0]}, and no configuration of transformers says so"
            raise ConfigError([sentence], FAULT_SOURCE)
        skipped = position.skip_every and (index + 1) % position.skip_every == 0
        parts = {name: {**defaults_of(options_of(CATALOGUE[name])), **options} for name, options in named}
        layers.append({} if skipped else parts)
    return layers


def _have_equal_effect(ours: Parts, theirs: Parts, head_dim: int, causal: bool, any_pairing: bool) -> bool:
    """Return whether a layer computes the same with both; ``any_pairing``: with rotations of other pairs too."""
    if set(ours) != set(theirs):
        return False
    for scheme in ours:
        first, second = dict(ours[scheme]), dict(theirs[scheme])
        if scheme == "rope" and first != second:
            own, other = (RoPE.from_options(head_dim, **options) for options in (first, second))
            if not _rotate_equally(own, other, any_pairing):
                return False
            continue
        for options in (first, second):
            if scheme == "ssmax":
                del options["start"]  # of its parameter, which the weights tell
            if scheme == "window" and (causal or options["right"] is None):
                # Behind a causal mask a window to the right changes nothing; without one it reaches as far as to the
                # left where nothing is said.
                options["right"] = 0 if causal else options["left"]
        if first != second:
            return False
    return True


def _rotate_equally(first: RoPE, second: RoPE, any_pairing: bool) -> bool:
    """Return whether two rotations have equal effect in texts of 1, 1,000 and 10⁶ tokens."""
    if first.rotates_values != second.rotates_values or (first.alpha_F is None) != (second.alpha_F is None):
        return False
    rows = []
    for scheme in (first, second):
        omega = scheme.frequencies(torch.tensor([1, 1000, 10**6])).expand(3, 1, -1).flatten().tolist()
        spectrum = scheme.spectrum
        row = [*omega, spectrum.amplitude(), spectrum.logit_factor(), scheme.channels, spectrum.unscaled_first]
        rows.append(torch.tensor(row, dtype=torch.float64))
    same_pairs = any_pairing or first.layout == second.layout
    return same_pairs and rows[0].shape == rows[1].shape and torch.allclose(rows[0], rows[1], rtol=1e-9, atol=0.0)


def _describe_parts(layer: Parts) -> str:
    """Return the schemes of a layer with the options that differ from their defaults."""
    schemes = []
    for scheme, options in layer.items():
        defaults = defaults_of(options_of(CATALOGUE[scheme]))
        changed = ", ".join(f"{key} {value}" for key, value in options.items() if value != defaults[key])
        schemes.append(f"{scheme} ({changed})" if changed else scheme)
    return " + ".join(schemes) or "no position"
