"""What was measured is not measured again, unless something that it depends on has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from clockhands.errors import DataError
from clockhands.extension.archive import Archive
from clockhands.extension.drift import Drift
from clockhands.extension.retrieval import Retrieval


def never() -> float:
    raise AssertionError("measured again")


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    archive = Archive(path, "a")
    drift = Drift((2, 4), 1, np.array([[1.5, np.nan]]))
    retrieval = Retrieval(
        (2, 4), {"recall": np.array([[0.5, 1.0]])}, {}, {"recall": np.array([[0.5, np.nan]])}, {"recall": 5}, "x y"
    )
    archive.keep_number("loss", lambda: np.inf)
    archive.keep_drift("key", (2, 4), lambda: drift)
    archive.keep_retrieval("key", [2, 4], lambda: retrieval)
    again = Archive(path, "a")
    assert again.keep_number("loss", never) == np.inf
    np.testing.assert_equal(again.keep_drift("key", (2, 4), never).losses_NR, drift.losses_NR)
    kept = again.keep_retrieval("key", (2, 4), never)
    assert kept.ranks["recall"].tolist() == [[0.5, 1.0]] and kept.questions == {"recall": 5}
    np.testing.assert_equal(kept.by_depth["recall"], [[0.5, np.nan]])
    with pytest.raises(AssertionError, match="measured again"):
        Archive(path, "b").keep("loss", never)


@pytest.mark.parametrize(
    ("key", "damaged"),
    [
        ("loss", "no number"),
        ("loss", None),
        ("loss", True),
        ("loss", "1.5"),
        ("loss", float("nan")),
        ("loss", 10**299),
        ("key/array", [[1.0], [2.0]]),
        ("key/array", {"a": 1}),
        ("key/drift", {"lengths": [2, 4], "tail": 1, "losses_NR": [[1.5]]}),
        ("key/drift", {"lengths": 2, "tail": 1, "losses_NR": [[1.5]]}),
        ("key/drift", {"lengths": [1, 2], "tail": 1, "losses_NR": [[1.5, 1.5]]}),
        ("key/drift", {"lengths": [2, float("inf")], "tail": 1, "losses_NR": [[1.5, 1.5]]}),
        ("key/drift", {"lengths": "24", "tail": 1, "losses_NR": [[1.5, 1.5]]}),
        ("key/drift", {"lengths": [2, 4], "tail": 1, "losses_NR": []}),
        ("key/drift", {"lengths": [2, 4], "tail": 1, "losses_NR": [[1.5, None]]}),
        ("key/drift", ["lengths", "tail"]),
        ("key/retrieval", {"lengths": [2, 4], "ranks": 7, "control": {}, "by_depth": {}, "questions": {}}),
        ("key/retrieval", {"lengths": [2, 4], "ranks": {"recall": [[1.0]]}, "control": {}, "by_depth": {},
                           "questions": {}, "writing": ""}),
    ],
)  # fmt: skip
def test_results_that_are_damaged_are_refused_with_their_name(tmp_path: Path, key: str, damaged: object) -> None:
    """A file with the right signature, whose results somebody changed."""
    path = tmp_path / "measured.json"
    path.write_text(json.dumps({"signature": "a", "results": {key: damaged}}))
    archive, name = Archive(path, "a"), key.partition("/")[0]
    read: dict[str, Callable[[], object]] = {
        "loss": lambda: archive.keep_number(name, never),
        "key/array": lambda: archive.keep_array(name, never),  # type: ignore[arg-type, return-value]
        "key/drift": lambda: archive.keep_drift(name, (2, 4), never),  # type: ignore[arg-type, return-value]
        "key/retrieval": lambda: archive.keep_retrieval(name, (2, 4), never),  # type: ignore[arg-type, return-value]
    }
    with pytest.raises(DataError, match=rf"what .*measured\.json holds of {name} is damaged.*remove the file"):
        read[key]()


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text("[1")
    with pytest.raises(DataError, match="cannot be read, so the command cannot go on from it"):
        Archive(tmp_path / "measured.json")
    (tmp_path / "measured.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="cannot be read"):
        Archive(tmp_path / "measured.json")
