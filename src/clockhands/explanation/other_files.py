"""Reads ``params.json`` of Mistral, Meta and ExecuTorch, and Megatron's arguments; lays vLLM's overrides over files."""

from __future__ import annotations

import argparse
import ast
import copy
import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from clockhands.errors import CheckpointError, UsageError, show_value
from clockhands.explanation.filled import POSITION
from clockhands.explanation.numbers import MOST_LAYERS, Flags, check_count, check_layers, check_number, split_command
from clockhands.explanation.rotation import Rotation, temperature_of
from clockhands.explanation.table import Layer, Positions
from clockhands.reading import parse_json

EXECUTORCH = (
    *("use_hf_rope", "no_rope_layer_interval", "rope_freq_base", "rope_scale_factor", "partial_rotary_factor"),
    *("attention_qkv_bias", "use_sdpa_with_kv_cache_op", "qk_norm_before_rope", "act_fn"),
)
META = ("multiple_of", "ffn_dim_multiplier", "use_scaled_rope", "nope_layer_interval", "rope_scaling_factor")
"""Keys by which a ``params.json`` is known as ExecuTorch's, then as Meta's; any other is Mistral's."""


class _Params:
    """A ``params.json``; the keys that were asked for are remembered."""

    def __init__(self, raw: Mapping[str, Any], source: str, prefix: str = "") -> None:
        self.raw, self.source, self.prefix, self.used = raw, source, prefix, set[str]()

    def get(self, *names: str) -> Any:
        self.used |= set(names)
        return next((self.raw[name] for name in names if self.raw.get(name) is not None), None)

    def number(self, *names: str, default: float | None = None) -> float:
        """Return the first of some keys that is set. Raises CheckpointError where none is, and for no number."""
        value = self.get(*names)
        if value is None and default is None:
            raise CheckpointError(f"{self.source} has no {self.prefix}{names[0]}")
        return check_number(default if value is None else value, f"{self.prefix}{names[0]}", self.source)

    def count(self, *names: str, default: int | None = None) -> int:
        """Return such a key as a whole number of at least 1."""
        return check_count(self.number(*names, default=default), f"{self.prefix}{names[0]}", self.source)

    def table(self, name: str) -> _Params | None:
        """Return a table inside. Raises CheckpointError for what is none."""
        value = self.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise CheckpointError(f"{self.source} sets {name} = {show_value(value)}, which is not a table")
        return _Params(value, self.source, f"{name}.") if value else None

    def list_unread(self) -> tuple[tuple[str, str], ...]:
        """Return the keys about position that nothing asked for, with their values."""
        return tuple(
            (f"{self.prefix}{key}", show_value(value))
            for key, value in sorted(self.raw.items())
            if POSITION.search(key) and key not in self.used and value is not None
        )


def read_params(raw: Mapping[str, Any], source: str) -> Positions:
    """Read a ``params.json`` of Mistral, Meta or ExecuTorch, each by the rules of its own code."""
    params = _Params(raw, source)
    if any(key in raw for key in EXECUTORCH):
        return _read_meta(params, "ExecuTorch")
    return _read_meta(params, "Meta") if any(key in raw for key in META) else _read_mistral(params)


def _find_width(params: _Params) -> int:
    """Return the channels of a head."""
    if params.get("head_dim") is not None:
        return params.count("head_dim")
    return params.count("dim") // params.count("n_heads")


