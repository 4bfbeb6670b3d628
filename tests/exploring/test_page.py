"""The page: it holds the models whole, lets no other script run, and tells without script what was measured."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
import torch

import clockhands
from clockhands.errors import CheckpointError
from clockhands.exploring.controls import UNTOUCHED, measure
from clockhands.exploring.model_data import ExplorerModel, describe_model
from clockhands.exploring.page import describe_offer, find_tour_models, make_page, name_models, prepare_model
from clockhands.inspection import open_subject
from clockhands.inspection.reading.windows import choose_windows
from clockhands.inspection.run import DEFAULT_COUNT
from clockhands.runs import Run
from tests.exploring.models import PAIRS, make_run
from tests.studies.tour.short import shorten_tour


@pytest.fixture(scope="module")
def model(translator: Run) -> ExplorerModel:
    return prepare_model(translator, "roles", "who <bit> whom")


@pytest.fixture(scope="module")
def page(model: ExplorerModel) -> str:
    return make_page([model], "clockhands explore runs/<x>")


def test_the_data_and_weights_are_read_back_exactly(model: ExplorerModel, page: str) -> None:
    (data,) = re.findall(r'<script type="application/json" id="explorer-data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(data)["models"] == [json.loads(json.dumps(model.data))]
    (numbers,) = re.findall(r'<script type="text/plain" id="explorer-weights-roles">(.*?)</script>', page, re.DOTALL)
    assert base64.b64decode(numbers) == model.weights


def test_what_two_models_have_in_common_stands_there_once(model: ExplorerModel) -> None:
    other = ExplorerModel({**model.data, "id": "other", "tokens": model.data["tokens"][:-1]}, model.weights)
    page = make_page([model, other], "make docs")
    (data,) = re.findall(r'<script type="application/json" id="explorer-data">(.*?)</script>', page, re.DOTALL)
    first, second = json.loads(data)["models"]
    assert first["heldOut"] == json.loads(json.dumps(model.data["heldOut"]))
    assert second["heldOut"] == second["trained"] == "roles" and second["tokens"] == first["tokens"][:-1]


def test_the_policy_names_the_one_script_and_nothing_is_asked_for(page: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;; worker-src blob:" in policy
    assert policy.startswith("default-src &#39;none&#39;")
    assert not re.search(r"<(?:script|link|img)[^>]*(?:src|href)=\"(?!data:)", page)


def test_what_was_measured_stands_there_without_script(model: ExplorerModel, page: str) -> None:
    told = page[: page.index('<script type="application/json"')]
    for count in model.data["measured"]:
        assert count["name"] in told
    right = next(count["right"] for count in model.data["measured"] if count["name"] == UNTOUCHED)
    assert f"who &lt;bit&gt; whom: {right} of 40" in told
    assert "clockhands explore runs/&lt;x&gt;" in told and "<bit>" not in page and "<x>" not in page


def test_the_answers_to_the_questions_stand_there_without_script(model: ExplorerModel, page: str) -> None:
    told = html.unescape(page[: page.index('<script type="application/json"')])
    for file in (files("clockhands.studies") / "questions").iterdir():
        name, question = file.name.removesuffix(".toml"), tomllib.loads(file.read_text("utf8"))
        section = told[told.index(f'id="answer-{name}"') :]
        places = [section.index(text) for text in (question["asked"], question["answer"], f"docs/answers/{name}.md")]
        assert places == sorted(places)
    assert "[" not in told[told.index('id="answers"') :], "an interval of an evidence page"
    assert '<a href="answers/scale.html">' in make_page([model], "make docs", answers_at="answers")


def test_one_model_needs_no_table_of_models(model: ExplorerModel, page: str) -> None:
    other = ExplorerModel({**model.data, "id": "other", "label": "other"}, model.weights)
    for shown, rows in ((page, 0), (make_page([model, other], "clockhands explore"), 3)):
        section = shown[shown.index('id="explore.untouched"') :]
        assert section[: section.index("</section>")].count("<tr>") == rows


def test_it_says_that_no_model_is_trained_again(page: str) -> None:
    told = page[: page.index('<script type="application/json"')]
    assert "not what a model trained with that change would learn" in told


def test_runs_of_one_name_get_numbers(tmp_path: Path) -> None:
    assert name_models([tmp_path / "a/rope", "b/rope", str(tmp_path / "c/no position")]) == [
        "rope",
        "rope-2",
        "no-position",
    ]


def test_lengths_are_those_that_inspect_measures(translator: Run, model: ExplorerModel) -> None:
    subject = open_subject(translator.path)
    windows = choose_windows(subject, None, None, DEFAULT_COUNT)
    rows_ND = subject.read_tables(windows.ids_NT.shape[1])
    assert rows_ND is not None
    words = rows_ND.tokens_VD[windows.ids_NT[:, windows.ordinary_T & (torch.arange(windows.ids_NT.shape[1]) > 0)]]
    assert model.data["lengths"]["word"] == pytest.approx(float(words.norm(dim=-1).mean()), rel=1e-5)
    # A row of 16 sines and cosines has the length 4 at every position.
    assert model.data["lengths"]["position"] == pytest.approx(4, rel=1e-5)
    assert "writes a page in which it runs" in describe_offer(subject, str(translator.path))
    assert subject.count_parameters() == model.data["config"]["parameters"]


def test_a_page_of_four_models_as_large_as_the_tours_is_at_most_3_2_megabytes(tmp_path: Path) -> None:
    sizes = {"d_model": 64, "num_heads": 4, "d_ff": 256, "encoder_layers": 2, "decoder_layers": 2, "norm": "pre"}
    models = []
    for name in ("numbers", "roles", "roles-no-position", "numbers-no-scale"):
        run = make_run(tmp_path / name, **sizes)
        model = describe_model(run, name, name, "", 100 * PAIRS)
        model.data["measured"] = models[0].data["measured"] if models else measure(run, PAIRS)
        models.append(model)
    assert models[0].data["config"]["parameters"] > 230_000
    assert len(make_page(models, "clockhands explore").encode()) < 3.2e6


@pytest.mark.slow
def test_an_absent_tour_is_run_and_then_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_tour(monkeypatch)
    said: list[str] = []
    found = find_tour_models(tmp_path / "tour", show=False, say=said.append)
    assert [key for key, _ in found] == ["numbers", "roles", "roles-no-position", "numbers-no-scale"]
    assert all(run.finished for run in found.values())
    assert said[0] == f"there is no tour in {tmp_path / 'tour'} yet: it is run first"
    assert (tmp_path / "tour" / "report.html").is_file()
    assert found == find_tour_models(tmp_path / "tour", show=False, say=pytest.fail)


def test_a_folder_without_the_tour_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a training run"):
        find_tour_models(tmp_path, show=False, say=pytest.fail)


def test_one_path_is_one_model() -> None:
    with pytest.raises(CheckpointError, match="no folder nowhere"):
        clockhands.explore("nowhere")
