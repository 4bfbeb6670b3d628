"""A run of this project is explained from its config.json: the frequencies are those of its scheme."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clockhands.errors import CheckpointError
from clockhands.explanation.own_runs import read_own
from clockhands.model import PositionConfig, TransformerConfig, make_preset
from clockhands.model.huggingface_base import ClockhandsConfig
from clockhands.schemes import RoPE


def written(scheme: str, **options: Any) -> dict[str, Any]:
    """What a run's config.json holds."""
    config = TransformerConfig(
        kind="decoder", vocab_size=10, d_model=64, num_heads=4, d_ff=64, decoder_layers=3,
        decoder=PositionConfig(scheme, options),
    )  # fmt: skip
    raw: dict[str, Any] = json.loads(ClockhandsConfig(transformer=config.to_dict()).to_json_string())
    return raw


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"base": 500000.0, "fraction": 0.5, "layout": "interleaved"},
        {"spectrum": "linear", "factor": 4.0},
        {"spectrum": "ntk", "factor": 4.0},
        {"spectrum": "yarn", "factor": 4.0, "original_length": 256},
        {"spectrum": "llama3", "factor": 4.0, "original_length": 256},
        {"spectrum": "proportional", "share": 0.5},
    ],
)
def test_frequencies_amplitude_and_pairing_are_those_of_the_scheme(options: dict[str, Any]) -> None:
    raw = written("rope")
    raw["transformer"]["decoder"]["options"] = options
    (rotation,) = read_own(raw, "run").rotations()
    scheme = RoPE.from_options(16, **options)
    assert rotation.frequencies() == pytest.approx(scheme.frequencies().tolist(), rel=1e-12, abs=0)
    assert rotation.amplitude == pytest.approx(scheme.spectrum.amplitude())
    assert rotation.pairing == ("interleaved" if options.get("layout") == "interleaved" else "halves")


def test_another_scheme_is_named() -> None:
    positions = read_own(written("sinusoidal"), "run")
    assert positions.entry == "the scheme 'sinusoidal'"
    assert (len(positions.layers), positions.rotations()) == (3, [])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"spectrum": "moebius"}, "moebius"),
        ({"spectrum": "yarn", "ramp": "rotations"}, "ramp"),
        ({"values": True}, "sets options.values = True, which this table cannot say"),
        ({"spectrum": "longrope", "short_factor": 3}, "not a list"),
        ({"spectrum": "linear", "factor": 0}, "give no frequencies"),
        ({"base": -1.0}, "give no frequencies"),
    ],
)
def test_what_the_table_cannot_say_is_refused(options: dict[str, Any], told: str) -> None:
    raw = written("rope")
    raw["transformer"]["decoder"]["options"] = options
    with pytest.raises(CheckpointError, match=told):
        read_own(raw, "run")


def test_a_damaged_run_is_refused() -> None:
    with pytest.raises(CheckpointError, match="no table 'transformer'"):
        read_own({"model_type": "clockhands", "transformer": [1]}, "run")


def test_layers_with_schemes_of_their_own_are_told_layer_by_layer() -> None:
    config = make_preset("tiny", {"kind": "decoder", "decoder_layers": 6, "decoder": {"preset": "gemma-3"}})
    read = read_own({"transformer": config.to_dict()}, "a run")
    assert [layer.window for layer in read.layers] == [512] * 5 + [None]
    bases = [layer.rotation.base for layer in read.layers if layer.rotation is not None]
    assert bases == [10_000.0] * 5 + [1e6] and read.entry == ""
    llama = make_preset("tiny", {"kind": "decoder", "decoder_layers": 4, "decoder": {"preset": "llama-4"}})
    told = read_own({"transformer": llama.to_dict()}, "a run")
    assert [layer.chunk for layer in told.layers] == [8192] * 3 + [None]
    assert told.layers[3].rotation is None and "temperature" in told.layers[3].temperature
    sinks = make_preset("tiny", {"kind": "decoder", "decoder": {"schemes": ["alibi", "sinks", "window"]}})
    beside = read_own({"transformer": sinks.to_dict()}, "a run")
    assert beside.entry == "the schemes 'alibi', 'sinks'" and beside.layers[0].window == 128
