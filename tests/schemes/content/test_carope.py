"""CARoPE beside its oracle: where it is refused."""

from __future__ import annotations

import pytest

from clockhands.errors import ConfigError
from clockhands.model import PositionConfig, TransformerConfig


def test_an_encoder_refuses_it() -> None:
    """Its angles are sums over earlier tokens: what is to the right of a token has no angle to it (section 3)."""
    with pytest.raises(ConfigError, match=r"carope.*causal|causal.*carope"):
        TransformerConfig(vocab_size=9, d_model=32, num_heads=2, kind="encoder", encoder=PositionConfig("carope"))
