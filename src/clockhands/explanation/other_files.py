"""Reads ``params.json`` of Mistral, Meta, ExecuTorch and DeepSeek, and Megatron's arguments."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.explanation.numbers import (
    MOST_LAYERS,
    MOST_TOKENS,
    Flags,
    Settings,
    check_count,
    check_kinds,
    check_layers,
    split_command,
)
from clockhands.explanation.rotation import Pairing, Rotation, longrope_amplitude, temperature_of
from clockhands.explanation.table import WITHOUT_ATTENTION, Layer, Positions, make_layer

EXECUTORCH = (
    *("use_hf_rope", "no_rope_layer_interval", "rope_freq_base", "rope_scale_factor", "partial_rotary_factor"),
    *("attention_qkv_bias", "use_sdpa_with_kv_cache_op", "qk_norm_before_rope", "act_fn", "layer_types", "norm_type"),
)
THIRD = ("use_scaled_rope", "vision_chunk_size", "nope_layer_interval", "moe_args", "rope_scaling_factor")
"""Keys that Llama 2's code does not take; from Llama 3 on, its base is 500,000 where the file has none."""
META = ("multiple_of", "ffn_dim_multiplier", *THIRD)
"""Keys by which a ``params.json`` is known as ExecuTorch's, then as Meta's; any other is Mistral's."""
NOT_OF_TEXT = re.compile("^(vision_|linear_|qk_norm|v_head_dim|qk_nope_head_dim|max_seq_len$|max_context_len$)")
"""Keys that look like position, and are of pictures, of a norm, of a cache, or of channels that do not rotate."""


def _make_rotation(params: Settings, keys: str, base: float, code: str, pairing: Pairing) -> Rotation:
    """Return plain rotation of the whole head; ``keys``: those of the base, which is else that of the ``code``."""
    width = params.count("qk_rope_head_dim|head_dim")
    if width is None:
        sizes = [check_count(params.number(key), key, params.source) for key in ("dim", "n_heads")]
        width = sizes[0] // sizes[1]
    named = next((key for key in keys.split("|") if params.values.get(key) is not None), f"default of {code}")
    origin = {"base": named, "head_dim": "head_dim", "channels": "all of the head"}
    return Rotation(width, width, params.number(keys, base), pairing=pairing, origin=origin)


def _scale(params: Settings, rotation: Rotation, factor: float, high: float, key: str, code: str) -> Rotation:
    """Return a rotation under Llama 3.1's rule, whose other numbers stand in the code."""
    named = code if params.values.get(key) is None else key
    origin = {"rule": "use_scaled_rope", "factor": named, "original_length": code}
    return rotation.change(origin, rule="llama3", factor=factor, original_length=8192, high_frequency_factor=high)


def read_params(raw: Mapping[str, Any], source: str) -> Positions:
    """Read a ``params.json`` of Mistral, Meta, ExecuTorch or DeepSeek, each by the rules of its own code."""
    params = Settings(raw, source)
    mamba = raw.get("model_type") == "mamba"
    count = check_layers(params.number("n_layers", None if mamba else 1), "n_layers", source)
    if mamba:
        return Positions(source, "Mistral", "mistral", (Layer("mamba", attends=False),) * count)
    if "inter_dim" in raw:
        return _read_deepseek(params, count)
    if any(key in raw for key in EXECUTORCH):
        return _read_executorch(params, count)
    return _read_meta(params, count) if any(key in raw for key in META) else _read_mistral(params, count)


