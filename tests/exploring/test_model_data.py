"""A model as data for the page: its numbers are those of the model, and it is refused where it cannot run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clockhands.errors import UsageError
from clockhands.exploring.model_data import describe_model
from tests.exploring.models import PAIRS, make_run


def test_the_data_are_those_of_the_model(tmp_path: Path) -> None:
    run = make_run(tmp_path, norm="pre", num_kv_heads=1, encoder="t5", decoder={"scheme": "t5", "logit_scale": "none"})
    model = describe_model(run, "one", "One", "three sentences", PAIRS)
    data = json.loads(json.dumps(model.data))
    assert (data["id"], data["label"], data["task"]) == ("one", "One", "three sentences")
    assert data["config"]["parameters"] == sum(parameter.numel() for parameter in run.model.parameters())
    rules = data["rules"]
    assert (rules["preNorm"], rules["finalNorm"], rules["keyHeads"]) == (True, True, 1)
    assert rules["attentionScale"] == {"encoder": 0.5, "decoder": 1.0, "cross": 0.5}
    assert rules["tokenScale"]["encoder"] == pytest.approx(8**0.5)
    assert (rules["startId"], rules["endIds"]) == (1, [2])
    assert data["heldOut"][0] == {"source": "Tom bit a dog", "target": "Tom mordis hundon"}
    assert data["targetTokens"] is None and len(data["tokens"]) == data["config"]["vocabulary"]
    assert data["weights"] == {"element": "explorer-weights-one", "type": "float16"}


def test_what_cannot_run_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, encoder="fire", decoder="fire")
    with pytest.raises(UsageError, match=r"encoder.scheme = 'fire'"):
        describe_model(run, "one", "One", "", PAIRS)
