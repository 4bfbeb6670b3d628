"""Reads Mistral's ``params.json`` and the arguments of Megatron, and lays flags of vLLM and llama.cpp over a file."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any, NoReturn

from clockhands.errors import CheckpointError, UsageError
from clockhands.explanation.rotation import Rotation, check_number, temperature_of
from clockhands.explanation.table import Layer, Positions, check_layers
from clockhands.reading import parse_json

__all__ = ["apply_llama_flags", "lay_over", "read_megatron", "read_mistral"]


def read_mistral(raw: Mapping[str, Any], source: str) -> Positions:
    """Read ``params.json`` of Mistral. Pairs are interleaved there; converters to transformers reorder the weights."""

    def read_number(key: str, default: float | None = None, inside: str = "") -> float:
        table = raw.get(inside) or {} if inside else raw
        value = table.get(key, default)
        return check_number(value, f"{inside}.{key}" if inside else key, source)

    width = int(read_number("head_dim", read_number("dim", 0) / max(read_number("n_heads", 1), 1)))
    base = read_number("rope_theta", 10000.0)
    origin = {"base": "rope_theta" if "rope_theta" in raw else "default of Mistral's code", "head_dim": "head_dim"}
    rotation = Rotation(width, width, base, pairing="interleaved", origin=origin)
    if raw.get("yarn"):
        factor = read_number("factor", inside="yarn")
        scaled = raw["yarn"].get("apply_scale", True) is not False
        origin |= {"amplitude": "yarn.apply_scale", "factor": "yarn.factor", "rule": "yarn", "beta_fast": "yarn.beta",
                   "beta_slow": "yarn.alpha", "original_length": "yarn.original_max_position_embeddings"}  # fmt: skip
        rotation = dataclasses.replace(
            rotation,
            rule="yarn",
            factor=factor,
            original_length=int(read_number("original_max_position_embeddings", inside="yarn")),
            beta_fast=read_number("beta", 32.0, inside="yarn"),
            beta_slow=read_number("alpha", 1.0, inside="yarn"),
            amplitude=temperature_of(factor, 1.0) if scaled else 1.0,
        )
    temperature = ""
    if raw.get("llama_4_scaling"):
        beta = read_number("beta", inside="llama_4_scaling")
        length = int(read_number("original_max_position_embeddings", inside="llama_4_scaling"))
        temperature = f"queries × (1 + {beta} ln(1 + ⌊p/{length}⌋)) at position p"
    layers = _make_mistral_layers(
        raw, check_layers(read_number("n_layers", 1), source), rotation=rotation, temperature=temperature
    )
    claimed = raw.get("max_position_embeddings", raw.get("max_seq_len"))
    claimed = int(check_number(claimed, "max_position_embeddings", source)) if claimed is not None else None
    trained = rotation.original_length or claimed
    return Positions(source, "Mistral", "mistral", tuple(layers), trained_length=trained, claimed_length=claimed)


def _make_mistral_layers(raw: Mapping[str, Any], count: int, *, rotation: Rotation, temperature: str) -> list[Layer]:
    """Return ``count`` layers; ``sliding_window`` is one window, or a list of them that repeats."""
    windows = raw.get("sliding_window")
    windows = windows if isinstance(windows, list) else [windows]
    layers = []
    for index in range(count):
        window = windows[index % len(windows)] if windows else None
        kind = "full_attention" if window is None else "sliding_attention"
        layers.append(Layer(kind, rotation, None if window is None else int(window), temperature=temperature))
    return layers


MEGATRON_COUNTS = (
    *("num-layers", "hidden-size", "num-attention-heads", "kv-channels", "qk-pos-emb-head-dim"),
    *("max-position-embeddings", "original-max-position-embeddings"),
)
MEGATRON_NUMBERS = (
    *("rotary-base", "rotary-percent", "rotary-seq-len-interpolation-factor", "rope-scaling-factor"),
    *("rotary-scaling-factor", "beta-fast", "beta-slow", "mscale", "mscale-all-dim"),
)


class _Flags(argparse.ArgumentParser):
    """Flags of another program: those about position are read, others are passed over."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}")


def read_megatron(text: str, source: str) -> Positions:
    """Read the command line of a Megatron-LM training, as text with flags. Comments and other words are passed over.

    Raises CheckpointError without ``--hidden-size``, ``--num-attention-heads`` and ``--num-layers``.
    """
    flags = _Flags(prog=source, add_help=False, allow_abbrev=False)
    for name in MEGATRON_COUNTS:
        flags.add_argument(f"--{name}", type=int)
    for name in MEGATRON_NUMBERS:
        flags.add_argument(f"--{name}", type=float)
    flags.add_argument("--position-embedding-type", default="learned_absolute")
    for name in ("use-rotary-position-embeddings", "rotary-interleaved", "use-rope-scaling", "multi-latent-attention"):
        flags.add_argument(f"--{name}", action="store_true")
    lines = [line.split("#", 1)[0].rstrip().removesuffix("\\") for line in text.splitlines()]
    known, _ = flags.parse_known_args(shlex.split(" ".join(lines)))
    missing = [name for name in ("num_layers", "hidden_size", "num_attention_heads") if getattr(known, name) is None]
    if missing:
        names = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise CheckpointError(f"{source} has no {names}, so it is no command line of a Megatron training")
    kind = "rope" if known.use_rotary_position_embeddings else known.position_embedding_type
    entry = f"a learned table of {known.max_position_embeddings} rows" if kind == "learned_absolute" else ""
    rotation = _make_megatron_rotation(known, kind) if kind in ("rope", "yarn", "mrope") else None
    claimed = known.max_position_embeddings
    trained = rotation.original_length if rotation and rotation.original_length else claimed
    layers = (Layer("full_attention", rotation),) * check_layers(known.num_layers, source)
    return Positions(source, "Megatron", "megatron", layers, entry, trained, claimed)


