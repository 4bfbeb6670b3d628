"""GGUF files are written by its own library; what is read back means what llama.cpp makes of it.

The oracle is the arithmetic of llama.cpp, written down from its source: ``llama_context`` (src/llama-context.cpp) and
``rope_yarn`` (ggml/src/ggml-cpu/ops.cpp).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clockhands.errors import CheckpointError, UsageError
from clockhands.explanation import compare, read_positions
from clockhands.explanation.huggingface import read_huggingface
from clockhands.explanation.llama_cpp import read_gguf, read_settings
from clockhands.explanation.llama_cpp_settings import apply_llama_flags


def write(
    path: Path, architecture: str = "llama", factors: np.ndarray | dict[str, Any] | None = None, **values: Any
) -> Path:
    """A file with the settings of a model of 2 layers and 64 channels a head, and no weights."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(values.pop("context", 32768))
    writer.add_block_count(values.pop("layers", 2))
    writer.add_embedding_length(512)
    writer.add_head_count(8)
    for name, value in values.items():
        getattr(writer, f"add_{name}")(value)
    for name, tensor in factors.items() if isinstance(factors, dict) else [("rope_freqs.weight", factors)]:
        if tensor is not None:
            writer.add_tensor(name, np.asarray(tensor, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_sizes_pairs_and_a_base_that_is_not_in_the_file(tmp_path: Path) -> None:
    positions = read_gguf(write(tmp_path / "a.gguf"))
    rotation = positions.layers[0].rotation
    assert rotation is not None and (rotation.channels, rotation.pairing) == (64, "interleaved")
    assert (rotation.base, rotation.origin["base"]) == (10000.0, "llama.cpp's default")
    assert (len(positions.layers), positions.claimed_length) == (2, 32768)


def test_llama_3_has_its_rule_in_a_tensor(tmp_path: Path) -> None:
    """The converter writes what each frequency is divided by; together they are the rule of Llama 3.1."""
    from clockhands.explanation.rotation import Rotation

    truth = Rotation(64, 64, 500000.0, "llama3", 8.0, 8192)
    plain = Rotation(64, 64, 500000.0).frequencies()
    factors = np.array([a / b for a, b in zip(plain, truth.frequencies(), strict=True)], dtype=np.float32)
    rotation = read_gguf(write(tmp_path / "a.gguf", factors=factors, rope_freq_base=500000.0)).layers[0].rotation
    assert rotation is not None
    assert rotation.frequencies() == pytest.approx(truth.frequencies(), rel=1e-6)


def by_llama_cpp(
    fields: dict[str, Any], model: str, factors: Any = 1.0, length: int = 32768, width: int = 64
) -> tuple[np.ndarray, float, float]:
    """Radians per token, factor of cosines and sines, and factor of all logits, from the settings of a file."""

    def get(key: str, default: Any) -> Any:
        return fields.get(f"{model}.{key}", default)

    channels = get("rope.dimension_count", width)
    kind, scale = get("rope.scaling.type", "linear"), get("rope.scaling.factor", get("rope.scale_linear", 0.0))
    freq_scale = 1.0 if scale == 0 or kind == "none" else 1.0 / scale
    ext = get("rope.scaling.yarn_ext_factor", -1.0)
    ext = (1.0 if kind == "yarn" else 0.0) if ext < 0 else ext
    attn, log = get("rope.scaling.yarn_attn_factor", 1.0), np.log(1 / freq_scale)

    def mscale(multiplier: float) -> float:
        return 1.0 if freq_scale >= 1 else 0.1 * multiplier * log + 1

    multiplier = get("rope.scaling.yarn_log_multiplier", 0.0) / (0.1 if model == "deepseek2" else 1.0)
    if ext != 0:
        above = multiplier if model == "deepseek2" and multiplier != 0 else 1.0
        attn = mscale(above) / mscale(multiplier) if multiplier else mscale(1.0)
        attn /= 1 + 0.1 * log
    attn *= get("rope.scaling.attn_factor", 1.0)
    original = attn * (1 + 0.1 * log)
    whole = (original * (1 + 0.1 * multiplier * log)) ** 2 if model == "deepseek2" else 1.0

    pair = np.arange(channels // 2)
    base = get("rope.freq_base", 10000.0)
    outer = base ** (-2.0 * pair / channels) / np.asarray(factors, dtype=np.float32)
    theta = freq_scale * outer
    if ext != 0:
        turns = get("rope.scaling.original_context_length", length) / (2 * np.pi)
        low, high = (
            channels * np.log(turns / get(f"rope.scaling.yarn_beta_{end}", default)) / (2 * np.log(base))
            for end, default in (("fast", 32.0), ("slow", 1.0))
        )
        low, high = max(0, np.floor(low)), min(channels - 1, np.ceil(high))
        mix = ext * (1 - np.clip((pair - low) / max(0.001, high - low), 0, 1))
        theta = theta * (1 - mix) + outer * mix
        attn *= 1 + 0.1 * log
    return theta, float(attn), float(whole)


YARN = {"rope_scaling_type": gguf.RopeScalingType.YARN, "rope_scaling_factor": 16.0, "rope_scaling_orig_ctx_len": 2048}
LINEAR = {"rope_scaling_type": gguf.RopeScalingType.LINEAR, "rope_scaling_factor": 8.0}
SOME = np.linspace(1, 4, 32)
READINGS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "plain": ("llama", None, {}),
    "a factor without a type is linear": ("llama", None, {"rope_scaling_factor": 4.0}),
    "type none takes no factor": ("llama", None, {**LINEAR, "rope_scaling_type": gguf.RopeScalingType.NONE}),
    "linear": ("llama", None, LINEAR),
    "linear over the factors of a tensor": ("llama", SOME, LINEAR),
    "yarn over the factors of a tensor": ("qwen3", SOME, YARN),
    "yarn": ("qwen3", None, YARN),
    "yarn, a factor of the amplitude": ("qwen3", None, {**YARN, "rope_scaling_attn_factors": 1.3}),
    "yarn takes no yarn_attn_factor": ("grok", None, {**YARN, "rope_scaling_yarn_attn_factor": 1.7}),
    "without a ramp yarn_attn_factor counts": (
        "grok", None, {**YARN, "rope_scaling_yarn_attn_factor": 1.7, "rope_scaling_yarn_ext_factor": 0.0}),
    "betas": ("grok", None, {**YARN, "rope_scaling_yarn_beta_fast": 16.0, "rope_scaling_yarn_beta_slow": 2.0}),
    "a ramp times 64": ("laguna", None, {**YARN, "rope_scaling_yarn_ext_factor": 64.0}),
    "half a ramp": ("laguna", None, {**YARN, "rope_scaling_yarn_ext_factor": 0.5}),
    "a ramp under type linear": ("laguna", None, {**LINEAR, "rope_scaling_yarn_ext_factor": 1.0}),
    "mistral3, mscale 1 over mscale_all_dim 1": ("mistral3", None, {**YARN, "rope_scaling_yarn_log_mul": 1.0}),
    "deepseek2, written as a tenth": ("deepseek2", None, {**YARN, "rope_scaling_yarn_log_mul": 0.0707}),
    "deepseek2, nothing said": ("deepseek2", None, YARN),
    "deepseek2, linear": ("deepseek2", None, LINEAR),
}  # fmt: skip


@pytest.mark.parametrize("name", READINGS)
def test_a_file_means_what_the_arithmetic_of_llama_cpp_makes_of_it(name: str, tmp_path: Path) -> None:
    model, factors, values = READINGS[name]
    path = write(tmp_path / "a.gguf", model, factors, rope_freq_base=1e6, **values)
    fields = {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}
    if model == "grok":  # the default of its code, not of the others
        fields.setdefault("grok.rope.scaling.yarn_beta_fast", 8.0)
    rotation = read_gguf(path).layers[0].rotation
    theta, amplitude, whole = by_llama_cpp(fields, model, 1.0 if factors is None else factors)
    assert rotation is not None
    assert rotation.frequencies() == pytest.approx(theta, rel=1e-6)
    assert (rotation.amplitude, rotation.logit_factor) == pytest.approx((amplitude, whole), rel=1e-6)


def test_half_a_ramp_by_hand(tmp_path: Path) -> None:
    """8 channels, base 10,000, 2,048 tokens: pair 0 turns 326 times and is kept by half, 1 / (2 · 16) + 1 / 2."""
    path = write(tmp_path / "a.gguf", "laguna", **YARN, rope_dimension_count=8, rope_scaling_yarn_ext_factor=0.5)
    rotation = read_gguf(path).layers[0].rotation
    assert rotation is not None
    difference = compare(
        read_gguf(path), read_gguf(write(tmp_path / "b.gguf", "laguna", **YARN, rope_dimension_count=8))
    )
    assert difference is not None and [cause[0] for cause in difference.causes] == ["extrapolation"]
    assert rotation.frequencies()[0] == pytest.approx(0.5 / 16 + 0.5)
    assert rotation.frequencies()[3] == pytest.approx(1e-3 / 16)
    assert rotation.amplitude == pytest.approx(1 + 0.1 * np.log(16))


def test_keys_that_llama_cpp_asks_for_in_the_code_of_a_few_change_nothing_elsewhere(tmp_path: Path) -> None:
    few = {"rope_scaling_yarn_beta_fast": 16.0}
    plain = read_gguf(write(tmp_path / "a.gguf", "mistral3", **YARN))
    asked = read_gguf(write(tmp_path / "b.gguf", "mistral3", **YARN, **few))
    assert asked.unread == () and compare(plain, asked) is not None
    other = read_gguf(write(tmp_path / "c.gguf", "qwen3", **YARN, **few))
    assert other.unread == ("rope.scaling.yarn_beta_fast",)
    assert compare(other, read_gguf(write(tmp_path / "d.gguf", "qwen3", **YARN))) is None


def test_lists_of_longrope_are_in_two_tensors(tmp_path: Path) -> None:
    """As Phi-3 is converted: no type, the factor of the amplitude, and a list for each side of the original length."""
    short, long = np.linspace(1, 2, 32), np.linspace(1, 40, 32)
    factors = {"rope_factors_short.weight": short, "rope_factors_long.weight": long}
    path = write(tmp_path / "a.gguf", "phi3", factors, rope_scaling_orig_ctx_len=4096,
                 rope_scaling_attn_factors=1.118034, sliding_window=2047)  # fmt: skip
    layer = read_gguf(path).layers[0]
    raw = {"model_type": "phi3", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2,
           "max_position_embeddings": 32768, "original_max_position_embeddings": 4096, "rope_scaling": {
               "type": "longrope", "short_factor": short.tolist(), "long_factor": long.tolist()}}  # fmt: skip
    truth = read_huggingface(raw, "f").layers[0].rotation
    assert layer.rotation is not None and truth is not None
    assert layer.window is None  # llama.cpp has no windows of Phi-3 (its pull request 13676)
    for length in (4096, 4097):
        assert layer.rotation.frequencies(length) == pytest.approx(truth.frequencies(length), rel=1e-6)
    assert layer.rotation.amplitude == pytest.approx(truth.amplitude, rel=1e-6)


def test_windows_are_listed_or_known_from_the_code(tmp_path: Path) -> None:
    listed = read_gguf(
        write(tmp_path / "a.gguf", "gemma2", layers=4, sliding_window=512,
              sliding_window_pattern=[True, True, False, True])
    )  # fmt: skip
    assert [layer.window for layer in listed.layers] == [512, 512, None, 512]
    gemma = read_gguf(
        write(tmp_path / "b.gguf", "gemma3", layers=6, sliding_window=512, rope_freq_base=1e6,
              rope_scaling_type=gguf.RopeScalingType.LINEAR, rope_scaling_factor=8.0)
    )  # fmt: skip
    assert [layer.window for layer in gemma.layers] == [512] * 5 + [None]
    assert [(layer.rotation.base, layer.rotation.factor) for layer in (gemma.layers[0], gemma.layers[5])] == [  # type: ignore[union-attr]
        (10000.0, 1.0),
        (1e6, 8.0),
    ]
    olmo = read_gguf(write(tmp_path / "c.gguf", "olmo2", layers=4, sliding_window=512, **YARN)).layers
    assert [layer.rotation and layer.rotation.rule for layer in olmo] == ["default"] * 3 + ["yarn"]


def test_what_is_no_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(CheckpointError, match="not a GGUF file"):
        read_gguf(path)
    path.write_bytes(b"GGUF" + (9).to_bytes(4, "little") + bytes(100))
    with pytest.raises(CheckpointError, match="version 9"):
        read_gguf(path)
    with pytest.raises(CheckpointError, match="cannot read"):
        read_gguf(tmp_path / "none.gguf")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(place=st.integers(4, 400), value=st.integers(0, 255), cut=st.integers(8, 2000))
def test_a_damaged_file_is_read_or_refused_in_one_sentence(tmp_path: Path, place: int, value: int, cut: int) -> None:
    source = tmp_path / "whole.gguf"
    if not source.exists():
        write(source, rope_freq_base=500000.0, sliding_window_pattern=[True, False], sliding_window=512)
    data = bytearray(source.read_bytes())
    data[min(place, len(data) - 1)] = value
    path = tmp_path / "damaged.gguf"
    path.write_bytes(data[:cut])
    try:
        read_gguf(path)
    except CheckpointError as fault:
        assert "\n" not in str(fault)


RAW: dict[str, Any] = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 1,
                       "max_position_embeddings": 2048}  # fmt: skip
TABLES: dict[str, dict[str, Any]] = {
    "plain": {},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 1024}},
    "llama3": {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                "original_max_position_embeddings": 512}},
}  # fmt: skip
TOLD = {
    "--rope-scale 4": {"rope.scaling.factor": 4.0},
    "--rope-freq-scale 0.25": {"rope.scaling.factor": 4.0},
    "--rope-scaling none": {"rope.scaling.type": "none"},
    "--rope-scaling yarn --rope-freq-scale 0.25": {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0},
    "--rope-scaling yarn --rope-scale 4 --yarn-attn-factor 2": {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0},
    "--yarn-ext-factor 0 --yarn-attn-factor 2": {
        "rope.scaling.yarn_ext_factor": 0.0, "rope.scaling.yarn_attn_factor": 2.0},
    "--rope-freq-base 26000 --yarn-beta-fast -1": {"rope.freq_base": 26000.0},
    "--rope-scaling linear --rope-scale 3 --yarn-ext-factor 0.5 --yarn-orig-ctx 700": {
        "rope.scaling.type": "linear", "rope.scaling.factor": 3.0, "rope.scaling.yarn_ext_factor": 0.5,
        "rope.scaling.original_context_length": 700},
    "--override-kv llama.rope.scaling.attn_factor=float:1.5": {"rope.scaling.attn_factor": 1.5},
}  # fmt: skip


