"""Which schemes a variant uses, and of which it can say something, in plans that are written here."""

from __future__ import annotations

from typing import Any

import pytest
from scheme_use import read_uses

from clockhands.comparison.plan import Plan, Variant, make_plan
from tests.training.tiny import tables

WINDOWS = {"local": {"schemes": ["rope", {"scheme": "window", "left": 3}]}}
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "alone": {"position.scheme": "rope"},
    "other options": {"position.amplitude": 2.0},
    "together": {
        "position.scheme": "composition",
        "position.schemes": ["rope", {"scheme": "window", "left": 3}, "sinks"],
    },
    "by layers": {"position.scheme": "none", "position.layers": ["local", "none"], "position.kinds": WINDOWS},
    "one side": {"position.encoder.scheme": "none"},
    "not in every layer": {"position.scheme": "rope", "position.skip_every": 2},
    "another rate": {"training.learning_rate": 0.02},
    "another rate too": {"position.scheme": "alibi", "training.learning_rate": 0.02},
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    recipe = tables()
    recipe["model"] = {**recipe["model"], "encoder_layers": 2, "decoder_layers": 2}
    return make_plan(recipe, variants=[Variant(name, changes) for name, changes in VARIANTS.items()], seeds=2,
                     budget={"steps": 6})  # fmt: skip


@pytest.mark.parametrize(
    ("variant", "used", "told"),
    [
        ("base", "sinusoidal", "sinusoidal"),
        ("alone", "rope", "rope"),
        ("other options", "sinusoidal", "sinusoidal"),
        ("together", "composition rope window sinks", "composition rope window sinks"),
        ("by layers", "composition rope window none", "composition rope window none"),
        ("one side", "none sinusoidal", "none"),
        ("not in every layer", "rope none", "rope none"),
        ("another rate", "sinusoidal", ""),
        ("another rate too", "alibi", ""),
    ],
)
def test_schemes_are_read_from_the_plan(plan: Plan, variant: str, used: str, told: str) -> None:
    use = read_uses(plan)[variant]
    assert (use.used, use.compared) == ({*used.split()}, {*told.split()})


def test_schemes_are_named_by_side_where_sides_differ(plan: Plan) -> None:
    uses = read_uses(plan)
    assert uses["together"].words == "rope + window + sinks"
    assert uses["by layers"].words == "rope + window | none"
    assert uses["one side"].words == "encoder: none, decoder: sinusoidal"
