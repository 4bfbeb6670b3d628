"""The model card: it says what the run was, is the same for the same run, and leaves somebody's own card alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

from clockhands.errors import ClockhandsWarning
from clockhands.findings import Finding, Findings
from clockhands.runs import Run
from clockhands.runs.card import describe_perplexity, make_card, write_card
from clockhands.runs.folder import CARD, CARD_MARK
from clockhands.training import train

SMALL = {"preset": "tiny", "d_model": 16, "num_heads": 2, "d_ff": 16}
RECIPES = {
    "translation": {
        "data": {"corpus": "roles", "train": 40, "validation": 4, "test": 4},
        "tokenizer": {"kind": "word"},
        "model": {**SMALL, "encoder_layers": 1, "decoder_layers": 1},
        "position": {"scheme": "rope", "base": 500.0},
    },
    "text-generation": {
        "data": {"corpus": "text", "unit": "file", "holdout": 0.2},
        "tokenizer": {"kind": "character"},
        "model": {**SMALL, "kind": "decoder", "decoder_layers": 1},
        "position": {"scheme": "alibi"},
        "batches": {"size": 4, "window": 17},
    },
    "fill-mask": {
        "data": {"corpus": "text", "unit": "file", "holdout": 0.2},
        "tokenizer": {"kind": "character"},
        "model": {**SMALL, "kind": "encoder", "encoder_layers": 1},
        "position": {"scheme": "learned"},
        "batches": {"size": 4, "window": 17},
    },
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("card")
    (folder / "text.txt").write_text("the cat sat on the mat. " * 40, encoding="utf8")
    out = {}
    for task, tables in RECIPES.items():
        recipe = {**tables, "training": {"max_steps": 2, "eval_steps": 1, "threads": 1}}
        if recipe["data"]["corpus"] == "text":
            recipe["data"] = {**recipe["data"], "train": [str(folder / "text.txt")]}
        out[task] = train(recipe, folder / task / "my run", draw=False)
    return out


@pytest.fixture(params=RECIPES)
def trained(request: pytest.FixtureRequest, runs: dict[str, Run]) -> tuple[str, Run]:
    return request.param, runs[request.param]


def test_train_writes_a_card_that_the_hub_reads(trained: tuple[str, Run]) -> None:
    task, run = trained
    card = ModelCard.load(run.path / CARD)
    assert (card.data.pipeline_tag, card.data.library_name) == (task, "transformers")
    assert RECIPES[task]["position"]["scheme"] in card.data.tags
    losses = {line["step"]: line["validation_loss"] for line in run.metrics if "validation_loss" in line}
    assert f"after 2 steps is {losses[2]:.4f} nats" in card.text
    assert f"{run.record['parameters']:,} parameters" in card.text and "\n# my run\n" in card.text
    assert str(run.path.parent) not in card.content, "a card goes to other machines: it names no path of this one"
    assert make_card(run) == card.content


APART = """
import os, sys
import transformers.modeling_utils
assert not [name for name in sys.modules if name.startswith("clockhands")]
for folder in sys.argv[1:]:
    if os.fork() == 0:
        os.chdir(folder)
        break
    if os.waitstatus_to_exitcode(os.wait()[1]):
        sys.exit(f"what the card in {folder} says does not run")
    for name in open(folder + "/imported").read().split():
        __import__(name)
    assert not [name for name in sys.modules if name.startswith("clockhands")]
else:
    sys.exit()
exec(open("said.py", encoding="utf8").read(), {"__name__": "__main__"})
"""
"""Runs said.py in each folder in a process of its own, which parts from one that has imported transformers alone.

After the first, also what the first imported, but for all that is ours: that takes most of the time of the others.
"""
LOGITS = """
import torch
ids = torch.tensor([[4, 5, 6]])
more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
with open("logits", "w") as file:
    file.write(str(model.eval()(input_ids=ids, **more).logits.double().sum().item()))
model.save_pretrained("again")
import sys
others = [name for name in sys.modules if not name.startswith(("clockhands", "transformers_modules", "__"))]
with open("imported", "w") as file:
    file.write(" ".join(name for name in others if " " not in name))
"""


def test_what_the_cards_say_of_python_is_true(runs: dict[str, Run], tmp_path: Path) -> None:
    """A new process that imports only transformers opens the folder by the card's own lines, and gets our logits."""
    folders = {task: shutil.copytree(run.path, tmp_path / task / "my run") for task, run in runs.items()}
    for folder in folders.values():
        code = (folder / CARD).read_text("utf8").partition("```python\n")[2].partition("```")[0]
        (folder / "said.py").write_text(code + LOGITS, encoding="utf8")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", APART, *folders.values()], capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, env={**environment, "HF_MODULES_CACHE": str(tmp_path / "modules")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    asked = done.stdout + done.stderr
    assert "Do you wish" not in asked and "of type ``" not in asked, "the lines ask nothing, and wait for no answer"
    for task, folder in folders.items():
        model, ids_BT = runs[task].model, torch.tensor([[4, 5, 6]])
        more = {"decoder_input_ids": ids_BT} if model.config.is_encoder_decoder else {}
        with torch.no_grad():
            expected = model(input_ids=ids_BT, **more).logits.double().sum().item()
        assert float((folder / "logits").read_text()) == pytest.approx(expected, rel=1e-6), task
        saved = json.loads((folder / "again" / "config.json").read_text("utf8"))
        assert "auto_map" not in saved, "it would name a file that save_pretrained does not write"


def test_a_card_of_the_user_stays(trained: tuple[str, Run]) -> None:
    _, run = trained
    path = run.path / CARD
    written = path.read_text("utf8")
    try:
        path.write_text(written.replace(CARD_MARK, "").replace("my run", "mine"), encoding="utf8")
        assert write_card(run) is None and "# mine" in path.read_text("utf8")
    finally:
        path.write_text(written, encoding="utf8")
    path.write_text(written.replace("my run", "mine"), encoding="utf8")
    assert write_card(run) == path and path.read_text("utf8") == written


def test_findings_beside_the_model_are_told(trained: tuple[str, Run]) -> None:
    _, run = trained
    path = run.path / "findings.json"
    finding = Finding("a.b", "Does order matter?", "Yes, in this model.")
    Findings("Title", (finding,), command="clockhands inspect it").save(path)
    try:
        assert "- **Does order matter?** Yes, in this model." in make_card(run)
        for damaged in ("[]", "[" * 9_000, "{", '{"schema": 2}'):
            path.write_text(damaged)
            with pytest.warns(ClockhandsWarning, match="leaves the findings out: cannot read the findings in"):
                assert "## Findings" not in make_card(run), "a training that has ended is whole without them"
    finally:
        path.unlink()
    assert "## Findings" not in make_card(run)


def test_a_loss_that_exploded_has_no_perplexity_that_says_something() -> None:
    assert describe_perplexity(0.6931471805599453) == "perplexity 2.0"
    assert describe_perplexity(800.0) == describe_perplexity(float("inf")) == "perplexity above e^50"
