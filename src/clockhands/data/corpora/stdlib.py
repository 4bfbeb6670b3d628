"""The Python standard library's own source, read from the interpreter that runs: a text for language models
that every machine already has."""

from __future__ import annotations

import hashlib
import platform
import sysconfig
import tokenize
from pathlib import Path

from clockhands.data.catalogue import corpus
from clockhands.data.splits import Corpus, Fact
from clockhands.errors import DataError, UsageError

__all__ = ["LEFT_OUT", "stdlib"]

LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "ensurepip"})


@corpus("stdlib", "language modelling")
def stdlib(*, limit: int = 4_000_000, validation: float = 0.05, test: float = 0.05) -> Corpus:
    """Read every module of the standard library but its tests, one document a file.

    The files queue by a hash of their names, and a file's place decides its split, so a smaller ``limit`` (in
    characters; 0 for everything) takes a part of what a larger one takes. ``validation`` and ``test`` are shares
    of the files. The text is that of the running Python: ``facts`` names the version.

    Raises UsageError for impossible shares or limits, DataError where the interpreter comes without its source.
    """
    if limit < 0 or (limit and limit < 100_000):
        raise UsageError(f"corpus 'stdlib': limit={limit} characters; give at least 100,000, or 0 for everything")
    if not (validation > 0 and test > 0 and validation + test < 0.9):
        raise UsageError(f"corpus 'stdlib': validation={validation} and test={test} are shares above 0 and below 0.9")
    chosen = _read_files(Path(sysconfig.get_paths()["stdlib"]), limit)
    splits: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for place, text in enumerate(chosen):
        splits[_split(place, validation, test)].append(text)
    empty = [name for name, documents in splits.items() if not documents]
    if empty:
        raise UsageError(f"corpus 'stdlib': no file falls into {' and '.join(empty)}; raise 'limit' or the share")
    characters = sum(map(len, chosen))
    facts: dict[str, Fact] = {"python": platform.python_version(), "files": len(chosen), "characters": characters}
    description = f"source of the standard library of Python {platform.python_version()}"
    return Corpus("stdlib", "language modelling", splits, description, facts)


def _read_files(folder: Path, limit: int) -> list[str]:
    """Read the text of the files taken, up to ``limit`` characters, in the order of the hashes of their names."""
    names = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if not LEFT_OUT.intersection(path.relative_to(folder).parts)
    ]
    chosen: list[str] = []
    room = limit or float("inf")
    for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest()):
        with tokenize.open(folder / name) as stream:
            text = stream.read()
        room -= len(text)
        if room < 0:
            break
        if text.strip():
            chosen.append(text)
    if not chosen:
        raise DataError(f"no Python source was found in {folder}; this interpreter comes without its standard library")
    return chosen


def _split(place: int, validation: float, test: float) -> str:
    """Return the split of a place in the queue: both shares spread evenly, out of step with each other."""
    if int((place + 1) * validation) > int(place * validation):
        return "validation"
    return "test" if int((place + 1) * test + 0.5) > int(place * test + 0.5) else "train"
