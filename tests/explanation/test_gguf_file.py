"""GGUF files are written by its own library; what is read back means what llama.cpp makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clockhands.errors import CheckpointError
from clockhands.explanation.gguf_file import read_gguf, read_metadata


def write(path: Path, architecture: str = "llama", factors: np.ndarray | None = None, **values: Any) -> Path:
    """A file with the settings of a model of 2 layers and 64 channels a head, and no weights."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(values.pop("context", 32768))
    writer.add_block_count(values.pop("layers", 2))
    writer.add_embedding_length(512)
    writer.add_head_count(8)
    for name, value in values.items():
        getattr(writer, f"add_{name}")(value)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_plain_rotation(tmp_path: Path) -> None:
    positions = read_gguf(write(tmp_path / "a.gguf", rope_freq_base=500000.0))
    rotation = positions.layers[0].rotation
    assert rotation is not None
    assert (rotation.base, rotation.channels, rotation.pairing) == (500000.0, 64, "interleaved")
    assert (len(positions.layers), positions.claimed_length) == (2, 32768)


def test_a_file_without_a_base_gets_ten_thousand(tmp_path: Path) -> None:
    rotation = read_gguf(write(tmp_path / "a.gguf")).layers[0].rotation
    assert rotation is not None
    assert (rotation.base, rotation.origin["base"]) == (10000.0, "llama.cpp's default")


def test_llama_3_has_its_rule_in_a_tensor(tmp_path: Path) -> None:
    """The converter writes what each frequency is divided by; together they are the rule of Llama 3.1."""
    from clockhands.explanation.rotation import Rotation

    truth = Rotation(64, 64, 500000.0, "llama3", 8.0, 8192)
    plain = Rotation(64, 64, 500000.0).frequencies()
    factors = np.array([a / b for a, b in zip(plain, truth.frequencies(), strict=True)], dtype=np.float32)
    rotation = read_gguf(write(tmp_path / "a.gguf", factors=factors, rope_freq_base=500000.0)).layers[0].rotation
    assert rotation is not None
    assert rotation.frequencies() == pytest.approx(truth.frequencies(), rel=1e-6)


@pytest.mark.parametrize(
    ("architecture", "log_multiplier", "amplitude", "logit_factor"),
    [
        ("qwen3", None, 1 + 0.1 * np.log(16), 1.0),  # nothing said: YaRN's own
        ("mistral3", 1.0, 1.0, 1.0),  # mscale 1 over mscale_all_dim 1
        ("deepseek2", 0.0707, 1.0, (1 + 0.0707 * np.log(16)) ** 2),  # written as a tenth of it
    ],
)
def test_amplitude_of_yarn(
    tmp_path: Path, architecture: str, log_multiplier: float | None, amplitude: float, logit_factor: float
) -> None:
    values: dict[str, Any] = {
        "rope_scaling_type": gguf.RopeScalingType.YARN, "rope_scaling_factor": 16.0, "rope_scaling_orig_ctx_len": 2048,
    }  # fmt: skip
    values |= {"rope_scaling_yarn_log_mul": log_multiplier} if log_multiplier else {}
    rotation = read_gguf(write(tmp_path / "a.gguf", architecture, **values)).layers[0].rotation
    assert rotation is not None
    assert (rotation.rule, rotation.factor, rotation.original_length) == ("yarn", 16.0, 2048)
    assert rotation.amplitude == pytest.approx(amplitude, rel=1e-6)
    assert rotation.logit_factor == pytest.approx(logit_factor, rel=1e-6)


def test_windows_are_listed_or_known_from_the_code(tmp_path: Path) -> None:
    listed = read_gguf(
        write(tmp_path / "a.gguf", layers=4, sliding_window=512, sliding_window_pattern=[True, True, False, True])
    )
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


def test_metadata_are_those_that_the_library_wrote(tmp_path: Path) -> None:
    values, factors = read_metadata(write(tmp_path / "a.gguf", rope_freq_base=500000.0))
    assert (values["general.architecture"], values["llama.rope.freq_base"], factors) == ("llama", 500000.0, ())
