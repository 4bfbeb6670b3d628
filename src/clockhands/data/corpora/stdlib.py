"""The Python standard library's own source, read from the interpreter that runs: a text for language models
that every machine already has."""

from __future__ import annotations

import hashlib
import platform
import sysconfig
import tokenize
from pathlib import Path

from clockhands.data.pairs import Corpus, Fact
from clockhands.errors import DataError, UsageError

LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "ensurepip"})


def stdlib(*, limit: int = 4_000_000, validation: float = 0.05, test: float = 0.05) -> Corpus:
    """Every module of the standard library but its tests, one document a file.

    A file's split and its place in the queue follow from a hash of its name alone, so a smaller ``limit`` (in
    characters; 0 for everything) takes a part of what a larger one takes. ``validation`` and ``test`` are shares
    of the files. The text is that of the running Python: ``facts`` names the version.

    Raises UsageError for impossible shares or limits, DataError where the interpreter comes without its source.
    """
    if limit < 0 or (limit and limit < 100_000):
        raise UsageError(f"corpus 'stdlib': limit={limit} characters; give at least 100,000, or 0 for everything")
    if not (validation > 0 and test > 0 and validation + test < 0.9):
        raise UsageError(f"corpus 'stdlib': validation={validation} and test={test} are shares above 0 and below 0.9")
    chosen = _files(Path(sysconfig.get_paths()["stdlib"]), limit)
    splits: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for name, text in sorted(chosen.items()):
        place = _place(name, "split")
        split = "validation" if place < validation else "test" if place < validation + test else "train"
        splits[split].append(text)
    empty = [name for name, documents in splits.items() if not documents]
    if empty:
        raise UsageError(f"corpus 'stdlib': no file falls into {' and '.join(empty)}; raise 'limit' or the share")
    characters = sum(map(len, chosen.values()))
    facts: dict[str, Fact] = {"python": platform.python_version(), "files": len(chosen), "characters": characters}
    description = f"source of the standard library of Python {platform.python_version()}"
    return Corpus("stdlib", "language", splits, description, facts)


def _files(folder: Path, limit: int) -> dict[str, str]:
    """Name and text of the files taken, up to ``limit`` characters, in the order of their hashes."""
    names = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if not LEFT_OUT.intersection(path.relative_to(folder).parts)
    ]
    chosen: dict[str, str] = {}
    room = limit or float("inf")
    for name in sorted(names, key=lambda name: _place(name, "queue")):
        with tokenize.open(folder / name) as stream:
            text = stream.read()
        room -= len(text)
        if room < 0:
            break
        if text.strip():
            chosen[name] = text
    if not chosen:
        raise DataError(f"no Python source was found in {folder}; this interpreter comes without its standard library")
    return chosen


def _place(name: str, purpose: str) -> float:
    """A number from 0 to 1 that depends on the name alone."""
    digest = hashlib.sha256(f"{purpose}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
