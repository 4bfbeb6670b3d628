"""What a variant costs, and what is matched."""

from __future__ import annotations

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook

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


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp32", torch.float32)])
def test_a_step_is_timed_in_the_precision_of_the_trials(precision: str, dtype: torch.dtype) -> None:
    """On a processor that emulates bf16 a step takes twenty times as long, which a plan has to tell before."""
    seen = set()

    def note(module: torch.nn.Module, _: object, y: object) -> None:
        if isinstance(module, torch.nn.Linear) and isinstance(y, torch.Tensor):
            seen.add(y.dtype)

    hook = register_module_forward_hook(note)
    try:
        measure_costs(plan(vary={"training.precision": [precision], "model.d_ff": [32, 64]}))
    finally:
        hook.remove()
    assert seen == {dtype}
