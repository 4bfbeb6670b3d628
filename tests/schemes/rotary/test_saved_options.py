"""Files that were saved while a spectrum had defaults for every option still mean what they meant."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.errors import ConfigError
from clockhands.model.huggingface_config import ClockhandsConfig
from clockhands.schemes import RoPE
from clockhands.schemes.rotary.saved_options import add_trained_length, complete_saved_position, lacks_trained_length

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
    assert lacks_trained_length(options) == ("original_length" in added)


@pytest.mark.parametrize("table", [None, "rope", 3, [{"spectrum": "yarn"}], {"spectrum": ["yarn"]}])
def test_what_is_no_table_of_options_comes_back_as_it_is(table: object) -> None:
    assert complete_saved_position(table) == table


YARN = {"spectrum": "yarn", "factor": 4.0}
WITH = {**YARN, "original_length": 64}


@pytest.mark.parametrize(
    ("position", "completed"),
    [
        ({"scheme": "rope", **YARN}, {"scheme": "rope", **WITH}),
        ({"scheme": "rope", **YARN, "original_length": 8}, None),
        ({"scheme": "rope", "options": YARN}, {"scheme": "rope", "options": WITH}),
        ({"scheme": "rope", "encoder": YARN}, {"scheme": "rope", "encoder": WITH}),
        ({"scheme": "rope", "original_length": 8, "encoder": YARN}, None),
        ({"scheme": "rope", "spectrum": "linear", "factor": 4.0}, None),
        ({"scheme": "alibi", **YARN}, None),
        (
            {"layers": ["a", {"schemes": [{"scheme": "rope", **YARN}]}], "kinds": {"a": {"scheme": "rope", **YARN}}},
            {"layers": ["a", {"schemes": [{"scheme": "rope", **WITH}]}], "kinds": {"a": {"scheme": "rope", **WITH}}},
        ),
    ],
)
def test_the_trained_length_goes_where_a_spectrum_asks_for_it(position: Any, completed: Any) -> None:
    assert add_trained_length(position, 64) == (position if completed is None else completed)


def test_an_older_configuration_opens_as_the_plain_rope_that_it_was() -> None:
    older = {**TINY, "decoder": {"scheme": "rope", "options": {"spectrum": "yarn"}}}
    config = ClockhandsConfig.from_dict({"transformer": older, "transformers_version": "4.57.0"})
    scheme = config.transformer_config.build_schemes("decoder").at_input
    assert isinstance(scheme, RoPE)
    torch.testing.assert_close(scheme.frequencies(), RoPE(8).frequencies())
    with pytest.raises(ConfigError, match=r"rope\.factor is not given"):
        ClockhandsConfig(transformer=older)
