"""A Hugging Face data set as a corpus, from the hub by name or from a local folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clockhands.data.catalogue import corpus, find_task_of_columns
from clockhands.data.readers import collect_items
from clockhands.data.sources import HOLDOUT, make_corpus
from clockhands.data.splits import Corpus, Items
from clockhands.data.table_readers import pick_texts
from clockhands.errors import MissingPackageError, UsageError, describe_unknown
from clockhands.pretrained import load_data_set

__all__ = ["huggingface"]


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
    opened = _open(dataset, subset, revision)
    if train not in opened:
        raise UsageError(f"data set {dataset!r}: {describe_unknown('split', train, opened)}")
    columns = {"source": source, "target": target} if text is None else {"text": text}
    wanted = {"train": train, "validation": validation, "test": test}
    splits: dict[str, Items] = {}
    for split, there in wanted.items():
        if there is not None and there in opened:
            rows = _read_rows(opened[there], f"{dataset}[{there}]")
            splits[split] = collect_items(pick_texts(rows, columns), skip_blank)
    name = dataset if subset is None else f"{dataset}/{subset}"
    return make_corpus("huggingface", find_task_of_columns({"text": text}), splits, holdout, name)


def _open(name: str, subset: str | None, revision: str | None) -> Mapping[str, Any]:
    """Open a data set: its splits by name."""
    try:
        opened = load_data_set(name, subset, revision)
    except ImportError as fault:
        raise MissingPackageError("a Hugging Face data set", "datasets", "datasets") from fault
    return opened if isinstance(opened, dict) else {"train": opened}


def _read_rows(data: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, row in enumerate(data):
        yield f"{place}, row {number}", row
