"""What was measured already, in a file beside the result, so that a stopped command goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.errors import DataError
from clockhands.extension.drift import Drift
from clockhands.extension.retrieval import Retrieval
from clockhands.files import write_text
from clockhands.shapes import Float

__all__ = ["Archive"]

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
                read = json.loads(path.read_text("utf8"))
                self.results = dict(read["results"]) if read["signature"] == signature else {}
            except (OSError, ValueError, KeyError, TypeError) as fault:
                raise DataError(f"{path} cannot be read, so the command cannot go on from it; remove it") from fault

    def keep(self, key: str, measure: Callable[[], Any]) -> Any:
        """Return what is kept under a key; measure and keep it, if nothing is."""
        if key not in self.results:
            self.results[key] = measure()
            if self.path is not None:
                write_text(self.path, json.dumps({"signature": self.signature, "results": self.results}))
        return self.results[key]

    def keep_array(self, key: str, measure: Callable[[], Float[np.ndarray, " N"]]) -> Float[np.ndarray, " N"]:
        """Do as ``keep`` with an array."""
        return np.asarray(self.keep(f"{key}/array", lambda: measure().tolist()), float)

    def keep_drift(self, key: str, measure: Callable[[], Drift]) -> Drift:
        """Do as ``keep`` with a ``Drift``."""

        def flatten() -> dict[str, Any]:
            drift = measure()
            return {"lengths": drift.lengths, "tail": drift.tail, "losses_NR": drift.losses_NR.tolist()}

        kept = self.keep(f"{key}/drift", flatten)
        return Drift(tuple(kept["lengths"]), kept["tail"], np.asarray(kept["losses_NR"], float))

    def keep_retrieval(self, key: str, measure: Callable[[], Retrieval]) -> Retrieval:
        """Do as ``keep`` with a ``Retrieval``."""

        def flatten() -> dict[str, Any]:
            retrieval = measure()
            return {
                "lengths": retrieval.lengths,
                **{name: {task: rows.tolist() for task, rows in getattr(retrieval, name).items()} for name in ARRAYS},
                "questions": dict(retrieval.questions),
                "writing": retrieval.writing,
            }

        kept = self.keep(f"{key}/retrieval", flatten)
        ranks, control, depths = (
            {task: np.asarray(rows, float) for task, rows in kept[name].items()} for name in ARRAYS
        )
        return Retrieval(tuple(kept["lengths"]), ranks, control, depths, kept["questions"], str(kept["writing"]))
