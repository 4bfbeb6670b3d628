"""What is wrong with the positional encoding of a side: one sentence, whatever raises it."""

from __future__ import annotations

import pytest

from clockhands.model.config_fields import TransformerFields
from clockhands.model.position_faults import find_scheme_faults
from clockhands.model.scheme_factory import SchemeFactory


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
