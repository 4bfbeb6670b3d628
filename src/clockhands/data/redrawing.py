"""Another draw of a training text, so that a seed can stand for another text too.

Corpora that are made, and those that hold more text than they train on, draw other items by the same law
(``Corpus.redraw``). Of other text there is no more: as many items as it has are drawn from it with replacement (the
bootstrap; Efron 1979, "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics 7).
"""

from __future__ import annotations

import random

from clockhands.data.splits import Corpus, Items
from clockhands.errors import UsageError

__all__ = ["FEWEST_ITEMS", "redraw_training"]

FEWEST_ITEMS = 20
"""Of fewer, a draw with replacement leaves out so much that it is hardly a text like the whole."""


def redraw_training(corpus: Corpus, number: int) -> Items:
    """Return another draw of the training split, of the same size, that ``number`` decides; the corpus stays as it is.

    Raises UsageError for a text of fewer than ``FEWEST_ITEMS`` documents or pairs that cannot be drawn anew.
    """
    if corpus.redraw is not None:
        return corpus.redraw(number)
    items = corpus["train"]
    if len(items) < FEWEST_ITEMS:
        raise UsageError(
            f"corpus {corpus.name!r} has {len(items)} {corpus.items} to train on, too few to draw another text from "
            f"them by training.text_seed: at least {FEWEST_ITEMS} are needed. Cut the text into smaller ones (as "
            "data.unit = 'paragraph' does for plain text), or leave training.text_seed out"
        )
    rng = random.Random(f"redrawn:{number}")
    return rng.choices(items, k=len(items))  # type: ignore[return-value]