def _read_deepseek(params: Settings, count: int) -> Positions:
    """Read the file of DeepSeek's own code, ``inference/model.py``, which has YaRN for texts beyond 4,096 tokens."""
    rotation = _make_rotation(params, "rope_theta", 1e4, "DeepSeek's code", "interleaved")
    original, most = params.count("original_seq_len", 4096), params.count("max_seq_len", 16384)
    factor, mscale = params.number("rope_factor", 40.0), params.number("mscale", 1.0)
    fast, slow = params.number("beta_fast", 32.0), params.number("beta_slow", 1.0)
    if most > original:  # type: ignore[operator]
        origin = dict.fromkeys(("rule", "factor", "original_length"), "DeepSeek's code")
        rotation = rotation.change(
            origin, rule="yarn", factor=factor, original_length=original, beta_fast=fast, beta_slow=slow,
            logit_factor=temperature_of(factor, mscale) ** 2,
        )  # fmt: skip
    layers = (make_layer(rotation),) * count
    strange = params.list_unread(NOT_OF_TEXT)
    return Positions(params.source, "DeepSeek", "DeepSeek", layers, "", original, most, strange=strange)


def _read_meta(params: Settings, count: int) -> Positions:
    """Read the file of Meta. Llama 4 has layers without rotation, between which attention stays within chunks."""
    raw = params.values
    third = any(key in raw for key in THIRD)
    base, code = (5e5, "Llama 3's code") if third else (1e4, "Llama 2's code")
    rotation = _make_rotation(params, "rope_theta", base, code, "interleaved")
    fourth = any(key in raw for key in ("nope_layer_interval", "moe_args", "rope_scaling_factor"))
    factor = params.number("rope_scaling_factor", 16.0 if fourth else 8.0)
    high = params.number("rope_high_freq_factor", 1.0 if fourth else 4.0)
    if params.get("use_scaled_rope") is True:
        rotation = _scale(params, rotation, factor, high, "rope_scaling_factor", "Meta's code")
    every, chunk = params.count("nope_layer_interval"), params.count("attention_chunk_size")
    scale, floor = params.number("attn_scale", 0.1), params.number("floor_scale", 8192)
    tuned = bool(params.get("attn_temperature_tuning"))  # the first files have a number
    temperature = f"queries × (1 + {scale:g} ln(1 + ⌊(p + 1)/{floor:g}⌋)) at position p" if tuned else ""
    rotating = make_layer(rotation, chunk=chunk)
    still = Layer("full_attention", temperature=temperature)
    layers = tuple(still if every and (index + 1) % every == 0 else rotating for index in range(count))
    return Positions(
        params.source,
        "Meta",
        "Meta",
        layers,
        trained_length=rotation.original_length,
        strange=params.list_unread(NOT_OF_TEXT),
    )


def _read_executorch(params: Settings, count: int) -> Positions:
    """Read the file of ExecuTorch: of its two kinds of rotation, each reads keys of its own."""
    source, halves = params.source, params.get("use_hf_rope") is True
    pairing: Pairing = "halves" if halves else "interleaved"
    rotation = _make_rotation(params, "rope_theta|rope_freq_base", 1e4, "ExecuTorch's code", pairing)
    origin, unread = rotation.origin, list[str]()
    original, claimed = params.count("original_max_position_embeddings"), params.count("max_position_embeddings")
    keys = ("rope_scaling_short_factor", "rope_scaling_long_factor")
    share, scaled = params.number("partial_rotary_factor", 1.0), params.get("use_scaled_rope") is True
    factor, high = params.number("rope_scale_factor", 8.0), params.number("high_freq_factor", 4.0)
    amplitude = params.number("rope_scaling_attention_factor", 0.0)
    if halves:
        short, long = map(params.numbers, keys)
        unread = ["use_scaled_rope"] if scaled else []
        if share != 1:
            origin["channels"] = "partial_rotary_factor"
            rotation = dataclasses.replace(rotation, channels=int(min(rotation.head_dim * share, MOST_TOKENS)))
        if short or long:
            ratio = claimed / original if claimed and original else 1.0
            usual = longrope_amplitude(ratio, original or 1)
            origin |= {"rule": "rope_scaling_short_factor", "amplitude": "√(1 + ln factor / ln original length)"}
            rotation = dataclasses.replace(
                rotation, rule="longrope", factor=ratio, original_length=original, factors=short or long,
                long_factors=long or short, amplitude=amplitude or usual,
            )  # fmt: skip
    else:
        unread = [key for key in ("partial_rotary_factor", *keys) if params.get(key) not in (None, 1)]
        if scaled:
            rotation = _scale(params, rotation, factor, high, "rope_scale_factor", "ExecuTorch's code")
    kinds, every = params.get("layer_types") or ["full_attention"] * count, params.count("no_rope_layer_interval")
    window, base = params.count("sliding_window"), params.number("local_rope_theta", rotation.base)
    near = rotation.change({"base": "local_rope_theta"}, base=base)
    notes = ["ExecuTorch's Llama for Qualcomm leaves layers without rotation; its other code rotates all"] * bool(every)
    if params.get("local_rope_theta") is not None or window:
        notes.append(
            "ExecuTorch's Llama for Qualcomm reads local_rope_theta, sliding_window and layer_types; its other code "
            "rotates every layer of attention by rope_theta and has no window"
        )
    layers = []
    for index, kind in enumerate(check_kinds(kinds, count, source)):
        if any(word in kind for word in (*WITHOUT_ATTENTION, "skip")):
            layers.append(Layer(kind, attends=False))
        elif every and (index + 1) % every == 0:
            layers.append(Layer(kind))
        else:
            sliding = "sliding" in kind
            layers.append(Layer(kind, near if sliding else rotation, window if sliding else None))
    return Positions(
        source, "ExecuTorch", "ExecuTorch", tuple(layers), "", rotation.original_length or claimed, claimed,
        tuple(notes), tuple(unread), params.list_unread(NOT_OF_TEXT),
    )  # fmt: skip


