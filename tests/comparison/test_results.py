"""A comparison as one document."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clockhands.comparison.results import Comparison
from clockhands.errors import DataError
from tests.comparison.planted import results


def test_results_are_one_document_and_back() -> None:
    made = results(seeds=2)
    assert Comparison.from_json(made.to_json()) == made
    older = replace(made, fingerprint="0123")
    assert "plan:0123" in Comparison.from_json(older.to_json()).signature, "a new option changes no old signature"
    assert json.loads(made.to_json())["signature"] == made.signature
    with pytest.raises(DataError, match="no results of a comparison"):
        Comparison.from_json("{}")
