"""The spectra of the rotary embedding by name: how its frequencies are changed so that longer texts fit."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from clockhands.errors import ConfigError
from clockhands.schemes.rotary.spectrum import Dynamic, Hope, Linear, Ntk, Proportional, Spectrum
from clockhands.schemes.rotary.yarn import Llama3, LongRope, Yarn

__all__ = ["SPECTRA", "SpectrumName", "make_spectrum"]

SpectrumName = Literal["default", "linear", "ntk", "dynamic", "yarn", "longrope", "llama3", "proportional", "hope"]
"""What the option ``spectrum`` may be: the keys of ``SPECTRA``."""
SPECTRA: dict[str, type[Spectrum]] = {
    "default": Spectrum,
    "linear": Linear,
    "ntk": Ntk,
    "dynamic": Dynamic,
    "yarn": Yarn,
    "longrope": LongRope,
    "llama3": Llama3,
    "proportional": Proportional,
    "hope": Hope,
}

NEEDS = {
    "factor": "how many times longer than trained the texts are (with 1 it would be plain RoPE)",
    "original_length": "how many tokens the texts had at most on which the model was trained",
}
"""Why a spectrum has no default for an option: none is right for every model."""


def make_spectrum(name: str, channels: int, options: dict[str, Any]) -> Spectrum:
    """Make a spectrum from the options that are not None.

    Raises ConfigError for options that the spectrum does not have, and for values that it cannot take.
    """
    kind = SPECTRA[name]
    known = [field.name for field in dataclasses.fields(kind)]
    options = {key: value for key, value in options.items() if value is not None}
    strange = [key for key in options if key not in known]
    takes = ", ".join(key for key in known) or "none"
    wrong = [f"rope.{key} is no option of the spectrum {name!r}, whose options are: {takes}" for key in strange]
    needed = [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
    wrong += [
        f"rope.{key} is not given, and the spectrum {name!r} needs it: {NEEDS[key]}"
        for key in needed
        if key not in options
    ]
    if wrong:
        raise ConfigError(wrong, "the scheme")
    spectrum = kind(**options)
    wrong = spectrum.faults(channels)
    if wrong:
        raise ConfigError(wrong, "the scheme")
    return spectrum
