"""The frequencies in plain Python are those of the rotary scheme on tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clockhands.explanation.rotation import Rotation
from clockhands.schemes.rotary.spectra import make_spectrum

FACTORS = tuple(1.0 + 0.1 * pair for pair in range(16))
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": ({}, {}),
    "linear": ({"factor": 4.0}, {"factor": 4.0}),
    "dynamic": ({"factor": 4.0, "original_length": 512}, {"factor": 4.0, "original_length": 512}),
    "yarn": ({"factor": 8.0, "original_length": 512}, {"factor": 8.0, "original_length": 512}),
    "llama3": ({"factor": 8.0, "original_length": 512}, {"factor": 8.0, "original_length": 512}),
    "proportional": ({"share": 0.3}, {"share": 0.3}),
    "longrope": (
        {"factors": FACTORS, "long_factors": FACTORS[::-1], "original_length": 512},
        {"short_factor": FACTORS, "long_factor": FACTORS[::-1], "original_length": 512, "factor": 2.0},
    ),
}


@pytest.mark.parametrize("length", [100, 2000])
@pytest.mark.parametrize("rule", CASES)
def test_equals_the_spectrum_of_the_scheme(rule: str, length: int) -> None:
    ours, theirs = CASES[rule]
    rotation = Rotation(32, 32, 10000.0, rule=rule, **ours)  # type: ignore[arg-type]
    spectrum = make_spectrum(rule, 32, theirs)
    truth = spectrum.frequencies(32, 10000.0, torch.tensor([length]) if spectrum.depends_on_length else None)
    assert rotation.frequencies(length) == pytest.approx(truth.flatten().tolist(), rel=1e-12, abs=0)


@given(
    base=st.floats(10.0, 1e9), factor=st.floats(1.0, 64.0), length=st.integers(64, 1 << 20), truncate=st.booleans(),
    pairs=st.integers(2, 64),
)  # fmt: skip
def test_yarn_equals_the_spectrum_for_any_numbers(
    base: float, factor: float, length: int, truncate: bool, pairs: int
) -> None:
    rotation = Rotation(2 * pairs, 2 * pairs, base, "yarn", factor, length, truncate=truncate)
    spectrum = make_spectrum("yarn", 2 * pairs, {"factor": factor, "original_length": length, "truncate": truncate})
    truth = spectrum.frequencies(2 * pairs, base).tolist()
    assert rotation.frequencies() == pytest.approx(truth, rel=1e-12, abs=0)
