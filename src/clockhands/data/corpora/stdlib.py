"""The Python standard library's own source, read from the interpreter that runs: a text for language models
that every machine already has."""

from __future__ import annotations

import hashlib
import math
import platform
import random
import sysconfig
import tokenize
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from clockhands.data.population import check_sentences
from clockhands.data.splits import Corpus, Fact, corpus
from clockhands.errors import DataError, UsageError
from clockhands.options import Count, Fraction, Seed

LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "ensurepip"})


@corpus("stdlib", "language modelling")
def stdlib(*, limit: int = 4_000_000, file_limit: int = 0, validation: float = 0.05, test: float = 0.05) -> Corpus:
    """Read every module of the standard library but its tests, one document a file.

    The files queue by a hash of their names, and a file's place decides its split, so a smaller ``limit`` (in
    characters; 0 for everything) takes a part of what a larger one takes. ``file_limit`` is the most characters that
    are read of one file, in whole lines unless its first is longer; 0 reads all of it. Without a limit one file, the
    help texts of ``pydoc`` in English, can be most of a small corpus. ``validation`` and ``test`` are shares of the
    files. The text is that of the running Python: ``facts`` names the version.

    Raises UsageError for impossible shares or limits, DataError where the interpreter comes without its source.
    """
    if limit < 0 or (limit and limit < 100_000):
        raise UsageError(f"corpus 'stdlib': limit={limit} characters; give at least 100,000, or 0 for everything")
    if file_limit < 0 or 0 < file_limit < 1_000:
        raise UsageError(
            f"corpus 'stdlib': file_limit={file_limit} characters; give at least 1,000, or 0 to read whole files"
        )
    if not (validation > 0 and test > 0 and validation + test < 0.9):
        raise UsageError(f"corpus 'stdlib': validation={validation} and test={test} are shares above 0 and below 0.9")
    folder = Path(sysconfig.get_paths()["stdlib"])
    paths = [path.relative_to(folder) for path in folder.rglob("*.py")]
    names = [path.as_posix() for path in paths if not LEFT_OUT.intersection(path.parts)]
    names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
    read = partial(_read, folder, file_limit)
    chosen: dict[str, str] = {}
    room = limit or math.inf
    for name in names:
        text = read(name)
        room -= len(text)
        if room < 0:
            break
        if text.strip():
            chosen[name] = text
    if not chosen:
        raise DataError(f"no Python source was found in {folder}; this interpreter comes without its standard library")
    splits: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    held_out = set()
    for place, (name, text) in enumerate(chosen.items()):
        # Both shares spread evenly over the queue, out of step with each other.
        split = "train"
        if int((place + 1) * validation) > int(place * validation):
            split = "validation"
        elif int((place + 1) * test + 0.5) > int(place * test + 0.5):
            split = "test"
        splits[split].append(text)
        if split != "train":
            held_out.add(name)
    empty = [name for name, documents in splits.items() if not documents]
    if empty:
        raise UsageError(f"corpus 'stdlib': no file falls into {' and '.join(empty)}; raise 'limit' or the share")
    characters = sum(map(len, chosen.values()))
    facts: dict[str, Fact] = {"python": platform.python_version(), "files": len(chosen), "characters": characters}
    if file_limit:
        facts["file_limit"] = file_limit
    description = f"source of the standard library of Python {platform.python_version()}"
    others = [name for name in names if name not in held_out]
    redraw = partial(_redraw, read, others, sum(map(len, splits["train"])))
    return Corpus("stdlib", "language modelling", splits, description, facts, redraw=redraw)


def _read(folder: Path, file_limit: int, name: str) -> str:
    """Return the text of a file, or as many whole lines as fit into ``file_limit`` characters, if it is not 0."""
    with tokenize.open(folder / name) as stream:
        text = stream.read()
    if not file_limit or len(text) <= file_limit:
        return text
    return text[: text.rfind("\n", 0, file_limit) + 1] or text[:file_limit]


def _redraw(read: Callable[[str], str], names: Sequence[str], characters: int, number: int) -> list[str]:
    """Return as many characters of files that are drawn with replacement; the last file is cut."""
    rng = random.Random(f"stdlib:redrawn:{number}")
    texts: list[str] = []
    while characters > 0:
        text = read(rng.choice(names))[:characters]
        characters -= len(text)
        if text.strip():
            texts.append(text)
    return texts


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
    check_sentences("facts", {split: lines * count for split, count in sizes.items()})

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