def _read_meta(params: _Params, program: str) -> Positions:
    """Read the file of Meta, or of ExecuTorch, which has more keys. Pairs are interleaved but for its HF kind."""
    width, halves = _find_width(params), program == "ExecuTorch" and params.get("use_hf_rope") is True
    base = params.number("rope_theta", "rope_freq_base", default=10000.0)
    named = next((key for key in ("rope_theta", "rope_freq_base") if params.raw.get(key) is not None), None)
    usual = "default of ExecuTorch's code" if program == "ExecuTorch" else "default of Llama 2's code"
    share = "partial_rotary_factor" if params.raw.get("partial_rotary_factor") is not None else "all of the head"
    origin = {"base": named or usual, "head_dim": "head_dim", "channels": share}
    channels = int(width * (params.number("partial_rotary_factor", default=1.0) if program == "ExecuTorch" else 1.0))
    rotation = Rotation(width, channels, base, pairing="halves" if halves else "interleaved", origin=origin)
    scaled = params.get("use_scaled_rope") is True
    factor_keys = ("rope_scale_factor",) if program == "ExecuTorch" else ("rope_scaling_factor",)
    fourth = "nope_layer_interval" in params.raw or "moe_args" in params.raw  # Llama 4's code has other numbers
    factor = params.number(*factor_keys, default=16.0 if fourth else 8.0)
    high = params.number("high_freq_factor", "rope_high_freq_factor", default=1.0 if fourth else 4.0)
    if scaled:
        origin_of_factor = factor_keys[0] if params.raw.get(factor_keys[0]) is not None else f"{program}'s code"
        origin |= {"rule": "use_scaled_rope", "factor": origin_of_factor, "original_length": f"{program}'s code"}
        rotation = dataclasses.replace(
            rotation, rule="llama3", factor=factor, original_length=8192, high_frequency_factor=high
        )
    count = check_layers(params.number("n_layers", default=1), "n_layers", params.source)
    key = "no_rope_layer_interval" if program == "ExecuTorch" else "nope_layer_interval"
    every = params.count(key) if params.get(key) else 0
    chunk = params.count("attention_chunk_size") if params.get("attention_chunk_size") else None
    scale, floor = params.number("attn_scale", default=0.1), params.number("floor_scale", default=8192)
    tuned = f"queries × (1 + {scale:g} ln(1 + ⌊(p + 1)/{floor:g}⌋)) at position p"
    tuned = tuned if params.get("attn_temperature_tuning") is True else ""
    layers = []
    for index in range(count):
        if every and (index + 1) % every == 0:
            layers.append(Layer("full_attention", temperature=tuned))
        else:
            layers.append(Layer("chunked_attention" if chunk else "full_attention", rotation, chunk=chunk))
    # What a program was made for, not what the model was trained with: max_seq_len is the size of a cache.
    params.get("max_seq_len", "max_context_len")
    return Positions(
        params.source, program, program, tuple(layers), trained_length=rotation.original_length,
        strange=params.list_unread(),
    )  # fmt: skip


def _read_mistral(params: _Params) -> Positions:
    """Read the file of Mistral. Pairs are interleaved there; converters to transformers reorder the weights."""
    width, base = _find_width(params), params.number("rope_theta", default=10000.0)
    origin = {
        "base": "rope_theta" if "rope_theta" in params.raw else "default of Mistral's code",
        "head_dim": "head_dim",
    }
    rotation = Rotation(width, width, base, pairing="interleaved", origin=origin)
    strange: tuple[tuple[str, str], ...] = ()
    if (yarn := params.table("yarn")) is not None:
        factor = yarn.number("factor")
        scaled = yarn.get("apply_scale") is not False
        origin |= {"amplitude": "yarn.apply_scale", "factor": "yarn.factor", "rule": "yarn", "beta_fast": "yarn.beta",
                   "beta_slow": "yarn.alpha", "original_length": "yarn.original_max_position_embeddings"}  # fmt: skip
        rotation = dataclasses.replace(
            rotation,
            rule="yarn",
            factor=factor,
            original_length=yarn.count("original_max_position_embeddings"),
            beta_fast=yarn.number("beta", default=32.0),
            beta_slow=yarn.number("alpha", default=1.0),
            amplitude=temperature_of(factor, 1.0) if scaled else 1.0,
        )
        strange += yarn.list_unread()
    temperature = ""
    if (scaling := params.table("llama_4_scaling")) is not None:
        beta, length = scaling.number("beta"), scaling.count("original_max_position_embeddings")
        temperature = f"queries × (1 + {beta:g} ln(1 + ⌊p/{length}⌋)) at position p"
        strange += scaling.list_unread()
    count = check_layers(params.number("n_layers", default=1), "n_layers", params.source)
    windows = params.get("sliding_window")
    windows = windows if isinstance(windows, list) and windows else [windows]
    layers = []
    for index in range(count):  # one window, or a list of them that repeats
        window = windows[index % len(windows)]
        window = None if window is None else check_count(window, "sliding_window", params.source)
        kind = "full_attention" if window is None else "sliding_attention"
        layers.append(Layer(kind, rotation, window, temperature=temperature))
    claimed = params.get("max_position_embeddings", "max_seq_len")
    claimed = check_count(claimed, "max_position_embeddings", params.source) if claimed is not None else None
    return Positions(
        params.source, "Mistral", "mistral", tuple(layers), trained_length=rotation.original_length or claimed,
        claimed_length=claimed, strange=strange + params.list_unread(),
    )  # fmt: skip


