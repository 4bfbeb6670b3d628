"""Files that were saved while spectra and schemes had defaults for every option still mean what they meant."""

from __future__ import annotations

import pytest
import torch

from clockhands.errors import ConfigError
from clockhands.model.huggingface_config import ClockhandsConfig
from clockhands.schemes import DualChunk, FoPE, ReRoPE, RoPE, SelfExtend
from clockhands.schemes.rotary.saved_options import complete_saved_position

TINY = {"kind": "decoder", "vocab_size": 9, "d_model": 16, "num_heads": 2, "d_ff": 8, "decoder_layers": 1}


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ({"spectrum": "yarn"}, {"factor": 1.0, "original_length": 2048}),
        ({"spectrum": "yarn", "factor": 4.0}, {"original_length": 2048}),
        ({"spectrum": "linear"}, {"factor": 1.0}),
        ({"spectrum": "llama3"}, {"original_length": 8192}),
        ({"spectrum": "dynamic", "factor": 2.0, "original_length": 64}, {}),
        ({"spectrum": "proportional"}, {}),
        ({"base": 500.0}, {}),
    ],
)
def test_what_a_file_leaves_out_is_what_it_meant(options: dict[str, object], added: dict[str, object]) -> None:
    assert complete_saved_position({"scheme": "rope", **options}) == {"scheme": "rope", **options, **added}
    nested = {"decoder": {"scheme": "rope", "options": options}, "d_model": 16}
    assert complete_saved_position(nested) == {
        "decoder": {"scheme": "rope", "options": {**options, **added}},
        "d_model": 16,
    }


OLDER = [
    ("fope", {}, {"original_length": 512}),
    ("fope", {"std": 0.5, "original_length": 40}, {}),
    ("dual-chunk", {}, {"original_length": 4096}),
    ("dual-chunk", {"chunk": 3}, {"original_length": 4096}),
    ("rerope", {"factor": 2.0}, {"window": 512, "original_length": None}),
    ("rerope", {"window": 600}, {"original_length": None}),
    ("self-extend", {}, {"window": 512, "original_length": None}),
    ("self-extend", {"window": 16, "original_length": 64}, {}),
    ("self-extend", {"original_length": 64}, {}),
    ("alibi", {}, {}),
]
"""What files of earlier versions say of a scheme, and what that meant in them besides."""


@pytest.mark.parametrize(("scheme", "options", "added"), OLDER)
def test_a_scheme_has_the_trained_length_that_its_file_meant(
    scheme: str, options: dict[str, object], added: dict[str, object]
) -> None:
    """In each form that a scheme is written in: a side, options in a table, layers, kinds, parts, a name alone."""
    told, wanted = {"scheme": scheme, **options}, {"scheme": scheme, **options, **added}
    assert complete_saved_position(told) == wanted
    assert complete_saved_position(wanted) == wanted
    nested = {"decoder": {"scheme": scheme, "options": options}}
    assert complete_saved_position(nested) == {"decoder": {"scheme": scheme, "options": {**options, **added}}}
    lists = {"scheme": "none", "layers": ["a", {"schemes": [told, "window"]}, "..."], "kinds": {"a": told}}
    assert complete_saved_position(lists) == {
        "scheme": "none",
        "layers": ["a", {"schemes": [wanted, "window"]}, "..."],
        "kinds": {"a": wanted},
    }
    name = wanted if added else scheme
    if not options:
        assert complete_saved_position({"layers": [scheme]}) == {"layers": [name]}
        assert complete_saved_position({"encoder": scheme, "cross": scheme}) == {"encoder": name, "cross": name}


def test_the_name_of_a_kind_of_layer_is_no_scheme() -> None:
    table = {"scheme": "none", "layers": ["fope", "rope"], "kinds": {"fope": {"scheme": "window", "left": 2}}}
    assert complete_saved_position(table) == table


def test_an_older_configuration_opens_as_what_was_trained() -> None:
    """Without the key: FoPE and dual chunks have the length of their defaults, the others the window of theirs."""
    for scheme, made in (
        ("fope", FoPE(2, 8, original_length=512)),
        ("dual-chunk", DualChunk(8, original_length=4096)),
        ("rerope", ReRoPE(8, window=512)),
        ("self-extend", SelfExtend(8, window=512)),
    ):
        older = {**TINY, "decoder": {"scheme": scheme, "options": {}}}
        config = ClockhandsConfig.from_dict({"transformer": older, "transformers_version": "4.57.0"})
        opened = config.transformer_config.build_schemes("decoder").at_input
        assert type(opened) is type(made)
        for name in ("original_length", "kept", "waving", "length", "chunk", "window"):
            assert getattr(opened, name, None) == getattr(made, name, None), (scheme, name)
        with pytest.raises(ConfigError, match=r"is not given"):
            ClockhandsConfig(transformer=older)


@pytest.mark.parametrize("table", [None, "rope", 3, [{"spectrum": "yarn"}], {"spectrum": ["yarn"]}])
def test_what_is_no_table_of_options_comes_back_as_it_is(table: object) -> None:
    assert complete_saved_position(table) == table


def test_an_older_configuration_opens_as_the_plain_rope_that_it_was() -> None:
    older = {**TINY, "decoder": {"scheme": "rope", "options": {"spectrum": "yarn"}}}
    config = ClockhandsConfig.from_dict({"transformer": older, "transformers_version": "4.57.0"})
    scheme = config.transformer_config.build_schemes("decoder").at_input
    assert isinstance(scheme, RoPE)
    torch.testing.assert_close(scheme.frequencies(), RoPE(8).frequencies())
    with pytest.raises(ConfigError, match=r"rope\.factor is not given"):
        ClockhandsConfig(transformer=older)
