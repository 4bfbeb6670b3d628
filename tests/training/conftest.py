"""The text of the tiny recipe, prepared once."""

from __future__ import annotations

import pytest

from clockhands.training import Recipe, TrainingData, prepare
from tests.training.tiny import tables


@pytest.fixture(scope="session")
def material() -> TrainingData:
    return prepare(Recipe.from_tables(tables()))
