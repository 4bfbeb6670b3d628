"""Overrides: whatever their order, the keys on which others depend are set first."""

from __future__ import annotations

from copy import deepcopy
from itertools import permutations
from typing import Any

import pytest

from clockhands.errors import ConfigError
from clockhands.runs.recipe import apply_overrides

TABLES: dict[str, Any] = {
    "data": {"corpus": "numbers", "target": "en"},
    "position": {"scheme": "sinusoidal", "base": 500.0, "combine": "project", "width": 8},
    "training": {"max_steps": 9},
}


def test_the_order_of_overrides_does_not_matter_and_the_tables_stay() -> None:
    overrides = {"position.base": 7.0, "position.scheme": "rope", "position.encoder.scheme": "alibi"}
    before = deepcopy(TABLES)
    results = [apply_overrides(TABLES, dict(order)) for order in permutations(overrides.items())]
    expected = {"scheme": "rope", "base": 7.0, "combine": "project", "width": 8, "encoder": {"scheme": "alibi"}}
    assert all(result["position"] == expected for result in results)
    assert before == TABLES


def test_another_corpus_drops_the_options_of_the_former() -> None:
    assert apply_overrides(TABLES, {"data.corpus": "roles"})["data"] == {"corpus": "roles"}
    assert apply_overrides(TABLES, {"data.corpus": "numbers"})["data"] == TABLES["data"]


def test_every_key_that_cannot_be_set_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(TABLES, {"training.max_step": 3, "trainin.clip": 1, "clip": 1, "training.clip": 2.0})
    assert [fault.partition(": ")[0] for fault in caught.value.faults] == [
        "cannot set 'training.max_step'",
        "cannot set 'trainin.clip'",
        "cannot set 'clip'",
    ]
    assert "did you mean 'max_steps'?" in caught.value.faults[0]
    assert "did you mean 'training'?" in caught.value.faults[1]