MEGATRON_COUNTS = (
    *("num-layers", "hidden-size", "num-attention-heads", "kv-channels", "qk-pos-emb-head-dim"),
    *("max-position-embeddings", "original-max-position-embeddings", "yarn-original-max-position-embeddings"),
)
MEGATRON_NUMBERS = (
    *("rotary-base", "rotary-percent", "rotary-seq-len-interpolation-factor", "rope-scaling-factor"),
    *("rotary-scaling-factor", "beta-fast", "beta-slow", "mscale", "mscale-all-dim"),
    *("yarn-rotary-scaling-factor", "yarn-beta-fast", "yarn-beta-slow", "yarn-mscale", "yarn-mscale-all-dim"),
)


def read_megatron(text: str, source: str) -> Positions:
    """Read the command line of a Megatron-LM training, as text with flags. Comments and other words are passed over.

    Raises CheckpointError without ``--hidden-size``, ``--num-attention-heads`` and ``--num-layers``.
    """
    flags = Flags(prog=source, add_help=False, allow_abbrev=False)
    for name in MEGATRON_COUNTS:
        flags.add_argument(f"--{name}", type=int)
    for name in MEGATRON_NUMBERS:
        flags.add_argument(f"--{name}", type=float)
    for name in ("no-rope-freq", "window-size", "window-attn-skip-freq", "rope-type"):
        flags.add_argument(f"--{name}")
    flags.add_argument("--position-embedding-type", default="learned_absolute")
    for name in ("use-rotary-position-embeddings", "rotary-interleaved", "use-rope-scaling", "multi-latent-attention"):
        flags.add_argument(f"--{name}", action="store_true")
    lines = [line.split("#", 1)[0].rstrip().removesuffix("\\") for line in text.splitlines()]
    known, rest = flags.parse_known_args(split_command(" ".join(lines), source))
    missing = [name for name in ("num_layers", "hidden_size", "num_attention_heads") if getattr(known, name) is None]
    if missing:
        names = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise CheckpointError(f"{source} has no {names}, so it is no command line of a Megatron training")
    for name in (*MEGATRON_COUNTS, *MEGATRON_NUMBERS):
        value = getattr(known, name.replace("-", "_"))
        if value is not None:
            check = check_count if name in MEGATRON_COUNTS else check_number
            check(value, f"--{name}", source)
    kind = "rope" if known.use_rotary_position_embeddings else known.position_embedding_type
    rows = known.max_position_embeddings or "an unknown number of"
    entry = f"a learned table of {rows} rows" if kind == "learned_absolute" else ""
    rotation = _make_megatron_rotation(known, kind) if kind in ("rope", "yarn", "mrope") else None
    claimed = known.max_position_embeddings
    trained = rotation.original_length if rotation and rotation.original_length else claimed
    layers = tuple(_make_megatron_layers(known, rotation, source))
    strange = tuple(
        (word, "set") for word in sorted(set(rest)) if word.startswith("--") and MEGATRON_POSITION.search(word)
    )
    return Positions(source, "Megatron", "megatron", layers, entry, trained, claimed, strange=strange)


MEGATRON_POSITION = re.compile("rope|rotary|yarn|window|position-emb|chunk-attention|mrope|no-position|alibi|mscale")
"""What flags about position have in their names."""


def _make_megatron_layers(known: argparse.Namespace, rotation: Rotation | None, source: str) -> Iterator[Layer]:
    """Yield every layer: ``--no-rope-freq`` and ``--window-attn-skip-freq`` name a period, or list all layers."""
    count = check_layers(known.num_layers, "--num-layers", source)
    skipped = _list_flags(known.no_rope_freq, count, "--no-rope-freq", source)
    window = None
    if known.window_size is not None:
        sizes = known.window_size.strip("()[] ").split(",")
        try:
            window = check_count(int(sizes[0]) + 1, "--window-size", source)  # without the token
        except ValueError as fault:
            raise CheckpointError(
                f"{source} sets --window-size {known.window_size!r}, which is no pair of numbers"
            ) from fault
    full = _list_flags(known.window_attn_skip_freq, count, "--window-attn-skip-freq", source)
    for index in range(count):
        # A list says which layers have the window, a period which have none.
        listed = str(known.window_attn_skip_freq or "").lstrip("(").startswith("[")
        inside = window is not None and (full[index] if listed else not full[index])
        kind = "sliding_attention" if inside else "full_attention"
        yield Layer(kind, None if skipped[index] else rotation, window if inside else None)


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


