"""Engines: the ways to translate with a trained encoder-decoder, by name.

``ENGINES[name](model, compute_type)`` is an ``Engine``, which generates a text for each source. To add an engine, write
its class in a module of this package and name it below.
"""

from __future__ import annotations

from clockhands.catalogue import Catalogue, import_later
from clockhands.generation.engines.engine import DecodedSequence, DecodingOptions, Engine

ENGINES: Catalogue[type[Engine]] = Catalogue(
    "engine",
    {
        "clockhands": import_later("clockhands.generation.engines.clockhands", "ClockhandsEngine"),
        "ctranslate2": import_later("clockhands.generation.engines.ctranslate", "CTranslate2Engine"),
    },
)
"""The engines by name. The first is the default, and runs every encoder-decoder."""

__all__ = ["ENGINES", "DecodedSequence", "DecodingOptions", "Engine"]