def _make_megatron_rotation(known: argparse.Namespace, kind: str) -> Rotation:
    width = known.qk_pos_emb_head_dim if known.multi_latent_attention else known.kv_channels
    width = width or known.hidden_size // known.num_attention_heads
    channels = int(width * (known.rotary_percent or 1.0))
    origin = {"base": "--rotary-base", "channels": "--rotary-percent", "head_dim": "--kv-channels"}
    rotation = Rotation(
        width,
        channels,
        known.rotary_base or 10000.0,
        pairing="interleaved" if known.rotary_interleaved or known.multi_latent_attention else "halves",
        origin=origin,
    )
    if known.use_rope_scaling:  # Megatron has Llama 3.1's numbers in its code
        origin |= {"rule": "--use-rope-scaling", "factor": "--rope-scaling-factor"}
        factor = known.rope_scaling_factor or 8.0
        return dataclasses.replace(rotation, rule="llama3", factor=factor, original_length=8192)
    if kind == "yarn" or (known.multi_latent_attention and known.rotary_scaling_factor):
        origin |= {"rule": "--position-embedding-type", "factor": "--rotary-scaling-factor", "amplitude": "--mscale"}
        factor = known.rotary_scaling_factor or 40.0
        mscale, all_dim = (1.0 if value is None else value for value in (known.mscale, known.mscale_all_dim))
        amplitude = temperature_of(factor, mscale) / (temperature_of(factor, all_dim) if all_dim else 1.0)
        return dataclasses.replace(
            rotation,
            rule="yarn",
            factor=factor,
            original_length=known.original_max_position_embeddings or 4096,
            beta_fast=known.beta_fast or 32.0,
            beta_slow=known.beta_slow or 1.0,
            amplitude=amplitude,
        )
    if known.rotary_seq_len_interpolation_factor:
        origin |= {"rule": "--rotary-seq-len-interpolation-factor", "factor": "--rotary-seq-len-interpolation-factor"}
        return dataclasses.replace(rotation, rule="linear", factor=known.rotary_seq_len_interpolation_factor)
    return rotation


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


def apply_llama_flags(positions: Positions, text: str) -> Positions:
    """Return what llama.cpp makes of a file with its flags ``--rope-*`` and ``--yarn-*``.

    A number that is not given is the file's own. Raises UsageError for a flag that is not of this kind.
    """
    flags = _Flags(prog="--llama-flags", add_help=False, allow_abbrev=False)
    flags.add_argument("--rope-scaling", choices=("none", "linear", "yarn"))
    for name in ("rope-scale", "rope-freq-base", "rope-freq-scale", "yarn-ext-factor", "yarn-attn-factor"):
        flags.add_argument(f"--{name}", type=float)
    for name in ("yarn-beta-slow", "yarn-beta-fast"):
        flags.add_argument(f"--{name}", type=float)
    flags.add_argument("--yarn-orig-ctx", type=int)
    known = flags.parse_args(shlex.split(text))
    rotations = {rotation: _apply_flags(rotation, known, positions) for rotation in positions.rotations()}
    layers = tuple(
        dataclasses.replace(layer, rotation=rotations[layer.rotation] if layer.rotation else None)
        for layer in positions.layers
    )
    return dataclasses.replace(positions, layers=layers, source=f"{positions.source} {text}", program="llama.cpp")


def _apply_flags(rotation: Rotation, known: argparse.Namespace, positions: Positions) -> Rotation:
    scale = known.rope_freq_scale or (1 / known.rope_scale if known.rope_scale else None)
    factor = 1 / scale if scale else rotation.factor
    rule = {"none": "default", None: rotation.rule}.get(known.rope_scaling, known.rope_scaling)
    if known.rope_scaling is None and scale and rotation.rule == "default":
        rule = "linear"  # llama.cpp's default for a scale without a type
    changed: dict[str, Any] = {"rule": rule, "factor": 1.0 if rule == "default" else factor}
    origin = dict(rotation.origin)
    for flag, name in (("rope_freq_base", "base"), ("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
        if getattr(known, flag) is not None:
            changed[name], origin[name] = getattr(known, flag), "--" + flag.replace("_", "-")
    if known.rope_scaling is not None:
        origin["rule"] = "--rope-scaling"
    if scale:
        origin["factor"] = "--rope-freq-scale" if known.rope_freq_scale else "--rope-scale"
    if rule == "yarn":
        changed["original_length"] = known.yarn_orig_ctx or rotation.original_length or positions.claimed_length
        origin["original_length"] = "--yarn-orig-ctx" if known.yarn_orig_ctx else "the trained length"
        if rotation.rule != "yarn":
            changed["amplitude"], origin["amplitude"] = temperature_of(factor, 1.0), "0.1 ln(factor) + 1"
    else:
        changed["amplitude"] = 1.0
    if known.yarn_attn_factor is not None:
        # The flag is a factor beside ggml's own, which llama.cpp cancels for a model that says nothing else.
        changed["amplitude"] = changed.get("amplitude", rotation.amplitude) * known.yarn_attn_factor
        origin["amplitude"] = "--yarn-attn-factor"
    return dataclasses.replace(rotation, **changed, origin=origin)