def _make_megatron_rotation(known: argparse.Namespace, kind: str) -> Rotation:
    latent = known.multi_latent_attention
    width = known.qk_pos_emb_head_dim if latent else known.kv_channels
    width = width or (64 if latent else known.hidden_size // known.num_attention_heads)
    percent = 1.0 if known.rotary_percent is None else known.rotary_percent
    base = 10000.0 if known.rotary_base is None else known.rotary_base
    origin = {
        "base": "default of Megatron" if known.rotary_base is None else "--rotary-base",
        "channels": "default of Megatron" if known.rotary_percent is None else "--rotary-percent",
        "head_dim": "--kv-channels" if known.kv_channels else "--hidden-size / --num-attention-heads",
    }
    rotation = Rotation(
        width,
        int(width * percent),
        base,
        pairing="interleaved" if known.rotary_interleaved or latent else "halves",
        origin=origin,
    )
    if known.use_rope_scaling:  # Megatron has Llama 3.1's numbers in its code
        origin_of_factor = "default of Megatron" if known.rope_scaling_factor is None else "--rope-scaling-factor"
        origin |= {"rule": "--use-rope-scaling", "factor": origin_of_factor}
        factor = 8.0 if known.rope_scaling_factor is None else known.rope_scaling_factor
        return dataclasses.replace(rotation, rule="llama3", factor=factor, original_length=8192)
    if kind == "yarn" or (latent and known.rope_type != "rope"):
        return _scale_by_yarn(known, rotation, latent=latent)
    if known.rotary_seq_len_interpolation_factor:
        origin |= {"rule": "--rotary-seq-len-interpolation-factor", "factor": "--rotary-seq-len-interpolation-factor"}
        return dataclasses.replace(rotation, rule="linear", factor=known.rotary_seq_len_interpolation_factor)
    return rotation


def _scale_by_yarn(known: argparse.Namespace, rotation: Rotation, *, latent: bool) -> Rotation:
    """Return a rotation under Megatron's YaRN: that of latent attention, or its flags for the others."""
    own = "" if latent else "yarn_"

    def read(name: str, default: float) -> float:
        values = [getattr(known, f"{own}{name}", None), getattr(known, name, None)]
        return next((value for value in values if value is not None), default)

    factor = read("rotary_scaling_factor", 1.0 if latent else 40.0)
    mscale, all_dim = read("mscale", 1.0), read("mscale_all_dim", 0.0)
    rotation.origin.update(
        rule="latent attention" if latent else "--position-embedding-type",
        factor="--rotary-scaling-factor",
        amplitude="--mscale, --mscale-all-dim",
    )
    if latent and factor == 1:
        return rotation
    return dataclasses.replace(
        rotation,
        rule="yarn",
        factor=factor,
        original_length=int(read("original_max_position_embeddings", 4096)),
        beta_fast=read("beta_fast", 32.0),
        beta_slow=read("beta_slow", 1.0),
        amplitude=temperature_of(factor, mscale) / temperature_of(factor, all_dim),
        logit_factor=temperature_of(factor, all_dim) * temperature_of(factor, all_dim) if latent else 1.0,
    )


def lay_over(raw: Mapping[str, Any], overrides: str) -> dict[str, Any]:
    """Return a configuration with vLLM's ``--hf-overrides`` laid over it: tables within tables are merged.

    Raises UsageError for what is not a JSON table.
    """
    try:
        changes = parse_json(overrides)
    except ValueError as fault:
        raise UsageError(f"--hf-overrides {overrides!r} is not JSON: {fault}") from fault
    if not isinstance(changes, dict):
        raise UsageError(f'--hf-overrides {overrides!r} is not a table; write {{"rope_scaling": {{...}}}}')
    return _merge(copy.deepcopy(dict(raw)), changes)


def _merge(raw: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in changes.items():
        inside = raw.get(key)
        raw[key] = _merge(inside, value) if isinstance(value, dict) and isinstance(inside, dict) else value
    return raw
