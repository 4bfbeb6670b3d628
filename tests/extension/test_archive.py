"""What was measured is not measured again, unless something that it depends on has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from clockhands.errors import DataError
from clockhands.extension import make_signature
from clockhands.extension.archive import Archive
from clockhands.extension.reading import Drift
from clockhands.extension.retrieval import Retrieval
from clockhands.models import open_language_model
from tests.runs.tiny import save_model

DRIFT = Drift((2, 4), 1, np.array([[1.5, np.nan]]))


def never() -> Any:
    raise AssertionError("measured again")


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    archive = Archive(path, "a")
    retrieval = Retrieval(
        (2, 4), {"recall": np.array([[0.5, 1.0]])}, {}, {"recall": np.array([[0.5, np.nan]])}, {"recall": 5}, "x y"
    )
    archive.keep("loss", lambda: np.inf)
    archive.keep_array("key", lambda: np.array([1.0, 2.0]))
    archive.keep_drift("key", lambda: DRIFT)
    archive.keep_retrieval("key", lambda: retrieval)
    again = Archive(path, "a")
    assert again.keep("loss", never) == np.inf and again.keep_array("key", never).tolist() == [1.0, 2.0]
    drift = again.keep_drift("key", never)
    np.testing.assert_equal(drift.losses_NR, DRIFT.losses_NR)
    assert (drift.lengths, drift.tail) == ((2, 4), 1)
    kept = again.keep_retrieval("key", never)
    assert kept.ranks["recall"].tolist() == [[0.5, 1.0]] and kept.questions == {"recall": 5}
    np.testing.assert_equal(kept.by_depth["recall"], [[0.5, np.nan]])
    with pytest.raises(AssertionError, match="measured again"):
        Archive(path, "b").keep("loss", never)


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: kept["results"].update({"loss": 1.25}),
        lambda kept: kept["results"].update({"loss": "1.5"}),
        lambda kept: kept["results"]["key/drift"]["losses_NR"][0].pop(),
        lambda kept: kept["results"].pop("loss"),
        lambda kept: kept.update({"signature": "b"}),
        lambda kept: kept.pop("digest"),
        lambda kept: kept.update({"results": 7}),
    ],
)
def test_results_that_somebody_changed_are_refused(tmp_path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = tmp_path / "measured.json"
    archive = Archive(path, "a")
    archive.keep("loss", lambda: 1.5)
    archive.keep_drift("key", lambda: DRIFT)
    kept = json.loads(path.read_text())
    change(kept)
    path.write_text(json.dumps(kept))
    with pytest.raises(DataError, match=r"measured\.json is damaged, so .* cannot go on from it; remove the file"):
        Archive(path, "a")


@pytest.mark.parametrize("text", ["[1", "[" * 100_000, "7", "{}"])
def test_a_file_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text(text)
    with pytest.raises(DataError, match="is damaged, so the command cannot go on from it"):
        Archive(tmp_path / "measured.json")


STREAM = np.arange(50)


def sign(folder: Path, stream: Any = STREAM, weights: str | None = None, **settings: Any) -> str:
    return make_signature(open_language_model(folder, weights=weights), stream, settings)


def change_a_weight(folder: Path) -> None:
    file = folder / "model.safetensors"
    state = {name: weight.clone() for name, weight in load_file(file).items()}
    state["model.norm.weight"][0] += 1e-3
    save_file(state, file, metadata={"format": "pt"})


@pytest.mark.parametrize("weights", [None, "streamed"])
def test_what_results_depend_on_changes_the_signature_and_the_folder_does_not(
    weights: str | None, tmp_path: Path
) -> None:
    folder = save_model(tmp_path / "model", "llama")
    before = sign(folder, weights=weights, trained=32)
    assert sign(folder, weights=weights, trained=32) == before
    assert sign(folder, weights=weights, trained=64) != before
    assert sign(folder, STREAM + 1, weights, trained=32) != before
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 500.0
    (folder / "config.json").write_text(json.dumps(config))
    other = sign(folder, weights=weights, trained=32)
    assert other != before
    moved = folder.rename(tmp_path / "moved")
    assert sign(moved, weights=weights, trained=32) == other
    change_a_weight(moved)
    assert sign(moved, weights=weights, trained=32) != other


def test_weights_in_bfloat16_can_be_hashed(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", "llama")
    model = open_language_model(folder, dtype=torch.bfloat16)
    assert make_signature(model, STREAM, {}) != sign(folder)
