"""The size of a model is known before it is built, and what does not fit is told in a sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clockhands.errors import ConfigError
from clockhands.machine import format_bytes
from clockhands.model import PRESETS, Transformer, TransformerConfig, make_preset
from clockhands.model.side_schemes import avoid_large_tables, build_side
from clockhands.model.size import count_bytes, count_parameters, find_memory_fault
from clockhands.scheme_pages.variants import complete_options
from clockhands.schemes import CATALOGUE
from tests.model.tiny import core

FLAGS = ("norm_bias", "embedding_norm", "output_bias", "output_transform", "attention_bias", "ffn_bias", "gated")
OPTIONS: dict[str, dict[str, Any]] = {"axial": {"sizes": [4, 4]}}


def built(config: TransformerConfig) -> int:
    """The independent truth: the parameters of the model itself."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_counted_as_they_are_built(name: str) -> None:
    config = make_preset(name, {"source_vocab_size": 8000})
    assert count_parameters(config) == built(config)


@settings(max_examples=60)
@given(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["encoder-decoder", "decoder", "encoder"]),
            "vocab_size": st.integers(1, 50),
            "d_model": st.sampled_from([16, 32]),
            "head_dim": st.sampled_from([None, 8]),
            "num_kv_heads": st.sampled_from([None, 1, 2]),
            "d_ff": st.integers(1, 40),
            "encoder_layers": st.integers(0, 3),
            "decoder_layers": st.integers(0, 3),
            "norm": st.sampled_from(["pre", "post", "output", "sandwich"]),
            "query_key_norm": st.sampled_from(["none", "head", "joint"]),
            "final_norm": st.sampled_from([None, True, False]),
            "norm_kind": st.sampled_from(["layer", "rms"]),
            "token_scale": st.sampled_from(["sqrt", "one", "learned"]),
            "tying": st.sampled_from(["three-way", "target", "none"]),
            "encoder": st.sampled_from(
                ["rope", "learned", "shaw", {"scheme": "sinusoidal", "combine": "project", "width": 6}]
            ),
            "decoder": st.sampled_from(["rope", "learned", "t5", "deberta"]),
            **{flag: st.booleans() for flag in FLAGS},
        }
    )
)
def test_every_option_is_counted_as_it_is_built(changes: dict[str, Any]) -> None:
    config = core(**changes)
    assert count_parameters(config) == built(config)


@pytest.mark.parametrize("scheme", sorted(CATALOGUE))
def test_every_scheme_is_counted_without_storage_as_with_it(scheme: str) -> None:
    """What is looked at in place of a large scheme has the parameters and the promises of the scheme."""
    kind = "decoder"
    try:
        config = core(kind=kind, decoder={"scheme": scheme, **complete_options(scheme)})
    except ConfigError as fault:
        pytest.skip(f"{scheme} needs options: {fault}")
    with torch.device("meta"):
        hollow = config.build_schemes("decoder").at_input
    whole = config.build_schemes("decoder").at_input
    assert {n: p.shape for n, p in hollow.named_parameters()} == {n: p.shape for n, p in whole.named_parameters()}
    assert hollow.declares == whole.declares and hollow.hooks() == whole.hooks()
    assert count_parameters(config) == built(config)


def test_a_large_table_is_looked_at_without_storage() -> None:
    config = core(kind="decoder", decoder={"scheme": "learned", "max_length": 10**12})
    state = torch.get_rng_state()
    for tried, is_large in ((config, True), (core(decoder="learned"), False)):
        position, sizes = tried.decoder, tried.get_sizes("decoder")
        with avoid_large_tables(position, sizes):
            table = next(build_side(position, 1, sizes).at_input.parameters())
        assert table.is_meta == is_large
    assert torch.equal(torch.get_rng_state(), state)
    fault = find_memory_fault(config)
    assert fault is not None and f"{count_parameters(config):,} parameters" in fault and "TiB of memory" in fault


SIZES = (
    *("vocab_size", "source_vocab_size", "d_model", "num_heads", "num_kv_heads", "head_dim", "d_ff"),
    *("encoder_layers", "decoder_layers"),
)


@pytest.mark.parametrize(("name", "value"), [(name, 10**11) for name in SIZES] + [("d_model", 10**7)])
def test_a_size_beyond_every_machine_is_a_fault_at_once(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}, but must be from [01] to [0-9,]+"):
        core(**{name: value, "tying": "none"})


def test_numbers_that_no_tensor_can_have_are_a_fault() -> None:
    with pytest.raises(
        ConfigError, match=r"encoder: learned\.max_length is \d+, but must be a whole number of at most 64 bits"
    ):
        core(encoder={"scheme": "learned", "max_length": 10**30})
    with pytest.raises(ConfigError, match="encoder: learned cannot be built with these sizes and options: "):
        core(encoder={"scheme": "learned", "max_length": 2**62})


@pytest.mark.parametrize(
    "changes",
    [
        {"latent_width": 12},
        {"latent_width": 12, "latent_query_width": 10, "shared_key_dim": 4, "value_dim": 6, "attention_bias": True},
        {"experts": 4, "experts_per_token": 2},
        {"experts": 4, "router": "sigmoid", "shared_expert_width": 9, "expert_width": 7, "expert_layers": (1,)},
        {"first_norm": False},
    ],
)
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder", "encoder"])
def test_layers_of_known_models_are_counted_as_they_are_built(kind: str, changes: dict[str, Any]) -> None:
    config = core(kind=kind, **changes)
    assert count_parameters(config) == built(config)


def test_what_does_not_fit_is_told_with_both_numbers() -> None:
    config = make_preset("paper-base")
    needed = count_bytes(config)
    assert find_memory_fault(config, available=needed) is None
    fault = find_memory_fault(config, available=needed - 1)
    assert fault is not None
    assert f"{count_parameters(config):,} parameters and needs {format_bytes(needed)} of memory to be used" in fault
    assert f"{format_bytes(needed - 1)} are free" in fault
    assert count_bytes(config, training=True) > 3 * needed
    assert "to be trained" in (find_memory_fault(config, training=True, available=needed) or "")
    assert count_bytes(config, bytes_per_parameter=2) < needed


def test_many_narrow_layers_are_not_free() -> None:
    """Of 2,000 layers of one channel the Python objects are what takes the memory."""
    config = core(d_model=1, num_heads=1, d_ff=1, encoder="none", decoder="none", decoder_layers=2_000)
    assert count_bytes(config) > 2**27
    assert find_memory_fault(config, available=2**27) is not None
