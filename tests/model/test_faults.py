"""What contradicts itself in a configuration is refused with the reason, in one sentence, whatever raises it."""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.errors import ConfigError
from clockhands.model import TransformerConfig
from clockhands.model.faults import find_scheme_faults
from clockhands.model.side_schemes import SchemeSummary
from tests.model.tiny import core


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"first_norm": False, "norm": "post"}, "first_norm = false needs norm = 'pre' or 'sandwich'.*norm is 'post'"),
        ({"decoder": {"scheme": "random", "max_length": 2**62}}, "max_length is 4,.*: its table would fit no memory"),
        ({"decoder": {"scheme": "alibi-axes", "axes": 2**60}}, "coordinates; 64 are the most"),
        ({"decoder": {"scheme": "ssmax", "axis": 2**60}}, "coordinates; 64 are the most"),
        ({"value_dim": 8}, "value_dim is 8, and needs latent_width"),
        ({"latent_width": 8, "shared_key_dim": 8}, "shared_key_dim is 8, but must be less than the width of a head, 8"),
        ({"latent_width": 8, "num_kv_heads": 2}, "as many heads of keys as of queries; num_kv_heads is 2"),
        ({"latent_width": 8, "query_key_norm": "head"}, "query_key_norm is 'head', but must be 'none'"),
        ({"experts": 2, "experts_per_token": 3}, "experts_per_token is 3, and there are 2 experts"),
        ({"shared_expert_width": 5}, "shared_expert_width is 5, and there are no experts; set experts"),
        ({"experts": 2, "expert_layers": (2,)}, "expert_layers has 2, and the layers are 0 to 1"),
        ({"experts": 4, "expert_groups": 2}, "expert_groups is 2, which needs router = 'sigmoid'; router is 'softmax'"),
        ({"experts": 4, "expert_groups": 3, "router": "sigmoid"}, "must divide the 4 experts into groups of at least"),
        ({"experts": 4, "expert_groups": 2, "router": "sigmoid", "experts_per_token": 3},
         "expert_groups_per_token is 1, but must be .* so many that the groups have 3 experts together"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        core(kind="decoder", **changes)


def test_rotated_values_of_a_compressed_state_are_refused() -> None:
    rotated = {"scheme": "rope", "fraction": 0.5, "values": True}
    with pytest.raises(
        ConfigError, match=r"decoder: values = true rotates values, and with latent_width \(8\) they are"
    ):
        core(kind="decoder", latent_width=8, shared_key_dim=4, decoder=rotated)
    core(kind="decoder", decoder=rotated)
    core(kind="decoder", latent_width=8, shared_key_dim=4, decoder={**rotated, "values": False})
    core(kind="encoder-decoder", latent_width=8, shared_key_dim=4, encoder="none", decoder="none", cross=rotated)


@pytest.mark.parametrize("kind", [RuntimeError, TypeError, ValueError, ZeroDivisionError, MemoryError])
def test_whatever_a_scheme_of_somebody_else_raises_is_one_sentence(kind: type[Exception]) -> None:
    def refuse(side: str) -> SchemeSummary:
        raise kind("no such size\nand much more")

    config = TransformerConfig(kind="decoder", vocab_size=50, d_model=32, num_heads=4)
    said = find_scheme_faults(config, "decoder", refuse)
    assert said == ["decoder: sinusoidal cannot be built with these sizes and options: no such size"]
