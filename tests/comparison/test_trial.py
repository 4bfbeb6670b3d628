"""A trial as a line of a file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clockhands.comparison import Trial
from tests.answers import kept


@pytest.mark.parametrize("name", ["scale", "how-far", "why-sine-and-cosine"])
def test_committed_trials_are_written_as_they_were(name: str) -> None:
    """Translators with measures inside, language models on longer windows, and a model with nothing to measure."""
    lines = kept.read_text(name).partition('"trials": [\n')[2].removesuffix("\n]}\n")
    for line in map(json.loads, lines.split(",\n")):
        written = json.loads(json.dumps(Trial.from_dict(line).to_dict()))
        assert leave_out_usual(written) == leave_out_usual(line)


def leave_out_usual(value: Any) -> Any:
    """Leave out of tables what a trial has where nothing is written."""
    if not isinstance(value, dict):
        return value
    kept = {name: leave_out_usual(own) for name, own in value.items()}
    return {name: own for name, own in kept.items() if own not in (None, {}, [])}


def test_a_trial_that_did_not_finish_says_why() -> None:
    trial = Trial("rope", 3, "diverged", version="0.1.0", error="the loss is nan")
    assert trial.to_dict() == {
        "variant": "rope", "seed": 3, "version": "0.1.0", "status": "diverged", "error": "the loss is nan",
    }  # fmt: skip
    assert Trial.from_dict(trial.to_dict()) == trial
    assert not trial.finished and trial.items_N.size == 0 and trial.measured.after == {}


def test_exact_match_is_in_percent_and_groups_come_back_from_a_line() -> None:
    trial = Trial("rope", 1, "finished", items="0110", groups=(0, 1, 1, 0))
    assert trial.items_N.tolist() == [0.0, 100.0, 100.0, 0.0]
    assert Trial("rope", 1, "finished", items=(0.5, 2.0)).items_N.tolist() == [0.5, 2.0]
    assert Trial.from_dict(json.loads(json.dumps(trial.to_dict()))).groups == (0, 1, 1, 0)
    assert "groups" not in Trial("rope", 1, "finished", items="0110").to_dict()


def test_what_is_no_trial_is_refused() -> None:
    good = Trial("rope", 1, "finished", items="0110").to_dict()
    for changed, said in (
        ({"status": "lost"}, "status: Input should be 'finished', 'diverged' or 'failed'"),
        ({"seed": "x"}, "seed: Input should be a valid integer"),
        ({"items": "01a"}, "exact match of an item is 0 or 1"),
        ({"items": None}, "a finished trial has the metric of at least one test item"),
        ({"items": [1.0, float("nan")]}, "items.1: Input should be a finite number"),
        ({"items": [1.0, 1e200]}, "no score of an item is above 1e\\+100"),
        ({"scores": {"loss": float("nan")}}, "scores.loss: Input should be a finite number"),
        ({"longer": {"far": {"loss": float("inf")}}}, "longer.far.loss: Input should be a finite number"),
        ({"curve": [[1]]}, "curve.0.1: Field required"),
    ):
        with pytest.raises(ValueError, match=said):
            Trial.from_dict({**good, **changed})
    for other in ({"variant": "rope"}, [good], None):
        with pytest.raises(ValueError):
            Trial.from_dict(other)
