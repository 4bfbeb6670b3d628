"""Reads ``config.json`` as transformers 5, transformers 4 or vLLM does: the same keys mean different things there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clockhands.explanation.config_reader import Reader, Settings, find_settings, list_kinds, load_families
from clockhands.explanation.huggingface_rotation import make_rotation
from clockhands.explanation.rotation import Rotation
from clockhands.explanation.table import Layer, Positions

__all__ = ["PROGRAMS", "read_huggingface"]

PROGRAMS = {
    "transformers5": "transformers 5",
    "transformers4": "transformers 4",
    "vllm": "vLLM 0.25",
}
"""Programs that read a ``config.json``, by the name that ``--as`` takes."""

INSIDE = ("text_config", "llm_config", "language_config", "thinker_config", "decoder", "global_config")
"""Keys under which a model of several kinds of input keeps the part that reads text."""
WITHOUT_ATTENTION = ("linear_attention", "mamba", "conv", "recurrent", "moe", "mlp")
"""Parts of the names of kinds of layers that have no attention."""
ROTATIONS_OF_KINDS = {
    "deepseek_v4": {
        "sliding_attention": "main", "heavily_compressed_attention": "compress",
        "compressed_sparse_attention": "compress",
    },
}  # fmt: skip
"""Architectures whose tables of ``rope_parameters`` have other names than the kinds of layers that they are for."""
POSITION_KEYS = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor", "rope_local_base_freq")
"""Keys that set a rotation."""


def read_huggingface(raw: Mapping[str, Any], source: str, program: str = "transformers5") -> Positions:
    """Read a ``config.json`` as one of ``PROGRAMS`` reads it.

    Raises CheckpointError for values that no program can use: numbers that are none, heads that do not divide the
    width, lists of the wrong length.
    """
    text, prefix = _find_text_part(raw)
    model = str(text.get("model_type") or raw.get("model_type") or "")
    family = load_families().get(model) or load_families().get(f"{model}_text") or {}
    reader = Reader(text, family, source, program, prefix)
    settings, unread = find_settings(reader)
    entry = _find_other_entry(reader)
    layers = tuple(_make_layers(reader, {} if entry else settings))
    unknown = not family and not entry
    notes = [f"transformers 5.23 has no rotary model {model!r}; it is read as Llama would be"] if unknown else []
    claimed = reader.count("max_position_embeddings", "n_positions", "max_sequence_length", "model_max_length")
    return Positions(
        source=source,
        program=PROGRAMS[program],
        model=model,
        layers=layers,
        entry=entry,
        trained_length=_find_trained_length(layers, claimed),
        claimed_length=claimed,
        notes=tuple(notes),
        unread=tuple(unread),
    )


def _find_other_entry(reader: Reader) -> str:
    """Return how positions enter where a configuration rotates nothing; empty if it rotates."""
    raw, model = reader.raw, reader.raw.get("model_type")
    kind = raw.get("position_embedding_type")
    if raw.get("alibi") is True:
        return "ALiBi (alibi is true)"
    if model in ("esm", "granitemoehybrid") and kind not in ("rotary", "rope"):
        return f"no rotation (position_embedding_type is {kind!r})"
    if model == "zamba2" and not raw.get("use_mem_rope"):
        return "no rotation (use_mem_rope is not set)"
    if reader.find("qk_rope_head_dim")[0] == 0:
        return "no rotation (qk_rope_head_dim is 0)"
    if not reader.family and not any(raw.get(key) for key in POSITION_KEYS):
        return "no rotation that the file names (a table, a bias or nothing: the weights tell)"
    return ""


def _find_text_part(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the part of a configuration that reads text, and the prefix of its keys."""
    prefix = ""
    while inside := next((key for key in INSIDE if isinstance(raw.get(key), dict)), None):
        raw, prefix = raw[inside], f"{prefix}{inside}."
    return raw, prefix


def _find_trained_length(layers: tuple[Layer, ...], claimed: int | None) -> int | None:
    """Return the length that rules scale from, the largest of all layers; without a rule, the claimed one."""
    lengths = [layer.rotation.original_length for layer in layers if layer.rotation and layer.rotation.original_length]
    return max(lengths) if lengths else claimed


def _make_layers(reader: Reader, settings: Settings) -> list[Layer]:
    """Return every layer with its rotation and with how far it sees."""
    kinds = list_kinds(reader)
    rotations = {kind: make_rotation(reader, values, kind) for kind, values in settings.items()}
    window = reader.count("sliding_window", "attention_window_size")
    chunk = reader.count("attention_chunk_size")
    names = ROTATIONS_OF_KINDS.get(str(reader.raw.get("model_type")), {})
    layers = []
    for index, kind in enumerate(kinds):
        attends = not any(word in kind for word in WITHOUT_ATTENTION) or kind == "hybrid"
        rotation = rotations.get(names.get(kind, kind), rotations.get(None, next(iter(rotations.values()), None)))
        if not attends or not _rotates(reader, index, kind):
            rotation = None
        layers.append(
            Layer(
                kind=kind,
                rotation=rotation,
                window=window if "sliding" in kind else None,
                chunk=chunk if "chunked" in kind else None,
                temperature=_describe_temperature(reader, rotation),
                attends=attends,
            )
        )
    return layers


def _rotates(reader: Reader, index: int, kind: str) -> bool:
    """Tell whether a layer rotates its queries and keys."""
    rule = reader.family.get("rotates")
    if rule == "no_rope_layers":
        flags = reader.raw.get("no_rope_layers")
        every = reader.count("no_rope_layer_interval") or 4
        # The name misleads: 1 means that the layer rotates.
        return bool(flags[index]) if isinstance(flags, list) and index < len(flags) else (index + 1) % every != 0
    if rule == "sliding_attention":
        return "sliding" in kind or (reader.raw.get("model_type") in NO_WINDOW and not reader.raw.get("sliding_window"))
    return True


NO_WINDOW = ("exaone4", "exaone_moe", "kolibri1")
"""Architectures that rotate in every layer where no window is set."""


def _describe_temperature(reader: Reader, rotation: Rotation | None) -> str:
    """Describe the factor that queries get by their position; empty where there is none."""
    raw = reader.raw
    if raw.get("attn_temperature_tuning") and rotation is None and reader.family.get("rotates") == "no_rope_layers":
        scale, floor = raw.get("attn_scale", 0.1), raw.get("floor_scale", 8192)
        return f"queries × (1 + {scale} ln(1 + ⌊(p + 1)/{floor}⌋)) at position p"
    beta = (raw.get("rope_parameters") or {}).get("llama_4_scaling_beta")
    if beta and rotation is not None:
        return f"queries × (1 + {beta} ln(1 + ⌊p/{rotation.original_length}⌋)) at position p"
    return ""
