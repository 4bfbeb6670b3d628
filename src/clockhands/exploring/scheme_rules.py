"""The scheme of a side as the page computes it: its options, and the numbers that follow from them or were learned."""

from __future__ import annotations

from typing import Any

from clockhands.exploring.controls import read_amplitude
from clockhands.model.config_types import StackSide
from clockhands.options import options_of
from clockhands.runs import Run
from clockhands.schemes import CATALOGUE, RoPE, Scheme, Sinusoidal
from clockhands.schemes.bias.alibi import Alibi
from clockhands.schemes.bias.t5 import T5Bias

__all__ = ["describe_scheme"]


def describe_scheme(run: Run, side: StackSide) -> dict[str, Any]:
    """Return the name of a side's scheme, every option with its value, and what the page needs besides."""
    position = run.model.config.transformer_config.get_position_config(side)
    scheme = run.model.transformer.get_stack(side).schemes.at_input
    defaults = {name: option.default for name, option in options_of(CATALOGUE[position.scheme]).items()}
    options = {**defaults, **position.options}
    return {
        "name": position.scheme,
        "options": options | _read_resolved(scheme),
        "combine": position.combine,
        "everyLayer": position.every_layer,
        "skipEvery": position.skip_every,
        "frequencies": _read_frequencies(scheme),
        **_read_learned(scheme),
    }


def _read_resolved(scheme: Scheme) -> dict[str, Any]:
    """Return the options whose value follows from the side: which form of ALiBi, and which directions of T5."""
    if isinstance(scheme, Alibi):
        return {"form": scheme.form}
    return {"bidirectional": scheme.bidirectional} if isinstance(scheme, T5Bias) else {}


def _read_frequencies(scheme: Scheme) -> list[float]:
    """Return the radians per position of each hand."""
    if not isinstance(scheme, (Sinusoidal, RoPE)):
        return []
    frequencies: list[float] = scheme.frequencies().detach().tolist()
    return frequencies


def _read_learned(scheme: Scheme) -> dict[str, Any]:
    if isinstance(scheme, Sinusoidal):
        return {"amplitude": read_amplitude(scheme)}
    if isinstance(scheme, RoPE) and scheme.alpha_F is not None:
        return {"factors": scheme.alpha_F.detach().double().exp().tolist()}
    if isinstance(scheme, Alibi):
        return {"slopes": scheme.slopes_OH.detach().abs().tolist()}
    return {"starts": scheme.starts_N.tolist()} if isinstance(scheme, T5Bias) else {}
