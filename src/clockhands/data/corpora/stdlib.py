"""The Python standard library's own source, read from the interpreter that runs: a text for language models
that every machine already has."""

from __future__ import annotations

import hashlib
import math
import platform
import random
import sysconfig
import tokenize
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from clockhands.data.catalogue import corpus
from clockhands.data.splits import Corpus, Fact
from clockhands.errors import DataError, UsageError

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
