"""Names that people use for schemes, and the scheme that each leads to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from clockhands.schemes.scheme import Scheme

USUAL = {
    "rotary": ("rope",),
    "rope": ("rope",),
    "nope": ("none",),
    "nope position": ("none",),
    "no position": ("none",),
    "sin": ("sinusoidal",),
    "sine": ("sinusoidal",),
    "sincos": ("sinusoidal",),
    "fixed": ("sinusoidal",),
    "absolute": ("sinusoidal", "learned"),
    "vanilla": ("sinusoidal",),
    "embedding": ("learned",),
    "relative": ("t5", "shaw"),
    "relative key": ("shaw",),
    "relative bias": ("t5",),
    "disentangled": ("deberta",),
    "sliding window": ("window",),
    "local": ("window",),
    "swa": ("window",),
    "fox": ("forgetting",),
    "forgetting transformer": ("forgetting",),
    "dynamic ntk": ("rope",),
    "ntk": ("rope",),
    "yarn": ("rope",),
    "longrope": ("rope",),
    "linear scaling": ("rope",),
    "position interpolation": ("rope",),
    "p rope": ("rope",),
    "attention sinks": ("sinks",),
    "xl": ("transformer-xl",),
    "rel shift": ("transformer-xl",),
    "2d rope": ("axial", "mixed"),
}
"""Names of no scheme, library or model."""


def _simplify(name: str) -> str:
    """Return a name in small letters, without what stands in brackets, and with spaces for all other signs."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z][a-z]{2})", " ", re.sub(r"\(.*?\)", "", name))
    return " ".join(re.findall(r"[a-z0-9]+", spaced.casefold()))


def list_meant(name: str, schemes: Mapping[str, type[Scheme]]) -> list[str]:
    """Return the schemes of the catalogue that are meant by a name, the likeliest first; empty where none is.

    The names of classes, of the models that have a scheme, and of what does the same elsewhere lead to it too.
    """
    wanted = _simplify(name)
    by_class = [key for key, kind in schemes.items() if wanted.replace(" ", "") in _spell(key, kind)]
    if by_class:
        return by_class
    usual = [key for key in USUAL.get(wanted, ()) if key in schemes]
    by_model = [key for key, kind in schemes.items() if _names(wanted, kind.models)]
    by_peer = [key for key, kind in schemes.items() if _names(wanted, kind.peers)]
    return list(dict.fromkeys(usual + by_model + by_peer))


def _spell(key: str, kind: type[Scheme]) -> set[str]:
    """Return the names of a scheme without spaces and signs."""
    return {_simplify(key).replace(" ", ""), _simplify(kind.__name__).replace(" ", "")}


def _names(wanted: str, phrases: Iterable[str]) -> bool:
    """Return whether words stand, whole and in their order, in a phrase, or are the name that begins it."""
    return bool(wanted) and any(
        f" {wanted} " in f" {_simplify(phrase)} " or wanted.replace(" ", "") == _simplify(phrase).replace(" ", "")
        for phrase in phrases
    )
