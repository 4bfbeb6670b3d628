"""What a scheme declares of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Declares:
    """What a user may rely on; the laws, the catalogue page and ``check`` read it."""

    translation_invariant: bool = False
    """A common shift of all positions changes no logit and no output."""
    causal_only: bool = False
    """The scheme is undefined for keys to the right of the query."""
    max_length: int | None = None
    """The largest number of positions; None: there is none."""
    beyond: Literal["raise", "clamp", "extrapolate"] = "extrapolate"
    """What happens past ``max_length``."""
    depends_on_length: bool = False
    """What a token gets changes with the total length, once that is above ``steady_length``."""
    steady_length: int = 0
    """Up to this length, what a token gets does not change with it."""
    cache: Literal["rotated", "raw"] = "rotated"
    """How keys are cached, and values where a scheme rotates them: as rotated, each once, or raw, all again a step."""
    axes: int | None = 1
    """Coordinates of a position; None: no position is read."""
    more_axes: bool = False
    """Positions may have more coordinates than ``axes``."""
    real_valued: bool = False
    """Positions between the integers are meaningful."""
    stochastic: bool = False
    """The scheme draws while training."""
