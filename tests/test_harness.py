"""lm-evaluation-harness over our models: its log-likelihoods are those of the model itself."""

from __future__ import annotations

import importlib.util
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from clockhands.errors import UsageError
from clockhands.models import open_language_model
from clockhands.runs import Run
from tests.generation.conftest import writer
from tests.runs.tiny import LENGTH, save_model

if importlib.util.find_spec("lm_eval") is None:
    pytest.skip("lm-eval is not installed: pip install '.[harness]'", allow_module_level=True)

from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.tasks import TaskManager

from clockhands import harness

__all__ = ["writer"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("llama") / "llama", "llama")


def ask(model: Any, context: str, continuation: str) -> tuple[float, bool]:
    request = Instance("loglikelihood", doc={}, arguments=(context, continuation), idx=0)
    return model.loglikelihood([request], disable_tqdm=True)[0]


def score(source: Path, context: str, continuation: str, **position: Any) -> float:
    """The same sum by one forward pass of the model."""
    opened = open_language_model(source, device="cpu", position=position)
    first = opened.tokenizer(context)["input_ids"]
    ids = opened.tokenizer(context + continuation)["input_ids"]
    with torch.no_grad():
        logp_TV = opened.model(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
    return sum(float(logp_TV[at - 1, ids[at]]) for at in range(len(first), len(ids)))


@pytest.fixture
def run(writer: Run) -> Path:
    return writer.path


@pytest.mark.parametrize("which", ["llama", "run"])
def test_log_likelihoods_are_those_of_the_model(which: str, request: pytest.FixtureRequest) -> None:
    source = request.getfixturevalue(which)
    model = get_model("clockhands")(pretrained=str(source), device="cpu", batch_size=2)
    assert model.max_length == (LENGTH if which == "llama" else open_language_model(source).trained_length)
    found, _ = ask(model, "the cat", " sat on")
    assert found == pytest.approx(score(source, "the cat", " sat on"), abs=1e-4)


@pytest.mark.parametrize("which", ["llama", "run"])
def test_other_positions_change_them(which: str, request: pytest.FixtureRequest) -> None:
    source = request.getfixturevalue(which)
    changed = {"position.spectrum": "linear", "position.factor": "4"}
    model = harness.ClockhandsLM(str(source), device="cpu", **changed)
    found, _ = ask(model, "the cat", " sat on")
    assert found == pytest.approx(score(source, "the cat", " sat on", spectrum="linear", factor=4), abs=1e-4)
    assert abs(found - score(source, "the cat", " sat on")) > 1e-4
    assert model.max_length == 4 * open_language_model(source).trained_length


def test_what_it_refuses(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="spektrum"):
        harness.ClockhandsLM(str(llama), device="cpu", **{"position.spektrum": "yarn"})
    learned = save_model(tmp_path / "gpt2", "gpt2")
    with pytest.raises(UsageError, match="max_length is 64"):
        harness.ClockhandsLM(str(learned), device="cpu", max_length=64)


TASK = """\
task: which_follows
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: " "
metric_list: [{{metric: acc}}]
"""


@pytest.mark.parametrize("position", [{}, {"spectrum": "linear", "factor": 4}], ids=["as trained", "linear"])
def test_a_task_is_scored_as_the_model_scores_it(
    position: dict[str, Any], llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The harness's own command, offline, on a task of its own format: six questions with two choices each.

    Of the thousands of tasks that come with the harness none is listed, which would take longer than all else.
    """
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("lm_eval.tasks.TaskManager", partial(TaskManager, include_defaults=False))
    words = ["cat", "mat", "hat", "dog", "sun", "sea"]
    rows = [{"context": f"the {word} sat", "choices": [f"on the {word}", "at sea"], "answer": 0} for word in words]
    (tmp_path / "tasks").mkdir()
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf8")
    (tmp_path / "tasks" / "one.yaml").write_text(TASK.format(file=tmp_path / "rows.jsonl"), encoding="utf8")
    arguments = ",".join([f"pretrained={llama}", *(f"position.{name}={value}" for name, value in position.items())])
    command = [
        *("harness", "run", "--model", "clockhands", "--device", "cpu", "--tasks", "which_follows"),
        *("--model_args", arguments),
        *("--include_path", str(tmp_path / "tasks"), "--output_path", str(tmp_path / "result.json"), "--log_samples"),
    ]  # fmt: skip
    monkeypatch.setattr("sys.argv", command)
    assert harness.main() == 0
    (samples,) = tmp_path.rglob("samples_which_follows*.jsonl")
    (result,) = tmp_path.rglob("result*.json")
    wanted = [[score(llama, row["context"], f" {choice}", **position) for choice in row["choices"]] for row in rows]
    written = sorted(map(json.loads, samples.read_text("utf8").splitlines()), key=lambda sample: sample["doc_id"])
    found = [[float(response[0][0]) for response in sample["resps"]] for sample in written]
    assert found == [pytest.approx(pair, abs=1e-3) for pair in wanted]
    right = sum(first > second for first, second in wanted) / len(rows)
    assert json.loads(result.read_text("utf8"))["results"]["which_follows"]["acc,none"] == pytest.approx(right)