def _read_mistral(params: Settings, count: int) -> Positions:
    """Read the file of Mistral. Pairs are interleaved there; converters to transformers reorder the weights."""
    windows = params.get("sliding_window|_sliding_window")
    windows = windows if isinstance(windows, list) and windows else [windows]
    old = windows != [None] and params.values.get("rope_theta") is None
    # Mistral's code takes 1,000,000 where there is no base; its first versions took 10,000 for models with a window.
    base, code = (1e4, "Mistral's code of models with a window") if old else (1e6, "Mistral's code")
    rotation = _make_rotation(params, "rope_theta", base, code, "interleaved")
    notes = ["later versions of Mistral's code take 1,000,000 for a base that is not in the file"] * old
    latent, tables = params.values.get("qk_rope_head_dim") is not None, []
    if (yarn := params.table("yarn")) is not None:
        factor, tables = yarn.number("factor"), [yarn]
        rotation.origin.update(
            amplitude="yarn.apply_scale", factor="yarn.factor", rule="yarn", beta_fast="yarn.beta",
            beta_slow="yarn.alpha", original_length="yarn.original_max_position_embeddings",
        )  # fmt: skip
        scale = temperature_of(factor, 1.0) if yarn.get("apply_scale") is not False else 1.0
        key = "original_max_position_embeddings"
        rotation = dataclasses.replace(
            rotation, rule="yarn", factor=factor, original_length=check_count(yarn.number(key), key, params.source),
            beta_fast=yarn.number("beta", 32.0), beta_slow=yarn.number("alpha", 1.0),
            # Of latent attention only a slice rotates, and the whole of queries and keys is scaled.
            amplitude=1.0 if latent else scale, logit_factor=scale * scale if latent else 1.0,
        )  # fmt: skip
    temperature = ""
    if (scaling := params.table("llama_4_scaling")) is not None:
        beta, length = scaling.number("beta"), scaling.number("original_max_position_embeddings")
        temperature = f"queries × (1 + {beta:g} ln(1 + ⌊p/{length:.0f}⌋)) at position p"
        tables.append(scaling)
    layers = []
    for index in range(count):  # one window, or a list of them that repeats
        window = windows[index % len(windows)]
        window = None if window is None else check_count(window, "sliding_window", params.source)
        layers.append(make_layer(rotation, window, None, temperature))
    claimed = params.count("max_position_embeddings|max_seq_len")
    return Positions(
        params.source, "Mistral", "mistral", tuple(layers), "", rotation.original_length or claimed, claimed,
        tuple(notes), strange=tuple(row for table in (*tables, params) for row in table.list_unread(NOT_OF_TEXT)),
    )  # fmt: skip


