"""The user's own text as a corpus: parallel files, tables, plain text.

The keyword parameters of each function are its options, as for the built-in corpora. Without a validation split a share
of the training text is held out; a hash of the text itself chooses it, so that no sentence is in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from clockhands.data.readers import Unit, collect_items, pick_texts, read_documents, read_parallel, read_texts
from clockhands.data.splits import Corpus, Items, Task, corpus, find_task_of_columns
from clockhands.errors import DataError, MissingPackageError, UsageError, describe_unknown
from clockhands.pretrained import load_data_set

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
    source_encoding: str | None = None,
    target_encoding: str | None = None,
    skip_blank: bool = False,
) -> Corpus:
    """Read files whose lines n are translations of each other; several files on a side are read one after the other.

    ``holdout`` is the share kept for validation if there are no validation files. ``source_encoding`` and
    ``target_encoding`` stand for ``encoding`` on their side. Raises UsageError for one side
    without the other, DataError for unequal numbers of lines and unreadable files.
    """
    sides = {
        "train": (source, target),
        "validation": (validation_source, validation_target),
        "test": (test_source, test_target),
    }
    encodings = source_encoding or encoding, target_encoding or encoding
    splits: dict[str, Items] = {}
    for split, (source_files, target_files) in sides.items():
        if (source_files is None) != (target_files is None):
            named, missing = ("source", "target") if target_files is None else ("target", "source")
            raise UsageError(f"the {split} {named} file has no {missing} file beside it; give both or neither")
        if source_files is not None and target_files is not None:
            sources, targets = _list_paths(source_files), _list_paths(target_files)
            if len(sources) != len(targets):
                raise UsageError(
                    f"{len(sources)} source files and {len(targets)} target files; they go together one by one"
                )
            files = zip(sources, targets, strict=True)
            read = (read_parallel(*pair, *encodings, skip_blank=skip_blank) for pair in files)
            splits[split] = list(chain.from_iterable(read))
    return _make_corpus("parallel", "translation", splits, holdout, f"{_join_names(source)} to {_join_names(target)}")


@corpus("table", find_task_of_columns)
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
    Raises as ``read_texts``.
    """
    columns = {"source": source, "target": target} if text is None else {"text": text}
    splits: dict[str, Items] = {}
    for split, paths in {"train": train, "validation": validation, "test": test}.items():
        if paths is not None:
            rows = (read_texts(path, columns, format, header=header, encoding=encoding) for path in _list_paths(paths))
            splits[split] = collect_items(chain.from_iterable(rows), skip_blank)
    return _make_corpus("table", find_task_of_columns(columns), splits, holdout, _join_names(train))


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
    splits: dict[str, Items] = {}
    for split, paths in {"train": train, "validation": validation, "test": test}.items():
        if paths is not None:
            read = (read_documents(path, unit, encoding) for path in _list_paths(paths))
            splits[split] = list(chain.from_iterable(read))
    return _make_corpus("text", "language modelling", splits, holdout, _join_names(train))


def _make_corpus(name: str, task: Task, splits: dict[str, Items], holdout: float, description: str) -> Corpus:
    """Make a corpus; a validation split is held out from ``train`` if there is none. Raises DataError for no items."""
    for split, items in splits.items():
        if not items:
            raise DataError(f"{description or 'no file'}: split {split!r} holds nothing that can be used")
    if "validation" not in splits:
        splits = {**splits, **hold_out(splits["train"], holdout)}
    facts = {f"items in {split}": len(items) for split, items in splits.items()}
    return Corpus(name, task, splits, description, facts)


def hold_out(items: Items, share: float) -> dict[str, Items]:
    """Divide items into ``train`` and ``validation``, a share of the different ones and at least one, in their order.

    A hash of each text (of a pair, its source) decides which ones. A single document is cut in two: its end is held
    out. Raises UsageError for a share outside 0 to 0.5, where all texts are the same, and for a single document that is
    too short to be cut.
    """
    if not 0 < share <= 0.5:
        raise UsageError(f"holdout={share} is a share of the training text, above 0 and at most 0.5")
    if len(items) == 1 and isinstance(items[0], str):
        cut = int(len(items[0]) * (1 - share))
        parts = items[0][:cut], items[0][cut:]
        if not all(parts):
            raise UsageError(
                f"the only document has {len(items[0]):,} characters, too few to cut off holdout={share} of it; give "
                "more text, or a validation file"
            )
        return {"train": [parts[0]], "validation": [parts[1]]}
    texts = [item if isinstance(item, str) else item.source for item in items]
    keys = [hashlib.blake2b(text.encode("utf8", "surrogatepass"), digest_size=8).digest() for text in texts]
    different = sorted(set(keys))
    if len(different) < 2:
        there = "there is only one training text" if len(items) == 1 else f"all {len(items):,} training texts are equal"
        raise UsageError(f"{there}, so none can be held out for validation; give a validation file")
    kept = set(different[: max(1, round(share * len(different)))])
    train = [item for item, key in zip(items, keys, strict=True) if key not in kept]
    validation = [item for item, key in zip(items, keys, strict=True) if key in kept]
    return {"train": train, "validation": validation}  # type: ignore[dict-item]


def _list_paths(paths: Paths) -> Sequence[str | Path]:
    return [paths] if isinstance(paths, (str, Path)) else paths


def _join_names(paths: Paths) -> str:
    return ", ".join(Path(path).name for path in _list_paths(paths))


@corpus("huggingface", find_task_of_columns)
def huggingface(
    *,
    dataset: str,
    subset: str | None = None,
    revision: str | None = None,
    source: str = "source",
    target: str = "target",
    text: str | None = None,
    train: str = "train",
    validation: str | None = "validation",
    test: str | None = "test",
    holdout: float = HOLDOUT,
    skip_blank: bool = False,
) -> Corpus:
    """Open the splits of a data set, by the names they have there; ``validation`` and ``test`` may be missing.

    ``dataset`` is a hub name or a local folder (of data files, or written by ``save_to_disk``). Columns inside others
    are written ``translation.de``. With ``text`` the corpus is one of documents. Nothing but a hub name reaches the
    network, and no code of the data set's is run.

    Raises UsageError where the ``datasets`` package is not installed, for an unknown split; DataError where the data
    set cannot be opened, for a missing column and for blank sides (unless ``skip_blank``).
    """
    try:
        loaded = load_data_set(dataset, subset, revision)
    except ImportError as fault:
        raise MissingPackageError("a Hugging Face data set", "datasets", "datasets") from fault
    opened = loaded if isinstance(loaded, dict) else {"train": loaded}
    if train not in opened:
        raise UsageError(f"data set {dataset!r}: {describe_unknown('split', train, opened)}")
    columns = {"source": source, "target": target} if text is None else {"text": text}
    wanted = {"train": train, "validation": validation, "test": test}
    splits: dict[str, Items] = {}
    for split, there in wanted.items():
        if there is not None and there in opened:
            rows = ((f"{dataset}[{there}], row {number}", row) for number, row in enumerate(opened[there]))
            splits[split] = collect_items(pick_texts(rows, columns), skip_blank)
    name = dataset if subset is None else f"{dataset}/{subset}"
    return _make_corpus("huggingface", find_task_of_columns(columns), splits, holdout, name)
