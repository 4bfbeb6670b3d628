"""Configurations are validated once for all tables that are equal, and only the newest are kept."""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.errors import ConfigError
from clockhands.model import TransformerConfig
from clockhands.model import validation_cache as cache


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_CONFIGS", {})


def test_equal_tables_give_the_same_configuration_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    read = TransformerConfig.from_dict
    monkeypatch.setattr(
        TransformerConfig, "from_dict", lambda table, origin: calls.append(table) or read(table, origin)
    )
    first = cache.get_validated_config({"d_model": 64, "num_heads": 4})
    assert cache.get_validated_config({"num_heads": 4, "d_model": 64}) is first and len(calls) == 1
    assert cache.get_validated_config({"num_heads": 8, "d_model": 64}).num_heads == 8 and len(calls) == 2


def test_the_oldest_configuration_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRIES", 2)
    first, second, third = ({"d_ff": size} for size in (64, 128, 256))
    oldest, kept = cache.get_validated_config(first), cache.get_validated_config(second)
    cache.get_validated_config(third)
    assert cache.get_validated_config(second) is kept
    assert cache.get_validated_config(first) is not oldest and cache.get_validated_config(first) == oldest


@pytest.mark.parametrize("table", [{"d_modle": 64}, {"d_model": {1, 2}}])
def test_a_table_that_is_not_valid_says_where_it_comes_from(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the file has 1 fault"):
        cache.get_validated_config(table, "the file")
