"""What a law of runtimes is, and the list of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clockhands.catalogue import Catalogue
from clockhands.checking.checks.check import USES, Measurement
from clockhands.checking.runtimes.bench import Bench
from clockhands.checking.runtimes.runtime import Offer

_WORDS: dict[str, str] = {
    "together": "the runtime reads one text at a time",
    "right": "the runtime takes no texts of unequal length in one batch",
    "left": "the runtime takes no attention_mask, or reads one text at a time",
    "positions": "the runtime takes no positions that have gaps",
    "begin": "the runtime takes no positions",
    "chunk": "the runtime has no KV cache that can be filled in steps",
    "reuse": "the runtime has no prefix cache that can be turned on and off",
    "shift": "the runtime cannot move the keys in its KV cache",
}


@dataclass(frozen=True)
class Law:
    """One law. ``needs`` are the ways of reading that the runtime must offer, ``uses`` as those of a check.

    ``shared``: no file can break it, only the program that runs all files.
    """

    name: str
    asserts: str
    catches: str
    measure: Callable[[Bench], Measurement]
    uses: tuple[str, ...]
    needs: tuple[Offer, ...] = ()
    shared: bool = False
    optional: bool = False

    def inapplicable(self, bench: Bench) -> str | None:
        """Return why the law says nothing of this runtime; None if it does."""
        return next((_WORDS[offer] for offer in self.needs if offer not in bench.runtime.offers), None)


LAWS: Catalogue[Law] = Catalogue(
    "law of runtimes", modules=("clockhands.checking.runtimes.laws",), describe=lambda law: law.asserts
)


def law(
    name: str, asserts: str, catches: str, *, uses: tuple[str, ...], needs: tuple[Offer, ...] = (), shared: bool = False
) -> Callable[[Callable[[Bench], Measurement]], Callable[[Bench], Measurement]]:
    """Register the decorated function as a law. Raises ValueError for a use that is none of ``USES``."""
    if not uses or not set(uses) <= set(USES):
        raise ValueError(f"the law {name} names the uses {uses}: name at least one of USES")

    def register(measure: Callable[[Bench], Measurement]) -> Callable[[Bench], Measurement]:
        LAWS.register(f"runtime.{name}")(Law(f"runtime.{name}", asserts, catches, measure, uses, needs, shared))
        return measure

    return register
