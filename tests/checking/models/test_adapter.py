"""Attributes for a plain module or function: what no check reads is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import clockhands
from clockhands.checking.models.adapter import OPTIONAL, adapt
from clockhands.errors import UsageError
from tests.checking.checks.planted import Correct


@pytest.mark.parametrize(
    ("wrong", "meant"), [("max_lenght", "max_length"), ("casual", "causal"), ("newcache", "new_cache")]
)
def test_an_unknown_attribute_is_refused_with_the_nearest_name(wrong: str, meant: str) -> None:
    message = f"unknown attribute of a model '{wrong}'; did you mean '{meant}'?"
    with pytest.raises(UsageError, match=re.escape(message)):
        adapt(Correct(), **{wrong: 8})
    with pytest.raises(UsageError, match=re.escape(message)):
        clockhands.check(lambda ids: ids, vocabulary=8, **{wrong: 8})


def test_each_known_attribute_is_taken_and_read() -> None:
    """An attribute that no module of the checker names would be taken for nothing."""
    folder = Path(clockhands.__file__).parent / "checking"
    source = "".join(path.read_text("utf8") for path in folder.rglob("*.py") if path.name != "adapter.py")
    assert [name for name in OPTIONAL if f'"{name}"' not in source and f"adapter.{name}" not in source] == []
    adapter = adapt(lambda ids: ids, vocabulary=8, **dict.fromkeys(OPTIONAL, 3))
    assert [getattr(adapter, name) for name in OPTIONAL] == [3] * len(OPTIONAL)
