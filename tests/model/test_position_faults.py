"""What is wrong with the positional encoding of a side: one sentence, whatever raises it."""

from __future__ import annotations

import pytest

from clockhands.errors import ConfigError
from clockhands.model.config_fields import TransformerFields
from clockhands.model.position_faults import find_scheme_faults
from clockhands.model.scheme_factory import SchemeFactory
from tests.model.tiny import core


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
def test_whatever_a_scheme_of_somebody_else_raises_is_one_sentence(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: SchemeFactory, config: TransformerFields, side: str) -> None:
        raise kind("no such size\nand much more")

    config = TransformerFields(kind="decoder", vocab_size=50, d_model=32, num_heads=4)
    monkeypatch.setattr(SchemeFactory, "summarise", refuse)
    said = find_scheme_faults(config, "decoder", SchemeFactory())
    assert said == ["decoder: sinusoidal cannot be built with these sizes and options: no such size"]
