"""The variants of a grid."""

from __future__ import annotations

from tests.comparison.planted import plan


def test_a_grid_is_every_combination_by_name() -> None:
    made = plan(vary={"position.scheme": ["sinusoidal", "none"], "model.residual": [True, False]})
    names = [variant.name for variant in made.variants]
    assert names[1] == "scheme=sinusoidal, residual=false" and len(names) == 4
    assert made.baseline == names[0]
    assert made.get_recipe(names[3], 2).model.residual is False
    assert made.get_recipe(names[3], 2).training.seed == 2
    assert made.trials[:4] == [(name, 1) for name in names], "a stop leaves whole seeds"
