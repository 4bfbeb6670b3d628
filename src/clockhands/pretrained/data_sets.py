"""Data sets of the Hugging Face library ``datasets``; no code of a data set is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clockhands.errors import DataError

__all__ = ["load_data_set"]


def load_data_set(name: str, subset: str | None = None, revision: str | None = None) -> Any:
    """Open a Hugging Face data set: a folder written by ``save_to_disk``, one of data files, or a name on the hub.

    No code of a data set is run, whatever the settings of ``datasets`` say. Raises DataError, or ImportError where the
    package is not installed.
    """
    import datasets

    try:
        if any((Path(name) / file).is_file() for file in ("dataset_dict.json", "state.json")):
            return datasets.load_from_disk(name)
        return datasets.load_dataset(name, subset, revision=revision, trust_remote_code=False)
    except Exception as fault:
        # The library raises whatever its builders raise; all of it means that there is no such data here.
        raise DataError(f"cannot open the data set {name!r}: {str(fault) or type(fault).__name__}") from fault