@pytest.mark.parametrize("flags", TOLD)
@pytest.mark.parametrize("table", TABLES)
def test_flags_mean_what_the_arithmetic_of_llama_cpp_makes_of_them(flags: str, table: str, tmp_path: Path) -> None:
    """Over a ``config.json`` as its converter writes it, and over the GGUF file itself."""
    positions = read_huggingface({**RAW, **TABLES[table]}, "f")
    before = positions.rotations()[0]
    written: dict[str, dict[str, Any]] = {
        "linear": {"rope_scaling_type": gguf.RopeScalingType.LINEAR, "rope_scaling_factor": 2.0},
        "yarn": {"rope_scaling_type": gguf.RopeScalingType.YARN, "rope_scaling_factor": 2.0,
                 "rope_scaling_orig_ctx_len": 1024},
    }  # fmt: skip
    factors = None
    if table == "llama3":
        factors = 10000.0 ** (-np.arange(32) / 32) / np.array(before.frequencies())
    path = write(tmp_path / "a.gguf", "llama", factors, context=2048, **written.get(table, {}))
    fields = {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}
    fields |= {f"llama.{key}": value for key, value in TOLD[flags].items()}
    theta, amplitude, _ = by_llama_cpp(fields, "llama", 1.0 if factors is None else factors, length=2048)
    for told in (apply_llama_flags(positions, flags), read_positions(path, llama_flags=flags)):
        rotation = told.rotations()[0]
        assert rotation.frequencies() == pytest.approx(theta, rel=1e-6)
        assert rotation.amplitude == pytest.approx(amplitude, rel=1e-6)
        assert told.program == "llama.cpp"


