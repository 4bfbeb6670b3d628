"""What a variant costs, and what is matched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook

from clockhands.comparison.cost import Overheads, estimate_plan, estimate_trial, measure_costs, measure_overheads
from clockhands.comparison.plan import make_plan
from clockhands.comparison.results import Cost
from clockhands.errors import ConfigError, ShortTextError
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


OVERHEADS = Overheads(worker=10.0, begin=3.0, step=0.01, validation=2.0, scoring=5.0, passes=0.04, text=7.0)


def cost(steps: int, seconds: float) -> Cost:
    return Cost(parameters=1, steps=steps, flops=1, seconds=seconds, changes={})


def test_a_trial_is_its_beginning_its_steps_its_evaluations_and_its_scoring() -> None:
    """100 steps evaluated at 30, 60, 90 and the last; at 25, 50, 75 and the last; and at the last alone."""
    assert estimate_trial(cost(100, 0.04), OVERHEADS, 30) == pytest.approx(3 + 100 * 0.05 + 4 * 2 + 5)
    assert estimate_trial(cost(100, 0.04), OVERHEADS, 25) == pytest.approx(3 + 100 * 0.05 + 4 * 2 + 5)
    assert estimate_trial(cost(100, 0.04), OVERHEADS, None) == pytest.approx(3 + 100 * 0.05 + 2 + 5)
    slower = estimate_trial(cost(100, 0.12), OVERHEADS, None)
    assert slower == pytest.approx(3 + 100 * 0.13 + 3 * (2 + 5)), "it is scored and validated more slowly"
    inside = replace(OVERHEADS, inside=11.0, during=0.5)
    assert estimate_trial(cost(100, 0.04), inside, 30) == pytest.approx(3 + 100 * 0.05 + 4 * 2.5 + 5 + 11)


def test_trials_go_to_the_worker_that_is_free() -> None:
    """Two seeds of 10 and 24 seconds (evaluated at 4 and 6 steps): of two workers one takes both short ones first."""
    overheads = replace(OVERHEADS, validation=0.5, scoring=0.0, passes=1.0)
    made, costs = plan(), {"sinusoidal": cost(6, 1.0), "learned": cost(6, 3.0)}
    assert [estimate_trial(costs[name], overheads, 4) for name in costs] == pytest.approx([10.06, 24.06])
    assert estimate_plan(made, costs, overheads) == pytest.approx(10 + 2 * (10.06 + 24.06))
    assert estimate_plan(made, costs, overheads, workers=2) == pytest.approx(10 + 10.06 + 10.06 + 24.06)
    assert estimate_plan(made, costs, overheads, workers=4) == pytest.approx(10 + 24.06)


def test_a_worker_prepares_the_text_again_where_the_next_trial_has_another() -> None:
    """Two seeds with a text each: one worker prepares the second text once, of two only the one that changes."""
    overheads = replace(OVERHEADS, validation=0.0, scoring=0.0, step=0.0)
    costs = {name: cost(1, 1.0) for name in ("sinusoidal", "learned")}
    redrawn = plan(redraw_text=True)
    assert estimate_plan(redrawn, costs, overheads) == pytest.approx(10 + 4 * 4 + 7)
    assert estimate_plan(plan(), costs, overheads) == pytest.approx(10 + 4 * 4)
    assert estimate_plan(redrawn, costs, overheads, workers=2) == pytest.approx(10 + 2 * 4 + 7)
    varied = plan(vary={"data.adjectives": [0.1, 0.2]}, seeds=1)
    assert estimate_plan(varied, {name: cost(1, 1.0) for name in ("0.1", "0.2")}, overheads) == pytest.approx(
        10 + 8 + 7
    )


def test_a_machine_is_busy_if_the_measurement_had_less_than_a_processor() -> None:
    assert [replace(OVERHEADS, share=share).busy for share in (1.0, 0.85, 0.5)] == [False, False, True]


@pytest.mark.slow
def test_every_part_of_a_trial_is_measured() -> None:
    made = plan()
    costs = measure_costs(made)
    overheads = measure_overheads(made, costs)
    assert overheads.worker > 0 and overheads.validation > 0 and overheads.scoring > 0
    assert overheads.begin >= 0 and overheads.text > 0 and 0 < overheads.share <= 1
    assert overheads.passes == costs[made.baseline].seconds and overheads.passes + overheads.step > 0


def test_a_table_that_ends_before_the_longest_windows_does_not_stop_the_measurement(tmp_path: Path) -> None:
    files = {split: str(tmp_path / f"{split}.txt") for split in ("train", "test", "validation")}
    for file in files.values():
        Path(file).write_text("abcdefgh\n" * 100)
    recipe = {
        "data": {"corpus": "text", **files},
        "tokenizer": {"kind": "character"},
        "model": {"preset": "tiny", "kind": "decoder", "decoder_layers": 1},
        "position": {"scheme": "learned", "max_length": 20},
        "batches": {"window": 8},
        "training": {"max_steps": 2, "device": "cpu"},
    }
    made = make_plan(recipe, vary={"position.max_length": [20, 40]})
    cost = Cost(parameters=1, steps=2, flops=1, seconds=0.01, changes={})
    costs = {variant.name: cost for variant in made.variants}
    assert measure_overheads(made, costs).scoring > 0
    Path(files["test"]).write_text("abc\n")
    with pytest.raises(ShortTextError, match="less than one window"):  # and so would every trial
        measure_overheads(made, costs)
