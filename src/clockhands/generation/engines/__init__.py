"""Engines: the ways to translate with a trained encoder-decoder, by name: token ids of sources in, of translations out.

``ENGINES[name](model, compute_type)`` is an ``Engine``, which generates a text for each source.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import torch

from clockhands.catalogue import Catalogue, import_later
from clockhands.generation.engines.engine import (
    DecodedSequence,
    DecodingOptions,
    Engine,
    get_end_tokens,
    get_start_token,
)

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsPreTrainedModel

__all__ = [
    "ENGINES",
    "DecodedSequence",
    "DecodingOptions",
    "Engine",
    "choose_engine",
    "get_end_tokens",
    "get_start_token",
]

ENGINES: Catalogue[type[Engine]] = Catalogue(
    "engine",
    {
        "transformers": import_later("clockhands.generation.engines.huggingface", "TransformersEngine"),
        "ctranslate2": import_later("clockhands.generation.engines.ctranslate", "CTranslate2Engine"),
    },
)
"""The engines by name. The first runs every encoder-decoder."""


def choose_engine(model: ClockhandsPreTrainedModel, beam: int) -> str:
    """Choose the faster engine of two that write the same: ``ctranslate2`` where it serves, else ``transformers``.

    It serves greedy search on a CPU with float32 weights, for models that it can express. Its beams stop earlier than
    those of ``generate`` and may write other texts; which of two searches is used must not follow from the scheme.
    """
    if beam > 1 or model.device.type != "cpu" or next(model.parameters()).dtype != torch.float32:
        return "transformers"
    if importlib.util.find_spec("ctranslate2") is None:
        return "transformers"
    from clockhands.generation.engines.ctranslate import list_obstacles

    serves = get_end_tokens(model) and not list_obstacles(model.transformer)
    return "ctranslate2" if serves else "transformers"
