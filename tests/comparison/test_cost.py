"""What a variant costs, and what is matched."""

from __future__ import annotations

import pytest

from clockhands.comparison.cost import measure_costs
from clockhands.errors import ConfigError
from tests.comparison.planted import plan


def test_parameters_are_matched_and_what_is_learned_is_paid_for() -> None:
    wide = plan(match="parameters", vary={"model.d_ff": [32, 64]})
    costs = measure_costs(wide)
    assert costs["64"].changes == {"model.d_ff": 32}
    assert costs["64"].parameters == costs["32"].parameters


def test_compute_and_tokens_become_steps() -> None:
    costs = measure_costs(plan(match="compute", vary={"model.d_ff": [32, 512]}, budget={"steps": 100}))
    small, large = costs["32"], costs["512"]
    assert small.steps == 100
    assert abs(large.steps * large.flops / (small.steps * small.flops) - 1) < 0.03
    by_tokens = measure_costs(plan(budget={"tokens": 1600.0}))["learned"]
    assert 8 <= by_tokens.steps <= 30  # 16 sentences of 3 to 10 words a step


def test_other_test_items_are_refused_before_anything_is_trained() -> None:
    with pytest.raises(
        ConfigError, match=r"variant '1' is tested on other items than '0' \(20 and 20; the first that d"
    ):
        measure_costs(plan(vary={"data.seed": [0, 1]}))
    with pytest.raises(ConfigError, match=r"variant '18' is tested on other items than '20' \(18 and 20; "):
        measure_costs(plan(vary={"data.test": [20, 18]}))
