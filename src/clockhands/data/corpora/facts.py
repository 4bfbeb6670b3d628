"""Source code with facts between its lines, which are asked for again: a text on which models learn to recall.

A language model of half a million parameters that reads plain text learns its syntax long before it looks anything up,
so a test of retrieval says nothing of it at any length. Here every document has some names, each with a value, and
most of what can be predicted for certain is the value of a name that stood there before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

from clockhands.data.catalogue import corpus
from clockhands.data.corpora.stdlib import stdlib
from clockhands.data.splits import Corpus, Fact
from clockhands.errors import UsageError
from clockhands.options import Count, Fraction, Seed

_PLANTS_AND_ANIMALS = (
    "alder aspen beech cedar cypress elder hazel holly juniper larch laurel linden maple myrtle olive poplar "
    "rowan spruce walnut willow badger beaver bison camel donkey falcon ferret gopher heron jackal lemur "
    "lizard magpie otter parrot pigeon rabbit raven salmon sparrow "
)
_COLOURS = (
    "amber azure beige black bronze brown copper coral crimson ebony emerald gold green grey indigo ivory jade "
    "khaki lemon lilac lime maroon mauve ochre orange pearl pink plum purple red ruby rust scarlet silver tan "
    "teal umber violet white yellow "
)
NAMES, VALUES = _PLANTS_AND_ANIMALS.split(), _COLOURS.split()
FACT, FACT_AND_NAME = "@ {name} {value}\n", "@ {name} {value} {name}\n"
LONGEST_LINE = 32


@corpus("facts", "language modelling")
def facts(
    *,
    names: Count = 4,
    fewest: Count | None = None,
    words: Count = 40,
    repeated: bool = False,
    lines: Count = 60,
    asked: Fraction = 0.65,
    train: Count = 6_000,
    validation: Count = 200,
    test: Count = 400,
    seed: Seed = 0,
) -> Corpus:
    """Make documents of lines of the standard library's source, among which facts are told and told again.

    A fact is a line "@ hazel amber": a name with a value, which is the same wherever the name stands in the document,
    and another in the next. Of each document's ``lines`` the share ``asked`` are facts; the others are source. The
    splits take source from different files.

    Args:
        names: of a document.
        fewest: a document has from so many to ``names``; None: all have ``names``.
        words: how many different names there are, and values, of 40 each. With 16 a small model learns to look a name
            up within minutes; with 40 it takes many times as long.
        repeated: whether a fact ends with its name, "@ hazel amber hazel". To predict that, a model has to carry the
            name to the value, which is half of what looking a value up takes.
        lines: of a document.
        asked: the share of facts.
        train, validation, test: documents of each split.
        seed: of what is drawn.

    Raises UsageError for more names than there are.
    """
    fewest = names if fewest is None else fewest
    for option, value in (("words", words), ("names", names)):
        if value > len(NAMES):
            raise UsageError(f"corpus 'facts': {option}={value}; there are {len(NAMES)}")
    if not fewest <= names <= words:
        raise UsageError(f"corpus 'facts': names={names} must be from fewest={fewest} to words={words}")
    form = FACT_AND_NAME if repeated else FACT
    drawn: dict[str, Any] = {"names": (fewest, names), "words": words, "form": form, "lines": lines, "asked": asked}
    source = stdlib()
    sizes = {"train": train, "validation": validation, "test": test}

    def draw(split: str, key: str) -> list[str]:
        return list(islice(_make_documents(source.documents(split), seed=key, **drawn), sizes[split]))

    splits = {split: draw(split, f"{split}:{seed}") for split in sizes}
    known: dict[str, Fact] = {**source.facts, "names in a document": names, "share of facts": asked}
    return Corpus(
        "facts",
        "language modelling",
        splits,
        f"{source.description}, with facts between its lines",
        known,
        redraw=lambda number: draw("train", f"train:{seed}:redrawn:{number}"),
    )


def _make_documents(
    texts: list[str], *, names: tuple[int, int], words: int, form: str, lines: int, asked: float, seed: str
) -> Iterator[str]:
    """Yield documents without end, each with names and values of its own."""
    rng = random.Random(f"facts:{names}:{words}:{lines}:{asked}:{seed}")
    source = _draw_lines(texts, rng)
    while True:
        count = rng.randint(*names)
        values = dict(zip(rng.sample(NAMES[:words], count), rng.choices(VALUES[:words], k=count), strict=True))
        yield "".join(
            form.format(name=name, value=values[name]) if rng.random() < asked else next(source)
            for name in rng.choices(list(values), k=lines)
        )


def _draw_lines(texts: list[str], rng: random.Random) -> Iterator[str]:
    """Yield short lines of source in their order, file by file at random, without end."""
    while True:
        for line in rng.choice(texts).splitlines():
            if 3 <= len(line.strip()) <= LONGEST_LINE:
                yield f"{line}\n"
