"""Properties that excuse a difference."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clockhands.checking.verdict.properties import find_property


@pytest.mark.parametrize(("first", "offset"), [(0, False), (1, True), (2, True)])
def test_a_model_that_counts_from_above_zero_has_an_offset(first: int, offset: bool) -> None:
    subject: Any = SimpleNamespace(facts=SimpleNamespace(first=first))
    declared = find_property("positions.explicit", subject)
    assert (declared is not None and "padding_idx + 1" in declared.reason) is offset
