"""The ceiling of a plan is that of its baseline, and says whether it is exact."""

from __future__ import annotations

import pytest

from clockhands.comparison.ceiling_finding import describe_ceiling, find_plan_ceiling
from clockhands.comparison.plan import make_plan
from clockhands.data import Ceiling

DATA = {"corpus": "numbers", "largest": 9999, "train": 2000, "validation": 20, "test": 20, "longer": 0}


def test_the_tokenizer_of_the_baseline_decides() -> None:
    recipe = {"data": DATA, "model": {"preset": "tiny"}, "training": {"max_steps": 1}}
    vary = {"tokenizer.kind": ["bpe", "character"]}
    pairs = find_plan_ceiling(make_plan(recipe, vary=vary, baseline="bpe"))
    letters = find_plan_ceiling(make_plan(recipe, vary=vary, baseline="character"))
    assert pairs.low > 0.8 > 0.5 > letters.high


def test_an_exact_ceiling_has_no_interval() -> None:
    exact = describe_ceiling(Ceiling(0.216, 0.216, 0.216, "all"))
    assert (exact.value, exact.interval, exact.unit) == (pytest.approx(21.6), None, "%")
    drawn = describe_ceiling(Ceiling(0.5, 0.4, 0.6, "10 drawn"))
    assert drawn.interval == (40.0, 60.0) and drawn.verdict == Ceiling(0.5, 0.4, 0.6, "10 drawn").sentence
