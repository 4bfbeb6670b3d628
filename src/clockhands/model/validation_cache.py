"""A cache of validated configurations by their tables, as transformers copies and reads a configuration many times."""

from __future__ import annotations

import json
from typing import Any

from clockhands.model.config import TransformerConfig

__all__ = ["MAX_ENTRIES", "get_validated_config", "store_config"]

MAX_ENTRIES = 64
"""Configurations that are kept; one more and the oldest is dropped."""
_CONFIGS: dict[str, TransformerConfig] = {}


def get_validated_config(table: Any, origin: str = "config.transformer") -> TransformerConfig:
    """Return the configuration of a table, validated once for all tables that are equal.

    ``origin``: where the table comes from, for messages. Raises ConfigError.
    """
    try:
        key = json.dumps(table, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return TransformerConfig.from_dict(table, origin)  # not JSON, so from_dict says what is wrong
    if key not in _CONFIGS:
        store_config(TransformerConfig.from_dict(table, origin), table)
    return _CONFIGS[key]


def store_config(config: TransformerConfig, table: Any) -> None:
    """Store a validated configuration under its table; if ``MAX_ENTRIES`` are stored, the oldest is dropped."""
    if len(_CONFIGS) >= MAX_ENTRIES:
        del _CONFIGS[next(iter(_CONFIGS))]
    _CONFIGS[json.dumps(table, sort_keys=True)] = config
