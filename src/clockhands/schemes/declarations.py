"""What a scheme declares of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Declares"]


@dataclass(frozen=True)
class Declares:
    """What a scheme promises; the laws, the catalogue page and ``check`` read it.

    ``translation_invariant``: a common shift of all positions changes no logit and no output. ``causal_only``:
    undefined for keys to the right of the query. ``max_length`` and ``beyond``: the largest number of positions, and
    what happens past it. ``depends_on_length``: what a token gets changes with the total length, once that is above
    ``steady_length``. ``cache``: whether keys, and values where a scheme rotates them, are cached as rotated (each step
    rotates only the new ones) or raw (all are rotated again at every step). ``axes``: coordinates of a position; None:
    no position is read. ``more_axes``: whether positions may have more coordinates than that. ``real_valued``:
    positions between the integers are meaningful. ``stochastic``: draws while training.
    """

    translation_invariant: bool = False
    causal_only: bool = False
    max_length: int | None = None
    beyond: Literal["raise", "clamp", "extrapolate"] = "extrapolate"
    depends_on_length: bool = False
    steady_length: int = 0
    cache: Literal["rotated", "raw"] = "rotated"
    axes: int | None = 1
    more_axes: bool = False
    real_valued: bool = False
    stochastic: bool = False
