"""What the page says of relative places and of alike neighbours follows from the trials that are kept."""

from __future__ import annotations

import json

import places
import pytest
import torch


def test_what_is_kept_follows_from_the_trials_and_verdicts_turn_with_them() -> None:
    trials = json.loads(places.TRIALS.read_text("utf8"))
    assert {"places": places.summarize(trials)} == json.loads(places.KEPT.read_text("utf8"))
    swapped = {**trials, "back, both, 1": trials["back, sine, 1"], "back, sine, 1": trials["back, both, 1"]}
    assert places.summarize(swapped)["back, sine, 1, unseen, verdict"] == "more"


@pytest.mark.parametrize("cosine", places.ALIKE)
def test_neighbours_are_as_alike_as_is_asked(cosine: float) -> None:
    rows_ND = torch.stack([places.make_alike_rows(cosine, seed) for seed in range(20)])
    measured = torch.cosine_similarity(rows_ND[:, 1:], rows_ND[:, :-1], dim=-1).mean()
    assert float(measured) == pytest.approx(cosine, abs=0.03)
