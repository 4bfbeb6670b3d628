"""One's own text as a corpus: parallel files, tables, plain text, Hugging Face data sets.

Each function's keywords are its options, as for the built-in corpora. Where no validation split is given, a share
of the training text is held out: chosen by a hash of the text itself, so the same sentence never stands on both sides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from clockhands.data.catalogue import corpus, task_of_columns
from clockhands.data.pairs import Corpus, Items, Pair, Task
from clockhands.data.readers import (
    Unit,
    column,
    pairs_of,
    read_documents,
    read_parallel,
    read_rows,
)
from clockhands.errors import DataError, UsageError

Paths: TypeAlias = str | Path | list[str]
HOLDOUT = 0.02


@corpus("parallel", "translation")
def parallel(
    *,
    source: Paths,
    target: Paths,
    validation_source: Paths | None = None,
    validation_target: Paths | None = None,
    test_source: Paths | None = None,
    test_target: Paths | None = None,
    holdout: float = HOLDOUT,
    encoding: str = "utf-8",
    skip_blank: bool = False,
) -> Corpus:
    """Read files whose lines n are translations of each other; several files on a side are read one after the other.

    ``holdout`` is the share kept for validation if there are no validation files. Raises UsageError for one side
    without the other, DataError for unequal numbers of lines and unreadable files.
    """
    sides = {
        "train": (source, target),
        "validation": (validation_source, validation_target),
        "test": (test_source, test_target),
    }
    splits: dict[str, Items] = {}
    for split, (one, other) in sides.items():
        if (one is None) != (other is None):
            given, missing = ("source", "target") if other is None else ("target", "source")
            raise UsageError(f"the {split} {given} file has no {missing} file beside it; give both or neither")
        if one is not None and other is not None:
            splits[split] = _read_sides(_list_paths(one), _list_paths(other), encoding, skip_blank)
    return corpus_of("parallel", "translation", splits, holdout, f"{_name(source)} to {_name(target)}")


@corpus("table", task_of_columns)
def table(
    *,
    train: Paths,
    validation: Paths | None = None,
    test: Paths | None = None,
    source: str = "source",
    target: str = "target",
    text: str | None = None,
    format: str | None = None,
    header: bool = True,
    holdout: float = HOLDOUT,
    encoding: str = "utf-8",
    skip_blank: bool = False,
) -> Corpus:
    """Read TSV, CSV or JSON Lines: the columns ``source`` and ``target``, or for a language model the column ``text``.

    ``format`` follows from the files' endings where it is not given; without ``header`` columns are named 1, 2, ...
    Raises as ``read_rows`` and ``column``.
    """

    def read(paths: Paths) -> Items:
        rows = (row for path in _list_paths(paths) for row in read_rows(path, format, header=header, encoding=encoding))
        if text is not None:
            return [document for place, row in rows if (document := column(row, text, place)).strip()]
        sides = ((place, column(row, source, place), column(row, target, place)) for place, row in rows)
        return list(pairs_of(sides, skip_blank))

    return corpus_of(
        "table", task_of_columns({"text": text}), _read_each(read, train, validation, test), holdout, _name(train)
    )


@corpus("text", "language modelling")
def text(
    *,
    train: Paths,
    validation: Paths | None = None,
    test: Paths | None = None,
    unit: Unit = "line",
    holdout: float = HOLDOUT,
    encoding: str = "utf-8",
) -> Corpus:
    """Read plain text for a language model; a document is a ``line``, a ``paragraph`` or a whole ``file``.

    If there is a single document and no validation file, its end is held out. Raises as ``read_documents``.
    """

    def read(paths: Paths) -> list[str]:
        return [document for path in _list_paths(paths) for document in read_documents(path, unit, encoding)]

    return corpus_of("text", "language modelling", _read_each(read, train, validation, test), holdout, _name(train))


def _read_each(
    read: Callable[[Paths], Items], train: Paths, validation: Paths | None, test: Paths | None
) -> dict[str, Items]:
    given = {"train": train, "validation": validation, "test": test}
    return {split: read(paths) for split, paths in given.items() if paths is not None}


def _read_sides(
    sources: Sequence[str | Path], targets: Sequence[str | Path], encoding: str, skip_blank: bool
) -> list[Pair]:
    if len(sources) != len(targets):
        raise UsageError(f"{len(sources)} source files and {len(targets)} target files; they go together one by one")
    return [
        pair
        for source, target in zip(sources, targets, strict=True)
        for pair in read_parallel(source, target, encoding, skip_blank=skip_blank)
    ]


def corpus_of(name: str, task: Task, splits: dict[str, Items], holdout: float, description: str) -> Corpus:
    """Make a corpus; a validation split is held out from ``train`` if there is none. Raises DataError for no items."""
    for split, items in splits.items():
        if not items:
            raise DataError(f"{description}: split {split!r} holds nothing that can be used")
    if "validation" not in splits:
        splits = {**splits, **hold_out(splits["train"], holdout)}
    facts = {f"items in {split}": len(items) for split, items in splits.items()}
    return Corpus(name, task, splits, description, facts)


def hold_out(items: Items, share: float) -> dict[str, Items]:
    """Divide items into ``train`` and ``validation``, a share of the different ones and at least one, in their order.

    Which ones follows from a hash of each text (of a pair, its source) alone. A single document is cut at its end.
    Raises UsageError for a share outside 0 to 0.5, and for one text alone that is no longer than a line.
    """
    if not 0 < share <= 0.5:
        raise UsageError(f"holdout={share} is a share of the training text, above 0 and at most 0.5")
    if len(items) == 1 and isinstance(items[0], str):
        cut = int(len(items[0]) * (1 - share))
        return {"train": [items[0][:cut]], "validation": [items[0][cut:]]}
    keys = [_hash(item) for item in items]
    different = sorted(set(keys))
    if len(different) < 2:
        raise UsageError("there is only one text, so none can be held out; give a validation file")
    kept = set(different[: max(1, round(share * len(different)))])
    train = [item for item, key in zip(items, keys, strict=True) if key not in kept]
    validation = [item for item, key in zip(items, keys, strict=True) if key in kept]
    return {"train": train, "validation": validation}  # type: ignore[dict-item]


def _hash(item: Pair | str) -> bytes:
    written = item if isinstance(item, str) else item.source
    return hashlib.blake2b(written.encode("utf8", "surrogatepass"), digest_size=8).digest()


def _list_paths(paths: Paths) -> Sequence[str | Path]:
    """Return one path or several as a sequence."""
    return [paths] if isinstance(paths, (str, Path)) else paths


def _name(paths: Paths) -> str:
    return ", ".join(Path(path).name for path in _list_paths(paths))