MEGATRON_COUNTS = (
    *("num-layers", "hidden-size", "num-attention-heads", "kv-channels", "qk-pos-emb-head-dim"),
    *("max-position-embeddings", "original-max-position-embeddings", "yarn-original-max-position-embeddings"),
)
MEGATRON_NUMBERS = (
    *("rotary-base", "rotary-percent", "rotary-seq-len-interpolation-factor", "rope-scaling-factor"),
    *("rotary-scaling-factor", "beta-fast", "beta-slow", "mscale", "mscale-all-dim", "yarn-beta-fast"),
    "yarn-beta-slow",
)
MEGATRON_SWITCHES = (
    *("use-rotary-position-embeddings", "rotary-interleaved", "use-rope-scaling", "multi-latent-attention"),
    *("yarn-correction-range-round-to-int", "no-yarn-correction-range-round-to-int"),
)
NEMO = {"rotary-percent": "rotary-percentage", "rotary-seq-len-interpolation-factor": "seq-len-interpolation-factor"}
"""Other names in configurations of NeMo."""
MEGATRON_POSITION = re.compile(
    "rope|rotary|yarn|window|position-emb|chunk-attention|mrope|no-position|alibi|mscale|scale-factor|freq-factor|"
    "old-context"
)
"""What flags about position have in their names."""
MEGATRON_OTHER = re.compile("fusion|fused|loss-scale|^--(no|add)-position-embedding$|relative-attention|vision|indexer")
"""Flags that look so, and change no position: of kernels, of the loss, and of other kinds of positions."""


def _split_megatron(text: str, source: str) -> list[str]:
    """Return the flags of a command, of a script with variables, of YAML, or of the list that a training prints."""
    assigned = dict(re.findall(r"^\s*(?:export\s+)?([A-Za-z_]\w*)(?:=|:\s+)([^\s(]+)\s*(?:#.*)?$", text, re.MULTILINE))

    def fill_in(variable: re.Match[str]) -> str:
        name, usual = variable[1] or variable[3], variable[2]
        value = assigned.get(name, "").strip("\"'")
        if value.startswith("${"):  # a default for what the environment gives: NUM_LAYERS=${NUM_LAYERS:-32}
            usual, value = value.strip("${}").partition("-")[2], ""
        return value or usual or variable[0]

    lines = []
    for line in re.sub(r"\$\{[\w.]*?(\w+)(?::?-([^}]*))?\}|\$(\w+)", fill_in, text).splitlines():
        line = line.split("#", 1)[0].rstrip().removesuffix("\\")
        pair = re.match(r"\s*-{0,2}([A-Za-z][\w-]*)(?::\s+| \.\.+ )(.+)", line)
        if pair is None:
            lines.append(line)
        elif pair[2].strip().lower() not in ("none", "null", "false", "~", ""):
            flag = "--" + pair[1].replace("_", "-")
            lines.append(flag if pair[2].strip().lower() == "true" else f"{flag} '{pair[2].strip(chr(39) + ' ')}'")
    words = split_command(" ".join(lines), source)
    return [part for word in words for part in (word.split() if " --" in word else [word])]  # OPTIONS="--a 1 --b 2"


