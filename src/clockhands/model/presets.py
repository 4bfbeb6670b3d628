"""Configurations by name: each is the fields in which it differs from the defaults of ``TransformerConfig``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clockhands.catalogue import Catalogue
from clockhands.model.config import TransformerConfig

__all__ = ["PRESETS", "make_preset"]

_TUTORIAL_POSITION = {"scheme": "sinusoidal", "layout": "half"}

PRESETS: Catalogue[dict[str, Any]] = Catalogue("preset", {
    # Vaswani et al. 2017, table 3, row "base", with a smaller vocabulary.
    "paper-base": {},
    # The TensorFlow tutorial's Portuguese-to-English model: heads as wide as the model, three separate matrices,
    # dropout on the attention weights and after the feed-forward layers but not after attention, Keras' epsilon.
    "tutorial": {
        "d_model": 128, "num_heads": 8, "head_dim": 128, "d_ff": 512, "encoder_layers": 4, "decoder_layers": 4,
        "norm_eps": 1e-3, "attention_bias": True, "tying": "none", "output_bias": True, "initialisation": "xavier",
        "dropout_places": ("embedding", "attention", "ffn-residual"),
        "encoder": _TUTORIAL_POSITION, "decoder": _TUTORIAL_POSITION,
    },
    # Small enough to train in seconds on a laptop: what the tour and the examples use.
    "tiny": {
        "d_model": 64, "num_heads": 4, "d_ff": 256, "encoder_layers": 2, "decoder_layers": 2, "norm": "pre",
        "dropout": 0.0,
    },
})  # fmt: skip


def make_preset(name: str, overrides: Mapping[str, Any] | None = None) -> TransformerConfig:
    """Make a configuration from the name of a preset and overrides of its fields.

    Raises UnknownNameError for an unknown preset, and ConfigError for overrides that are not valid.
    """
    return TransformerConfig.from_dict({**PRESETS[name], **(overrides or {})}, f"preset {name!r}")
