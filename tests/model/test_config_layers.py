"""Options of layers that known models need are options of a configuration like all others."""

from __future__ import annotations

from clockhands.model import TransformerConfig
from clockhands.options import options_of


def test_options_that_are_inherited_are_described() -> None:
    assert options_of(TransformerConfig)["latent_width"].meaning.startswith("keys and values of self-attention")
