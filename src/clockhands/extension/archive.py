"""What was measured already, in a file beside the result, so that a stopped command goes on where it was."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.errors import DataError
from clockhands.extension.drift import Drift
from clockhands.extension.retrieval import Retrieval
from clockhands.files import write_text
from clockhands.reading import read_json
from clockhands.shapes import Float

__all__ = ["Archive"]

WRONG = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What Python raises where a file holds something else than was written."""
ARRAYS = ("ranks", "control", "by_depth")
"""The fields of ``Retrieval`` that are arrays by task."""


class Archive:
    """Results by what they are of; each is written as soon as it is measured.

    ``path``: the file; None keeps nothing. ``signature``: what all results depend on; a file with another one is left
    aside and written again. Raises DataError for a file that is no archive.
    """

    def __init__(self, path: Path | None, signature: str = "") -> None:
        self.path, self.signature = path, signature
        self.results: dict[str, Any] = {}
        if path is not None and path.exists():
            try:
                read = read_json(path, DataError)
                self.results = dict(read["results"]) if read["signature"] == signature else {}
            except (DataError, *WRONG) as fault:
                raise self._refuse() from fault

    def _refuse(self, key: str = "") -> DataError:
        """Return the error for a file that holds something else than this class wrote."""
        fault = f"what {self.path} holds of {key} is damaged" if key else f"{self.path} cannot be read"
        return DataError(f"{fault}, so the command cannot go on from it; remove the file")

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        """Raise DataError where what was kept is not what was measured then."""
        try:
            yield
        except WRONG as fault:
            raise self._refuse(key) from fault

    def keep(self, key: str, measure: Callable[[], Any]) -> Any:
        """Return what is kept under a key; measure and keep it, if nothing is."""
        if key not in self.results:
            self.results[key] = measure()
            if self.path is not None:
                write_text(self.path, json.dumps({"signature": self.signature, "results": self.results}))
        return self.results[key]

    def keep_number(self, key: str, measure: Callable[[], float]) -> float:
        """Do as ``keep`` with a number."""
        kept = self.keep(key, measure)
        with self._reading(key):
            number = float(_read_array(kept, 0))
            if math.isnan(number):
                raise ValueError("no number")
            return number

    def keep_array(self, key: str, measure: Callable[[], Float[np.ndarray, " N"]]) -> Float[np.ndarray, " N"]:
        """Do as ``keep`` with an array."""
        kept = self.keep(f"{key}/array", lambda: measure().tolist())
        with self._reading(key):
            return _read_array(kept, 1)

    def keep_drift(self, key: str, lengths: Sequence[int], measure: Callable[[], Drift]) -> Drift:
        """Do as ``keep`` with a ``Drift`` at these lengths."""

        def flatten() -> dict[str, Any]:
            drift = measure()
            return {"lengths": drift.lengths, "tail": drift.tail, "losses_NR": drift.losses_NR.tolist()}

        kept = self.keep(f"{key}/drift", flatten)
        with self._reading(key):
            _require_lengths(kept["lengths"], lengths)
            losses_NR = _read_array(kept["losses_NR"], 2, len(lengths))
            if not len(losses_NR):
                raise ValueError("no text")
            return Drift(tuple(lengths), int(kept["tail"]), losses_NR)

    def keep_retrieval(self, key: str, lengths: Sequence[int], measure: Callable[[], Retrieval]) -> Retrieval:
        """Do as ``keep`` with a ``Retrieval`` at these lengths."""

        def flatten() -> dict[str, Any]:
            retrieval = measure()
            return {
                "lengths": retrieval.lengths,
                **{name: {task: rows.tolist() for task, rows in getattr(retrieval, name).items()} for name in ARRAYS},
                "questions": dict(retrieval.questions),
                "writing": retrieval.writing,
            }

        kept = self.keep(f"{key}/retrieval", flatten)
        with self._reading(key):
            _require_lengths(kept["lengths"], lengths)
            ranks, control, depths = (
                {task: _read_array(rows, *shape) for task, rows in kept[name].items()}
                for name, shape in zip(ARRAYS, ((2, len(lengths)), (1,), (2, len(lengths))), strict=True)
            )
            questions = {str(task): int(count) for task, count in kept["questions"].items()}
            return Retrieval(tuple(lengths), ranks, control, depths, questions, str(kept["writing"]))


def _require_lengths(kept: Any, lengths: Sequence[int]) -> None:
    """Raise ValueError where results are of other lengths than those that are asked for."""
    if list(kept) != list(lengths):
        raise ValueError(f"lengths {kept} in place of {lengths}")


def _read_array(kept: Any, axes: int, width: int | None = None) -> Float[np.ndarray, ...]:
    """Return an array of numbers.

    Raises ValueError for what is no number, for other axes, and for another last axis than ``width``.
    """
    array = np.asarray(kept)
    if not array.size and axes:
        return array.astype(float).reshape((0, width or 0)[:axes])
    if array.dtype.kind not in "if" or array.ndim != axes or (width is not None and array.shape[-1] != width):
        raise ValueError(f"an array of {array.dtype} of shape {array.shape}")
    return array.astype(float)
