"""The positions of transformers' configurations as tables of this project: which layer has which schemes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.explanation.filled import Filled, fill_in
from clockhands.explanation.huggingface import read_huggingface
from clockhands.explanation.rotation import Rotation
from clockhands.explanation.table import Layer, Positions

TWO_SIDED = ("modernbert",)
"""Encoders, whose window reaches as far to the right as to the left."""


def read_position_table(config: Mapping[str, Any], source: str = "config.json") -> dict[str, Any]:
    """Return the table ``[position]`` of a transformers configuration: the rotation, mask and factor of each layer.

    ``config``: the content of a ``config.json``; ``source``: its name, for messages. Layers without softmax attention
    (linear attention, Mamba) have no position here. Raises CheckpointError for what no scheme of the catalogue does.
    """
    model = str(config.get("model_type") or "")
    if model == "mpnet":
        table = {"scheme": "learned", "max_length": int(config.get("max_position_embeddings", 514)) - 2}
        buckets = int(config.get("relative_attention_num_buckets", 32))
        return {"schemes": [table, {"scheme": "t5", "num_buckets": buckets, "max_distance": 128}]}
    if model == "gpt2":
        return {"scheme": "learned", "max_length": int(config.get("n_positions", 1024))}
    filled, positions = fill_in(config, source, "transformers5"), read_huggingface(config, source)
    if positions.entry:
        raise CheckpointError(f"{source} has {positions.entry}, which read_position_table does not turn into schemes")
    layers = [_list_schemes(filled, positions, layer) for layer in positions.layers]
    entries = [schemes[0] if len(schemes) == 1 else {"schemes": schemes} if schemes else "none" for schemes in layers]
    if all(entry == entries[0] for entry in entries):
        return {"scheme": entries[0]} if isinstance(entries[0], str) else dict(entries[0])
    return {"layers": entries}


def _list_schemes(filled: Filled, positions: Positions, layer: Layer) -> list[Any]:
    """Return the schemes of one layer as a configuration names them."""
    model, schemes = positions.model, list[Any]()
    if not layer.attends:
        return schemes
    if "compressed" in layer.kind:
        raise CheckpointError(
            f"{positions.source} has layers of the kind {layer.kind}, which attend to compressed keys besides those of "
            f"tokens, and no scheme of the catalogue does"
        )
    if layer.rotation is not None:
        rope = _make_rope(layer.rotation, filled)
        # Mistral Large 4 multiplies each frequency by a learned factor, and queries by a learned line over ln(p + 1);
        # DeepSeek V4 rotates values as keys, and the output back.
        rope |= {"learned": True} if model == "mistral_large4_text" else {}
        rope |= {"values": True} if model == "deepseek_v4" else {}
        schemes.append(rope)
    if layer.window:
        schemes.append({"scheme": "window", "left": layer.window - 1})
    if layer.chunk:
        schemes.append({"scheme": "chunks", "size": layer.chunk})
    if layer.temperature:
        if layer.rotation is not None:
            raise CheckpointError(
                f"{filled.source}: {layer.temperature} in layers that rotate is no scheme of the catalogue"
            )
        scale, length = float(filled.get("attn_scale")), int(filled.get("floor_scale"))
        schemes.append({"scheme": "temperature", "form": "floor", "coefficient": scale, "length": length})
    if model in ("gpt_oss", "deepseek_v4"):  # with a learned sink in every head
        schemes.append("sinks")
    if model == "mistral_large4_text":
        schemes.append({"scheme": "ssmax", "bias": True, "start": 0.0})
    return schemes


def _make_rope(rotation: Rotation, filled: Filled) -> dict[str, Any]:
    """Return a rotation as the scheme ``rope``. Raises CheckpointError for what that cannot express."""
    if rotation.direction != 1 or (rotation.logit_factor != 1.0 and rotation.rule != "yarn"):
        raise CheckpointError(
            f"{filled.source} rotates the other way, or scales logits too, which rope does with yarn only"
        )
    width = rotation.head_dim
    if filled.get("qk_nope_head_dim") is not None:  # a slice of its own rotates (MLA)
        width = filled.get("qk_nope_head_dim") + filled.get("qk_rope_head_dim")
    table: dict[str, Any] = {"scheme": "rope", "base": rotation.base}
    if rotation.pairing == "interleaved":
        table["layout"] = "interleaved"
    if rotation.channels != width:
        table["fraction"] = rotation.channels / width
    if rotation.rule == "default":
        return table
    table |= {"spectrum": rotation.rule, "factor": rotation.factor}
    if rotation.rule == "proportional":
        table["share"] = rotation.share
    if rotation.rule in ("dynamic", "yarn", "longrope", "llama3"):
        table["original_length"] = rotation.original_length
    if rotation.rule == "yarn":
        table |= {"beta_fast": rotation.beta_fast, "beta_slow": rotation.beta_slow, "truncate": rotation.truncate}
    if rotation.logit_factor != 1.0:
        # DeepSeek's two options of YaRN, with g(m) = 0.1·m·ln(factor) + 1: the factor of the logits is
        # g(mscale_all_dim)², that of cosines and sines g(mscale) / g(mscale_all_dim).
        log_factor, all_dim = 0.1 * math.log(rotation.factor), math.sqrt(rotation.logit_factor)
        # Rounded, so that the decimal that stands in the configuration comes back.
        table["mscale"] = round((rotation.amplitude * all_dim - 1) / log_factor, 12)
        table["mscale_all_dim"] = round((all_dim - 1) / log_factor, 12)
    elif rotation.rule in ("yarn", "longrope"):
        table["attention_factor"] = rotation.amplitude
    if rotation.rule == "longrope":
        table |= {"short_factor": list(rotation.factors), "long_factor": list(rotation.long_factors)}
    if rotation.rule == "llama3":
        table["low_frequency_factor"] = rotation.low_frequency_factor
        table["high_frequency_factor"] = rotation.high_frequency_factor
    return table
