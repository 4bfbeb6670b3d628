"""The form of the temperature that Llama 4 has, and those that it has not."""

from __future__ import annotations

import pytest

from clockhands.schemes import Temperature


def test_only_the_form_of_llama_4_has_keys_for_its_configuration() -> None:
    assert Temperature(form="floor", coefficient=0.2, length=64).to_hf_config() == {
        "attn_temperature_tuning": True,
        "attn_scale": 0.2,
        "floor_scale": 64,
    }


@pytest.mark.parametrize("scheme", [Temperature(form="log"), Temperature(form="constant", factor=4.0)])
def test_the_other_forms_are_in_no_model_of_transformers(scheme: Temperature) -> None:
    assert scheme.to_hf_config() is None
