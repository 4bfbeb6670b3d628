"""The models of the site are kept small, run in its page, and are what their command trains."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest
from docs.make_models import MODELS, STEPS, list_names, read_models, train_models, write_live_page
from question import read_questions

KEPT = {model.data["id"]: model for model in read_models()}
MOST_BYTES = 2_500_000


def count_right(data: Mapping[str, Mapping]) -> dict[str, int]:
    """Return how many held-out texts each model gets right untouched."""
    return {name: model["measured"][0]["right"] for name, model in data.items()}


def check_verdicts(right: Mapping[str, int]) -> None:
    """What the scenes show, of the models that there are."""
    if "numbers" in right:  # without √d it learns later, and as much
        for step in STEPS[:-1]:
            assert right[f"numbers-{step}"] > right[f"numbers-no-scale-{step}"] + 20
        assert min(right["numbers"], right["numbers-no-scale"]) > 190
    if "roles" in right:
        lost = {"roles-no-position", "roles-no-residual"}
        roles = {name: count for name, count in right.items() if name.startswith("roles")}
        assert max(roles[name] for name in lost) < 100
        assert min(count for name, count in roles.items() if name not in lost) > 150


def test_all_models_together_are_small() -> None:
    assert [*KEPT] == list_names()
    assert sum(len(model.weights) for model in KEPT.values()) <= MOST_BYTES
    assert all(model.data["weights"]["type"] == "float16" for model in KEPT.values())


def test_the_kept_models_show_what_the_pages_say() -> None:
    right = count_right({name: model.data for name, model in KEPT.items()})
    check_verdicts(right)
    seeing, blind = (KEPT[name].data["twins"] for name in ("roles", "roles-no-position"))
    assert [*seeing.values()] == ["Tomo mordis hundon", "hundo mordis Tomon"]
    assert len({*blind.values()}) == 1


def test_the_page_holds_every_model_and_leads_to_every_answer() -> None:
    page = write_live_page("answers")
    (data,) = re.findall(r'<script type="application/json" id="explorer-data">(.*?)</script>', page, re.DOTALL)
    assert [model["id"] for model in json.loads(data)["models"]] == list_names()
    assert all(f'href="answers/{name}.html"' in page for name in read_questions())


@pytest.mark.slow
@pytest.mark.parametrize("task", ["numbers", "roles"])
def test_what_is_kept_is_what_the_command_trains(task: str) -> None:
    """Trained again: the verdicts hold, though a processor that adds in another order gives other weights."""
    names = [name for name in MODELS if name.startswith(task)]
    trained = {model.data["id"]: model.data for name in names for model in train_models(name)}
    check_verdicts(count_right(trained))
