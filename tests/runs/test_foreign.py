"""Foreign configurations are refused where their positions are not understood."""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.errors import CheckpointError
from clockhands.runs import refuse_unknown_positions

UNKNOWN: dict[str, Any] = {"rope_type": "spiral", "factor": 2.0}


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ({"rope_scaling": {"type": "spiral"}}, "rope_scaling.type"),
        ({"rope_parameters": {"full_attention": UNKNOWN}}, "rope_parameters.full_attention.rope_type"),
        ({"text_config": {"rope_scaling": UNKNOWN}}, "text_config.rope_scaling.rope_type"),
        (
            {"text_config": {"rope_parameters": {"full_attention": UNKNOWN}}},
            "text_config.rope_parameters.full_attention.rope_type",
        ),
    ],
)
def test_an_unknown_rope_type_is_named_wherever_it_lies(raw: dict[str, Any], key: str) -> None:
    with pytest.raises(CheckpointError, match=f"there sets {key} = 'spiral'; the rope types understood are .*yarn"):
        refuse_unknown_positions(raw, "there")


def test_known_rope_types_and_those_of_images_pass() -> None:
    refuse_unknown_positions({"text_config": {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}}, "there")
    refuse_unknown_positions({"vision_config": {"rope_parameters": UNKNOWN}, "notes": {"rope_type": "spiral"}}, "there")
