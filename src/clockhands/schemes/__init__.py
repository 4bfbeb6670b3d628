"""Every way to encode position, each usable in anybody's model. ``CATALOGUE`` is the list: one line a scheme."""

from __future__ import annotations

from clockhands.schemes.absolute.none import NoPosition
from clockhands.schemes.absolute.sinusoidal import Sinusoidal
from clockhands.schemes.attend import attend, attend_reference, recording
from clockhands.schemes.base import Declares, DistanceBias, Scheme
from clockhands.schemes.bias.alibi import Alibi
from clockhands.schemes.catalogue import Sizes, build, faults, options
from clockhands.schemes.content.cope import CoPE
from clockhands.schemes.rotary.rope import RoPE

CATALOGUE: dict[str, type[Scheme]] = {
    "none": NoPosition,
    "sinusoidal": Sinusoidal,
    "rope": RoPE,
    "alibi": Alibi,
    "cope": CoPE,
}

__all__ = [
    "CATALOGUE",
    "Alibi",
    "CoPE",
    "Declares",
    "DistanceBias",
    "NoPosition",
    "RoPE",
    "Scheme",
    "Sinusoidal",
    "Sizes",
    "attend",
    "attend_reference",
    "build",
    "faults",
    "options",
    "recording",
]
