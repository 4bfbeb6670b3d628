"""The spectra of the rotary embedding by the names that recipes have for them."""

from __future__ import annotations

import dataclasses
from typing import Any

from clockhands.errors import ConfigError
from clockhands.schemes.rotary.spectrum import NTK, Dynamic, HoPE, Linear, Plain, Proportional, Spectrum
from clockhands.schemes.rotary.spectrum import SPECTRA as SPECTRA
from clockhands.schemes.rotary.yarn import Llama3, LongRoPE, YaRN

SPECTRA |= {
    "default": Plain,
    "linear": Linear,
    "ntk": NTK,
    "dynamic": Dynamic,
    "yarn": YaRN,
    "longrope": LongRoPE,
    "llama3": Llama3,
    "proportional": Proportional,
    "hope": HoPE,
}

NEEDS = {
    "factor": "how many times longer than trained the texts are (with 1 it would be plain RoPE)",
    "original_length": "how many tokens the texts had at most on which the model was trained",
}
"""Why a spectrum has no default for an option: none is right for every model."""


def make_spectrum(name: str, channels: int | None, options: dict[str, Any]) -> Spectrum:
    """Make a spectrum from its name and the options that are not None.

    Raises ConfigError for options that the spectrum does not have, and for values that it cannot take; with
    ``channels`` None, whoever knows how many channels rotate asks for the latter (``Spectrum.faults``).
    """
    kind = SPECTRA[name]
    fields = dataclasses.fields(kind)
    known = [field.name for field in fields]
    options = {key: value for key, value in options.items() if value is not None}
    takes = ", ".join(known) or "none"
    wrong = [
        f"rope.{key} is no option of the spectrum {name!r}, whose options are: {takes}"
        for key in options
        if key not in known
    ]
    wrong += [
        f"rope.{field.name} is not given, and the spectrum {name!r} needs it: {NEEDS[field.name]}"
        for field in fields
        if field.default is dataclasses.MISSING and field.name not in options
    ]
    if wrong:
        raise ConfigError(wrong, "the scheme")
    spectrum = kind(**options)
    wrong = [] if channels is None else spectrum.faults(channels)
    if wrong:
        raise ConfigError(wrong, "the scheme")
    return spectrum
