"""What a variant costs, and what is matched."""

from __future__ import annotations

from clockhands.comparison.cost import measure_costs
from tests.comparison.planted import plan


def test_parameters_are_matched_and_what_is_learned_is_paid_for() -> None:
    wide = plan(match="parameters", vary={"model.d_ff": [32, 64]})
    found = measure_costs(wide)
    assert found["64"].changes == {"model.d_ff": 32}
    assert found["64"].parameters == found["32"].parameters


def test_compute_and_tokens_become_steps() -> None:
    found = measure_costs(plan(match="compute", vary={"model.d_ff": [32, 512]}, budget={"steps": 100}))
    small, large = found["32"], found["512"]
    assert small.steps == 100
    assert abs(large.steps * large.flops / (small.steps * small.flops) - 1) < 0.03
    by_tokens = measure_costs(plan(budget={"tokens": 1600.0}))["learned"]
    assert 8 <= by_tokens.steps <= 30  # 16 sentences of 3 to 10 words a step