def read_megatron(text: str, source: str) -> Positions:
    """Read the arguments of a Megatron-LM training: a command line or script, YAML, or what a training prints.

    Comments and other words are passed over. Raises CheckpointError without ``--hidden-size``,
    ``--num-attention-heads`` and ``--num-layers``.
    """
    flags = Flags(prog=source, add_help=False, allow_abbrev=False)
    for name in (*MEGATRON_COUNTS, *MEGATRON_NUMBERS):
        form: type = int if name in MEGATRON_COUNTS else float
        flags.add_argument(f"--{name}", *([f"--{NEMO[name]}"] if name in NEMO else []), type=form)
    for name in ("no-rope-freq", "window-size", "window-attn-skip-freq", "rope-type"):
        flags.add_argument(f"--{name}")
    flags.add_argument("--position-embedding-type", default="learned_absolute")
    for name in MEGATRON_SWITCHES:
        flags.add_argument(f"--{name}", action="store_true")
    known, rest = flags.parse_known_args(_split_megatron(text, source))
    settings = Settings({name.replace("_", "-"): value for name, value in vars(known).items()}, source, "--")
    needed = ("num-layers", "hidden-size", "num-attention-heads")
    if missing := ", ".join(f"--{name}" for name in needed if settings.get(name) is None):
        raise CheckpointError(f"{source} has no {missing}, so it is no command line of a Megatron training")
    for name in MEGATRON_COUNTS:
        settings.count(name)
    for name in MEGATRON_NUMBERS:
        settings.number(name, 0.0)
    kind = "rope" if known.use_rotary_position_embeddings else known.position_embedding_type
    rows = known.max_position_embeddings or "an unknown number of"
    entries = {"learned_absolute": f"a learned table of {rows} rows", "relative": "a bias for each distance (relative)"}
    rotation = _make_megatron_rotation(known, settings, kind) if kind in ("rope", "yarn", "mrope") else None
    claimed = known.max_position_embeddings
    trained = rotation.original_length if rotation and rotation.original_length else claimed
    notes = []
    for flag, value in (("rope-scaling-factor", 8.0), ("rotary-seq-len-interpolation-factor", None)):
        if settings.get(flag) not in (None, value):
            notes.append(f"pretrain_gpt.py of Megatron-LM does not hand --{flag} on to its model; other builders do")
    strange = tuple(
        (word, "set")
        for word in sorted({word.partition("=")[0] for word in rest if word.startswith("--")})
        if MEGATRON_POSITION.search(word) and not MEGATRON_OTHER.search(word)
    )
    layers = tuple(_make_megatron_layers(known, rotation, source))
    return Positions(
        source, "Megatron", "megatron", layers, entries.get(kind, ""), trained, claimed, tuple(notes), strange=strange
    )


def _make_megatron_layers(known: argparse.Namespace, rotation: Rotation | None, source: str) -> Iterator[Layer]:
    """Yield every layer: ``--no-rope-freq`` and ``--window-attn-skip-freq`` name a period, or list all layers."""
    count = check_layers(known.num_layers, "--num-layers", source)
    skipped = _list_flags(known.no_rope_freq, count, "--no-rope-freq", source)
    window = None
    if known.window_size is not None:
        try:
            size = int(known.window_size.strip("()[] ").split(",")[0])
        except ValueError as fault:
            raise CheckpointError(f"{source} sets --window-size {known.window_size!r}, no pair of numbers") from fault
        window = None if size == -1 else check_count(size + 1, "--window-size", source)  # without the token; -1: all
    full = _list_flags(known.window_attn_skip_freq, count, "--window-attn-skip-freq", source)
    # A list says which layers have the window, a period which have none.
    listed = str(known.window_attn_skip_freq or "").lstrip("(").startswith("[")
    for index in range(count):
        yield make_layer(None if skipped[index] else rotation, window if full[index] == listed else None)


