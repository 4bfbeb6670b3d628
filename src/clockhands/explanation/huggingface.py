"""Reads ``config.json`` as transformers 5, transformers 4 or vLLM does: the same keys mean different things there."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from clockhands.errors import UsageError
from clockhands.explanation.filled import IN_ATTENTION, ROTATE, Filled, fill_in
from clockhands.explanation.huggingface_rotation import make_rotation
from clockhands.explanation.numbers import check_count, check_kinds, check_layers, check_number
from clockhands.explanation.rotation import Rotation
from clockhands.explanation.table import NOT_KNOWN, WITHOUT_ATTENTION, Layer, Positions
from clockhands.progress import quiet
from clockhands.reading import parse_json

PROGRAMS = {
    "transformers5": "transformers 5",
    "transformers4": "transformers 4",
    "vllm": "vLLM 0.25",
}
"""Programs that read a ``config.json``, by the name that ``--as`` takes."""
_OTHERWISE = re.compile(
    "clvp|dinov3_vit|eomt_dinov3|efficientloftr|esmfold2|lasr_ctc|lightglue|llama4_vision|sam[23]|edgetam_video|"
    "sapiens2|seamless_m4t|vjepa2|wav2vec2-(bert|conformer)"
)
"""Architectures of pictures and sound whose code rotates by rules that no table here has."""
_OTHER_LAYERS = {
    "rwkv": "recurrent", "xlstm": "recurrent", "fnet": "mlp", "longformer": "sliding_attention",
    "led": "sliding_attention",
}  # fmt: skip
"""Architectures whose classes do not say which kind all of their layers are."""
_MIXED = re.compile("mamba|ssm_|block_configs|hybrid_|linear_attn|rwkv")
"""What keys begin with of architectures that have other layers than those of attention."""


def read_huggingface(raw: Mapping[str, Any], source: str, program: str = "transformers5") -> Positions:
    """Read a ``config.json`` as one of ``PROGRAMS`` reads it.

    Raises CheckpointError for what transformers refuses, and for values that no program can use.
    """
    filled = fill_in(raw, source, program)
    entry = _find_other_entry(filled)
    with quiet("transformers"):
        layers = tuple(_make_layers(filled, rotates=not entry))
    notes = []
    if not (filled.known or entry):
        names = {"llama": "Llama", "deepseek_v3": "DeepSeek V3"}
        like = f"{names.get(filled.config.model_type, filled.config.model_type)} would be"
        like = "its own code is known to do" if filled.model in ROTATE else like
        without = " without latent attention" if "use_mla" in filled.raw else ""
        what = f"transformers 5.23 has no rotary model {filled.model!r}{without}"
        notes = [f"{what if filled.model else 'the file names no model_type'}; it is read as {like}"]
    elif filled.known and (own := _find_own_code(filled)):
        notes = [
            f"the file names code of its own ({own}), which is not read here; this is what {PROGRAMS[program]} makes "
            "of the file without that code"
        ]
    claimed = filled.get("max_position_embeddings")
    if filled.find(claimed, ".*max_.*|.*length|n_positions").startswith("default"):
        claimed = None if not filled.known or claimed == -1 else claimed  # XLNet's class has -1 for no limit
    claimed = None if claimed is None else filled.count("max_position_embeddings")
    lengths = [layer.rotation.original_length for layer in layers if layer.rotation and layer.rotation.original_length]
    return Positions(
        source=source,
        program=PROGRAMS[program],
        model=filled.model,
        layers=layers,
        entry=entry,
        trained_length=max(lengths) if lengths else claimed,
        claimed_length=claimed,
        notes=tuple(notes),
        part={**filled.raw, "model_type": filled.config.model_type} if filled.known else filled.raw,
        prefix=filled.prefix,
        tables=filled.get("rope_parameters") or {},
        config=filled.whole,
    )


def _find_other_entry(filled: Filled) -> str:
    """Return how positions enter where a configuration rotates nothing; empty if it rotates."""
    model, kind = filled.config.model_type, filled.get("position_embedding_type")
    if filled.get("alibi") is True:
        return "ALiBi (alibi is true)"
    own = _find_own_code(filled) if filled.known else ""
    if (own or not filled.known) and filled.raw.get("position_embedding_type") == "alibi":
        return "ALiBi (position_embedding_type is 'alibi')"
    if model in ("bloom", "mpt"):
        return f"ALiBi (as {model} has always)"
    rule = table.get("rope_type") if isinstance(table := filled.get("rope_parameters"), Mapping) else None
    rotary = filled.get("position_embeddings_type", "rotary") == "rotary"
    if rule == "axial" or (rotary and _OTHERWISE.match(model)):
        return f"{NOT_KNOWN}: {model} rotates by the axes of a picture or by a rule of its own, which its code tells"
    if filled.model == "baichuan" and filled.get("hidden_size") != 4096:
        return "ALiBi (as Baichuan's code has for all sizes but 7B)"
    if model in ("esm", "granitemoehybrid") and kind not in ("rotary", "rope"):
        return f"no rotation (position_embedding_type is {kind!r})"
    if model == "zamba2" and not filled.get("use_mem_rope"):
        return "no rotation (use_mem_rope is not set)"
    if filled.known and filled.get("qk_rope_head_dim") == 0:
        return "no rotation (qk_rope_head_dim is 0)"
    like_others = filled.known or model != "llama" or filled.model in ROTATE or "use_mla" in filled.raw
    named = any(key.startswith(("rope", "rotary")) for key in filled.raw)
    if not (like_others or named) or "position_encoding_2d" in filled.raw:  # the first ChatGLM's positions are pairs
        return f"{NOT_KNOWN}: transformers 5.23 has no {filled.model!r}, and the file names no rotation; its code tells"
    if not filled.known and (mixed := next(filter(_MIXED.match, filled.raw), None)):
        lacks = f"transformers 5.23 has no {filled.model!r}"
        return f"{NOT_KNOWN}: {lacks}, and {mixed} is a key of layers without attention; its code tells which"
    if model not in (*IN_ATTENTION, "esm") and not filled.get("rope_parameters"):
        if own:
            return f"{NOT_KNOWN}: the file names code of its own ({own}), which tells; {model} has no rotation"
        return "no rotation that the architecture has (a table, a bias or nothing: the weights tell)"
    return ""


def _find_own_code(filled: Filled) -> str:
    """Return the configuration or model that a file names and transformers does not have; empty for nothing."""
    import transformers

    code, names = filled.raw.get("auto_map"), filled.raw.get("architectures")
    own = str(code.get("AutoConfig", "")) if isinstance(code, Mapping) else ""
    if own and own.rpartition(".")[2].lower() != type(filled.config).__name__.lower():
        return own
    if isinstance(names, list) and names and not set(map(str, names)) & set(vars(transformers)["__all__"]):
        return str(names[0])
    return ""


def _make_layers(filled: Filled, *, rotates: bool) -> list[Layer]:
    """Return every layer with its rotation and with how far it sees."""
    kinds = _list_kinds(filled)
    with_attention = {kind for kind in kinds if not any(word in kind for word in WITHOUT_ATTENTION)}
    # In this order, as the modules of transformers do: what completes one table may complete the next.
    made = {kind: make_rotation(filled, kind) if rotates else None for kind in sorted(with_attention)}
    crossing = filled.get("cross_attention_layers")  # of Llama 3.2 Vision: they attend to pictures alone
    bases, scaled = filled.get("layer_rope_theta"), filled.get("rope_scaling_layers")
    layers = []
    for index, kind in enumerate(kinds):
        attends, rotation = kind in with_attention, None
        if attends and isinstance(crossing, list) and index in crossing:
            kind = "cross_attention"
        elif attends and _rotates(filled, index, kind):
            rotation = made[kind]
        # A file may list bases layer by layer, or the layers that a rule is for.
        if rotation is not None and isinstance(bases, list) and filled.config.model_type.endswith("_swa"):
            base = check_number(bases[index], f"{filled.prefix}layer_rope_theta", filled.source)
            rotation = rotation if base == rotation.base else dataclasses.replace(rotation, base=base)
        elif rotation is not None and isinstance(scaled, list) and index not in scaled:
            rotation = dataclasses.replace(rotation, rule="default", amplitude=1.0)
        window = _find_window(filled, index, kind) if attends else None
        chunk = filled.count("attention_chunk_size") if "chunked" in kind else None
        layers.append(Layer(kind, rotation, window, chunk, _describe_temperature(filled, rotation, attends), attends))
    return layers


def _list_kinds(filled: Filled) -> list[str]:
    """Return the kind of each layer."""
    kinds = filled.get("layer_types") or filled.get("layers_block_type")
    count = filled.get("num_hidden_layers")
    if count is None:
        count = len(kinds or "x")
    count = check_layers(count, filled.find(count, ".*layers?"), filled.source)
    if filled.config.model_type in _OTHER_LAYERS:
        return [_OTHER_LAYERS[filled.config.model_type]] * count
    if filled.config.model_type == "gpt_neo":
        kinds = [
            "sliding_attention" if kind == "local" else "full_attention" for kind in filled.get("attention_layers")
        ]
    if kinds is None:
        everywhere = filled.get("sliding_window") and (
            filled.facts.get("window") == "everywhere"
            or (not filled.known and filled.raw.get("use_sliding_window") is not False)
        )
        return ["sliding_attention" if everywhere else "full_attention"] * count
    return check_kinds(kinds, count, filled.source)


def _find_window(filled: Filled, index: int, kind: str) -> int | None:
    """Return how many tokens a layer sees, itself included: to both sides in encoders."""
    size = filled.get("attention_window")
    if filled.config.model_type in ("longformer", "led"):  # all that a token of the encoder sees, but for itself
        size = size[index] if isinstance(size, list) and index < len(size) else size
        return check_count(size, f"{filled.prefix}attention_window", filled.source) // 2 + 1
    if filled.config.model_type == "gpt_neo" and "sliding" in kind:
        return filled.count("window_size")
    which = filled.facts.get("window")
    if which is None or ("sliding" not in kind and which == "by kind"):
        return None
    window = filled.get("sliding_window")
    if window is None:
        try:
            window = filled.config.per_layer_config[index].sliding_window
        except Exception:  # no layer has a window of its own
            return None
    origin = filled.find(window, "(sliding_)?window.*|attention_window_size|.*window_len")
    if window is None or (window == 0 and origin.startswith("default")):  # Qwen2-MoE's class has 0 for none
        return None
    return check_count(window, origin, filled.source) + int(bool(filled.facts.get("two_sided")))


def _rotates(filled: Filled, index: int, kind: str) -> bool:
    """Tell whether a layer rotates its queries and keys."""
    rule = filled.facts.get("rotates") or (None if filled.known else "no_rope_layers")
    windowed = "sliding" in kind and filled.get("sliding_window") is not None
    if rule in ("no_rope_layers", "layer_rope_theta"):  # the first name misleads: 1 means that the layer rotates
        listed = filled.get(rule)
        return not isinstance(listed, list) or index >= len(listed) or bool(listed[index])
    if rule == "sliding or dense":
        dense = filled.get("mlp_layer_types", [])[index] == "dense"
        return windowed or (dense and filled.get("prefix_dense_sliding_window_pattern") == 1)
    if rule == "sliding if any":
        return windowed or filled.get("sliding_window") is None
    return rule is None or windowed


def _describe_temperature(filled: Filled, rotation: Rotation | None, attends: bool) -> str:
    """Describe the factor that queries get by their position; empty where there is none."""
    if filled.get("attn_temperature_tuning") and rotation is None and attends:
        keys = ("attn_scale", "floor_scale")
        scale, floor = (check_number(filled.get(key), f"{filled.prefix}{key}", filled.source) for key in keys)
        return f"queries × (1 + {scale:g} ln(1 + ⌊(p + 1)/{floor:g}⌋)) at position p"
    table = filled.get("rope_parameters")
    beta = table.get("llama_4_scaling_beta") if isinstance(table, Mapping) else None
    if beta and rotation is not None:
        beta = check_number(beta, f"{filled.prefix}rope_parameters.llama_4_scaling_beta", filled.source)
        return f"queries × (1 + {beta:g} ln(1 + ⌊p/{rotation.original_length}⌋)) at position p"
    return ""


def lay_over(raw: Mapping[str, Any], overrides: str) -> dict[str, Any]:
    """Return a configuration with vLLM's ``--hf-overrides`` laid over it: parts of it are merged, tables replaced.

    Raises UsageError for what is not a JSON table.
    """
    try:
        changes = parse_json(overrides)
    except ValueError as fault:
        raise UsageError(f"--hf-overrides {overrides!r} is not JSON: {fault}") from fault
    if not isinstance(changes, dict):
        raise UsageError(f'--hf-overrides {overrides!r} is not a table; write {{"rope_parameters": {{...}}}}')

    def merge(into: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        for key, value in changes.items():
            inside = into.get(key)
            into[key] = merge(inside, value) if isinstance(value, dict) and isinstance(inside, dict) else value
        return into

    laid = copy.deepcopy(dict(raw))
    for key, value in changes.items():
        if key not in ("rope_parameters", "rope_scaling") or not isinstance(value, dict):
            merge(laid, {key: value})
            continue
        if key == "rope_scaling" and value.get("rope_theta") is None:
            raise UsageError(
                "--hf-overrides set rope_scaling without rope_theta: transformers 5 then has the base null, with which "
                "vLLM computes nothing; give rope_parameters, with rope_theta in it"
            )
        # vLLM puts such a table in place of the whole that transformers made of the file: base and share are lost too.
        for name in ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"):
            laid.pop(name, None)
        usual = {"rope_type": value.get("type", "default"), "rope_theta": 10000.0}
        by_kind = any(isinstance(inside, dict) for inside in value.values())
        laid["rope_parameters"] = value if by_kind else {**usual, **value}
    return laid
