"""Configurations that were validated, by their tables: transformers copies and rereads one many times for a model."""

from __future__ import annotations

import json
from typing import Any

from clockhands.model.config import TransformerConfig

__all__ = ["MAX_ENTRIES", "remember", "validate"]

MAX_ENTRIES = 64
_VALIDATED: dict[str, TransformerConfig] = {}


def validate(table: Any, source: str = "config.transformer") -> TransformerConfig:
    """Return the configuration of a table, validated once for all tables that are equal. Raises ConfigError."""
    try:
        key = json.dumps(table, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return TransformerConfig.from_dict(table, source)  # not JSON, so from_dict says what is wrong
    if key not in _VALIDATED:
        remember(TransformerConfig.from_dict(table, source), table)
    return _VALIDATED[key]


def remember(config: TransformerConfig, table: Any) -> None:
    """Keep a validated configuration for whoever asks for that table; the oldest gives way."""
    if len(_VALIDATED) >= MAX_ENTRIES:
        del _VALIDATED[next(iter(_VALIDATED))]
    _VALIDATED[json.dumps(table, sort_keys=True)] = config
