"""Validation of a recipe: a fault that follows from another one is not reported beside it."""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.errors import ConfigError, Fault
from clockhands.model.config import TransformerConfig
from clockhands.runs.recipe import make_recipe

BASE = {"data": {"corpus": "numbers"}, "training": {"max_steps": 9}}


def faults(model: dict[str, Any], **tables: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        make_recipe({**BASE, "model": model, **tables}, {})
    return caught.value.faults


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({"num_heads": "x", "d_model": 12}, "num_heads"),
        ({"head_dim": "x", "num_heads": 7}, "head_dim"),
        ({"num_kv_heads": 3, "num_heads": "x"}, "num_heads"),
        ({"norm": "x", "parallel": True, "kind": "decoder"}, "norm"),
        ({"kind": "x", "parallel": True, "norm": "pre"}, "kind"),
    ],
)
def test_a_value_that_is_wrong_by_itself_is_the_only_fault(model: dict[str, Any], key: str) -> None:
    data = {"data": {"corpus": "stdlib"}} if model.get("kind") == "decoder" else {}
    (fault,) = faults(model, **data)
    assert fault.startswith(f"model.{key} is 'x', but must be")


def test_faults_that_do_not_follow_from_each_other_are_all_reported() -> None:
    position = {"combine": "concatenate", "width": 600}
    found = faults({"dropout": 7.0, "activation": "x"}, position=position)
    assert set(found) == {
        "model.dropout is 7.0, but must be from 0 to below 1",
        "model.activation is 'x', but must be one of 'relu', 'gelu', 'gelu-tanh', 'silu', 'clamped-silu', 'identity'",
        "position.width (d_p) is 600, but d_model is 512; d_p must leave channels to the tokens",
    }


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        ({"d_model": 10, "num_heads": 4}, {"d_model", "num_heads", "head_dim"}),
        ({"num_heads": 8, "num_kv_heads": 3}, {"num_kv_heads", "num_heads"}),
        ({"kind": "decoder", "parallel": True}, {"parallel", "norm"}),
        ({"norm": "pre", "parallel": True}, {"parallel", "kind"}),
        ({"source_vocab_size": 9}, {"tying", "kind", "vocab_size", "source_vocab_size"}),
        (
            {"kind": "decoder", "decoder": {"scheme": "sinusoidal", "combine": "concatenate", "width": 8}},
            {"tying", "kind", "d_model"},
        ),
    ],
)
def test_a_fault_between_fields_names_every_field_that_could_mend_it(table: dict[str, Any], keys: set[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        TransformerConfig.from_dict(table)
    (fault,) = [fault for fault in caught.value.faults if isinstance(fault, Fault)]
    assert set(fault.keys) == keys
