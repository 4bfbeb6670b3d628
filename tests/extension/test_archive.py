"""What was measured is not measured again, unless something that it depends on has changed."""

from __future__ import annotations

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
    archive.keep("loss", lambda: np.inf)
    archive.keep_drift("key", lambda: drift)
    archive.keep_retrieval("key", lambda: retrieval)
    again = Archive(path, "a")
    assert again.keep("loss", never) == np.inf
    np.testing.assert_equal(again.keep_drift("key", never).losses_NR, drift.losses_NR)
    kept = again.keep_retrieval("key", never)
    assert kept.ranks["recall"].tolist() == [[0.5, 1.0]] and kept.questions == {"recall": 5}
    np.testing.assert_equal(kept.by_depth["recall"], [[0.5, np.nan]])
    with pytest.raises(AssertionError, match="measured again"):
        Archive(path, "b").keep("loss", never)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text("[1")
    with pytest.raises(DataError, match="cannot be read, so the command cannot go on from it"):
        Archive(tmp_path / "measured.json")