def _list_flags(text: str | None, count: int, flag: str, source: str) -> list[bool]:
    """Return a list of Megatron's, "([0]*3+[1])*2", or every n-th of the layers; none where the flag is not set."""
    if text is None:
        return [False] * count
    if text.strip().isdigit():
        every = check_count(int(text), flag, source)
        return [(index + 1) % every == 0 for index in range(count)]

    def read(node: ast.expr) -> Any:
        match node:
            case ast.List(elts) | ast.Tuple(elts):
                return [read(element) for element in elts]
            case ast.Constant(int(value)) if value <= MOST_LAYERS:
                return value
            case ast.BinOp(left, ast.Add(), right):
                return read(left) + read(right)
            case ast.BinOp(left, ast.Mult(), right):
                product = read(left), read(right)
                if not isinstance(product[0], int) and len(product[0]) * product[1] <= MOST_LAYERS:
                    return product[0] * product[1]
        raise ValueError

    try:
        listed = [bool(value) for value in read(ast.parse(text.strip(), mode="eval").body)]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        listed = []
    if len(listed) != count:
        raise CheckpointError(f"{source} sets {flag} {text!r}, which is no list of {count} layers")
    return listed


def _make_megatron_rotation(known: argparse.Namespace, settings: Settings, kind: str) -> Rotation:
    """Return the rotation of Megatron's classes: plain with Llama 3.1's rule, with several axes, YaRN, or latent."""
    latent, source = known.multi_latent_attention, settings.source
    yarn = known.rope_type != "rope" if latent else kind == "yarn"
    if known.rotary_interleaved and (yarn or latent):
        what = "latent attention" if latent else "YaRN"
        raise CheckpointError(f"{source} sets --rotary-interleaved, which Megatron refuses with {what}; leave it out")

    def read(flag: str, default: float, field: str) -> float:
        origin[field] = "default of Megatron" if settings.get(flag) is None else f"--{flag}"
        return settings.number(flag, default)

    origin: dict[str, str] = {}
    width = known.qk_pos_emb_head_dim or 64 if latent else known.kv_channels
    origin["head_dim"] = "--kv-channels" if width else "--hidden-size / --num-attention-heads"
    width = width or known.hidden_size // known.num_attention_heads
    percent, base = read("rotary-percent", 1.0, "channels"), read("rotary-base", 10000.0, "base")
    channels = int(width * percent) if percent < 1 and not yarn else width
    pairing = "interleaved" if known.rotary_interleaved or latent else "halves"
    rotation = Rotation(width, channels, base, pairing=pairing, origin=origin)  # type: ignore[arg-type]
    if latent or yarn:
        factor = read("rotary-scaling-factor", 1.0, "factor")
        mscale, all_dim = read("mscale", 1.0, "amplitude"), read("mscale-all-dim", 0.0, "amplitude")
        slope = temperature_of(factor, all_dim)
        logits = slope * slope if latent else 1.0
        if not yarn or factor == 1:
            return dataclasses.replace(rotation, logit_factor=logits)
        own = "" if latent else "yarn-"
        origin |= {"rule": "latent attention" if latent else "--position-embedding-type"}
        origin["amplitude"] = "--mscale, --mscale-all-dim"
        return dataclasses.replace(
            rotation, rule="yarn", factor=factor, beta_fast=read(f"{own}beta-fast", 32.0, "beta_fast"),
            original_length=int(read(f"{own}original-max-position-embeddings", 4096, "original_length")),
            beta_slow=read(f"{own}beta-slow", 1.0, "beta_slow"), amplitude=temperature_of(factor, mscale) / slope,
            truncate=latent or not known.no_yarn_correction_range_round_to_int, logit_factor=logits,
        )  # fmt: skip
    scaled, divisor = known.use_rope_scaling and kind == "rope", known.rotary_seq_len_interpolation_factor
    if scaled and divisor:
        raise CheckpointError(
            f"{source} sets --use-rope-scaling and --rotary-seq-len-interpolation-factor, which Megatron applies one "
            "after the other; no table here says both: take one out"
        )
    if scaled:  # Megatron has Llama 3.1's other numbers in its code
        factor = read("rope-scaling-factor", 8.0, "factor")
        origin["rule"] = "--use-rope-scaling"
        return dataclasses.replace(rotation, rule="llama3", factor=factor, original_length=8192)
    if divisor:
        origin["rule"] = origin["factor"] = "--rotary-seq-len-interpolation-factor"
        return dataclasses.replace(rotation, rule="linear", factor=divisor)
    return rotation
