"""Ranges of numbers, as parts of the annotations of options, and the annotations that occur most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

LARGEST = 2**63 - 1
"""The largest whole number that an option takes: what PyTorch and TOML hold in 64 bits."""
LARGEST_SEED = 2**32 - 1
"""NumPy's older generators, which transformers seeds too, take no larger one."""


@dataclass(frozen=True)
class Range:
    """The numbers that an option takes, as a part of its annotation: ``Annotated[float, Range(above=0)]``."""

    least: int | float | None = None
    above: int | float | None = None
    most: int | float | None = None
    below: int | float | None = None

    def __contains__(self, value: int | float) -> bool:
        """Tell whether a number is within the range."""
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        """Return the range in words: ``from 1 to 8``, ``at least 1``, ``above 0 and below 1``."""
        if self.least is not None and self.most is not None:
            return f"from {self.least:,} to {self.most:,}"
        if self.least is not None and self.below is not None:
            return f"from {self.least:,} to below {self.below:,}"
        bounds = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{word} {bound:,}" for word, bound in bounds.items() if bound is not None) or "any number"


Count: TypeAlias = Annotated[int, Range(least=1)]
Positive: TypeAlias = Annotated[float, Range(above=0)]
NotNegative: TypeAlias = Annotated[float, Range(least=0)]
Share: TypeAlias = Annotated[float, Range(least=0, below=1)]
"""A part of a whole, such as a probability of dropout: from 0 on, below 1."""
Fraction: TypeAlias = Annotated[float, Range(least=0, most=1)]
"""A part of a whole that may be all of it."""
Seed: TypeAlias = Annotated[int, Range(least=0, most=LARGEST_SEED)]
"""What every generator of random numbers takes."""
