"""Options of layers that contradict each other are refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.errors import ConfigError
from tests.model.tiny import core


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"first_norm": False, "norm": "post"}, "first_norm = false needs norm = 'pre' or 'sandwich'.*norm is 'post'"),
        ({"value_dim": 8}, "value_dim is 8, and needs latent_width"),
        ({"latent_width": 8, "shared_key_dim": 8}, "shared_key_dim is 8, but must be less than the width of a head, 8"),
        ({"latent_width": 8, "num_kv_heads": 2}, "as many heads of keys as of queries; num_kv_heads is 2"),
        ({"latent_width": 8, "query_key_norm": "head"}, "query_key_norm is 'head', but must be 'none'"),
        ({"experts": 2, "experts_per_token": 3}, "experts_per_token is 3, and there are 2 experts"),
        ({"shared_expert_width": 5}, "shared_expert_width is 5, and there are no experts; set experts"),
        ({"experts": 2, "expert_layers": (2,)}, "expert_layers has 2, and the layers are 0 to 1"),
        ({"experts": 4, "expert_groups": 2}, "expert_groups is 2, which needs router = 'sigmoid'; router is 'softmax'"),
        ({"experts": 4, "expert_groups": 3, "router": "sigmoid"}, "must divide the 4 experts into groups of at least"),
        (
            {"experts": 4, "expert_groups": 2, "router": "sigmoid", "experts_per_token": 3},
            "expert_groups_per_token is 1, but must be .* so many that the groups have 3 experts together",
        ),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        core(kind="decoder", **changes)