def test_flags_leave_layers_with_a_window_alone_where_others_have_none(tmp_path: Path) -> None:
    raw = {"model_type": "gemma2", "head_dim": 64, "num_hidden_layers": 2, "max_position_embeddings": 2048}
    config = apply_llama_flags(read_huggingface(raw, "f"), "--rope-freq-base 5000").layers
    file = read_gguf(write(tmp_path / "a.gguf", "gemma2", sliding_window=512), "--rope-freq-base 5000").layers
    for layers in (config, file):
        assert [layer.rotation and layer.rotation.base for layer in layers] == [10000.0, 5000.0]


def test_a_flag_is_named_as_the_cause() -> None:
    positions = read_huggingface(RAW, "f")
    difference = compare(positions, apply_llama_flags(positions, "--rope-freq-base 5000"))
    assert difference is not None and difference.causes[0][2] == "5,000 (--rope-freq-base)"


@pytest.mark.parametrize(
    ("flags", "fault", "told"),
    [
        ("--temp 0", UsageError, "--temp"),
        ("--rope-scale '4", UsageError, "no closing quotation"),
        ("--override-kv llama.rope.freq_base=5", UsageError, "is not KEY=TYPE:VALUE"),
        ("--override-kv llama.rope.freq_base=int:x", UsageError, "gives no int"),
        ("--rope-freq-base nan", CheckpointError, "not a finite number"),
        ("--rope-scale -2", CheckpointError, "at least 0"),
    ],
)
def test_flags_that_mean_nothing_are_refused(flags: str, fault: type[Exception], told: str) -> None:
    with pytest.raises(fault, match=told):
        apply_llama_flags(read_huggingface(RAW, "f"), flags)
    dynamic = read_huggingface({**RAW, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "f")
    with pytest.raises(CheckpointError, match=r"llama\.cpp has no rule 'dynamic'"):
        apply_llama_flags(dynamic, "--rope-scale 2")


def test_flags_over_layers_that_do_not_rotate_or_attend_leave_them() -> None:
    table = read_huggingface({"model_type": "gpt2"}, "f")
    assert apply_llama_flags(table, "--rope-freq-base 5000").layers == table.layers
    mixed = read_huggingface({"model_type": "qwen3_next", "num_hidden_layers": 4}, "f")
    told = apply_llama_flags(mixed, "--rope-freq-base 5000").layers
    assert [layer.attends for layer in told] == [False, False, False, True]
    assert [layer.rotation and layer.rotation.base for layer in told] == [None, None, None, 5000.0]


@pytest.mark.parametrize("width", [2, 64])
def test_an_alpha_that_gives_no_base_is_refused(width: int) -> None:
    values = {"attention.key_length": width, "rope.dimension_count": width, "rope.scaling.alpha": 1e306}
    named = {"general.architecture": "hunyuan_vl", **{f"hunyuan_vl.{key}": value for key, value in values.items()}}
    with pytest.raises(CheckpointError, match=f"gives no base for {width} channels"):
        read_settings(named, {}, "f")
