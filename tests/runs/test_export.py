"""A model is exported as a whole, or not at all."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard, constants

from clockhands.cli import main
from clockhands.errors import CheckpointError, ClockhandsWarning
from clockhands.findings import Finding, Findings
from clockhands.runs import Run
from clockhands.runs.export import collect_files, describe_perplexity, export_model, make_card, write_card
from clockhands.runs.folder import CARD, CARD_MARK, add_facts
from clockhands.training import train
from tests.training.tiny import tables


class Files:
    """Saves two files, as a model does."""

    def save_pretrained(self, folder: Path, state_dict: Any) -> None:
        folder.mkdir()
        for name in ("config.json", "model.safetensors"):
            (folder / name).write_text("new")


def test_an_export_that_fails_leaves_no_mixture_that_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_model(tmp_path, Files())  # type: ignore[arg-type]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "config.json": "new",
        "model.safetensors": "new",
    }
    move = Path.replace

    def fail(self: Path, target: Path) -> Path:
        if self.name == "config.json":
            raise OSError(28, "No space left on device")
        return move(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(CheckpointError, match="No space left"):
        export_model(tmp_path, Files())  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tables(max_steps=2), tmp_path_factory.mktemp("hub") / "run", draw=False)


class Hub(BaseHTTPRequestHandler):
    """The few answers that an upload of small files needs; what was committed stays in ``server.committed``."""

    server: Any

    def log_message(self, *_: Any) -> None:
        """Be silent."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.server.asked.append(self.path)
        if self.headers.get("Authorization") != "Bearer hf_right":
            return self.answer({"error": "Invalid credentials"}, 401)
        if self.path == "/api/repos/create":
            self.server.created.append(json.loads(body))
            return self.answer({"url": f"http://{self.headers['Host']}/me/numbers"})
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            return self.answer({"files": [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]})
        if "/commit/" in self.path:
            lines = [json.loads(line) for line in body.splitlines()]
            self.server.committed = {
                line["value"]["path"]: base64.b64decode(line["value"]["content"])
                for line in lines
                if line["key"] == "file"
            }
            url = f"http://{self.headers['Host']}/me/numbers/commit/1"
            return self.answer({"commitUrl": url, "commitOid": "1" * 40, "pullRequestUrl": None})
        return self.answer({"error": "not here"}, 404)

    def do_GET(self) -> None:
        self.answer({"sha": "0" * 40, "id": "me/numbers", "siblings": [], "private": self.server.is_private})

    def answer(self, content: Any, status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def hub() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked, server.created, server.committed, server.is_private = [], [], {}, True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def push(run: Run, endpoint: str, *more: str) -> Any:
    """Run the command in a process of its own: huggingface_hub reads its settings when it is imported."""
    environment = {
        **os.environ, "HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_right", "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
    }  # fmt: skip
    words = [sys.executable, "-m", "clockhands", "push", str(run.path), "me/numbers", *more]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=300)


@pytest.fixture
def here(hub: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hub as this process sees it: what huggingface_hub read from the environment when it was imported, changed."""
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    return hub


def test_a_run_is_uploaded_in_one_commit_and_opens_again(
    run: Run, here: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(run.path), "me/numbers", "--private"]) == 0
    assert capsys.readouterr() == (f"http://127.0.0.1:{here.server_port}/me/numbers\n", "")
    # huggingface_hub 2 asks for a visibility, huggingface_hub 1 for a private repository.
    assert here.created[0].get("visibility") == "private" or here.created[0].get("private") is True
    sent = here.committed
    assert {"README.md", "config.json", "model.safetensors", "modeling_clockhands.py", "tokenizer.json"} <= set(sent)
    assert not {"recipe.toml", "run.json"} & set(sent) and not [name for name in sent if "checkpoint" in name]
    assert not [name for name, content in sent.items() if str(run.path.parent).encode() in content]
    for name, content in sent.items():
        (tmp_path / name).write_bytes(content)
    assert main(["translate", str(tmp_path), "the dog bit Tom", "--device", "cpu"]) == 0


@pytest.mark.slow
def test_the_command_sends_the_same_in_a_process_of_its_own(run: Run, hub: Any) -> None:
    """There huggingface_hub reads its settings from the environment, and may show bars; here they were changed."""
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    done = push(run, endpoint, "--private")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.strip() == f"{endpoint}/me/numbers"
    assert {"README.md", "config.json", "model.safetensors", "modeling_clockhands.py"} <= set(hub.committed)


def test_private_is_not_promised_of_what_is_public(run: Run, here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here.is_private = False
    assert main(["push", str(run.path), "me/numbers", "--private"]) == 2
    assert len(here.created) == 1 and here.committed == {} and "is there and public" in capsys.readouterr().err


def test_no_link_is_followed(run: Run, tmp_path: Path) -> None:
    """A card, and a folder of tokenizers, that lead to files of the user's."""
    (tmp_path / "secret").write_text("secret")
    card, target = run.path / CARD, run.path / "target"
    written = card.read_text("utf8")
    card.unlink()
    card.symlink_to(tmp_path / "secret")
    target.symlink_to(tmp_path)
    try:
        files = collect_files(run.path)
    finally:
        card.unlink()
        target.unlink()
        card.write_text(written, encoding="utf8")
    assert isinstance(files[CARD], bytes) and not [name for name in files if name.startswith("target")]


def test_a_token_that_the_hub_does_not_know(
    run: Run, here: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert main(["push", str(run.path), "me/numbers"]) == 1
    printed, said = capsys.readouterr()
    assert (printed, here.committed) == ("", {}) and here.asked[0] == "/api/repos/create"
    assert said.count("\n") == 1 and "log in with `hf auth login`" in said


def test_offline_and_without_a_network_it_refuses_in_one_sentence(
    run: Run, here: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert main(["push", str(run.path), "me/numbers"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "HF_HUB_OFFLINE is set" in said
    assert here.asked == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert main(["push", str(run.path), "me/numbers"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "cannot be reached" in said


def test_names_that_the_hub_refuses(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a/b/c", "-x", "a b", "", "../../etc"):
        for options in ([], ["--dry-run"]):
            words = ["--", name] if name.startswith("-") else [name]
            assert main(["push", str(run.path), *options, *words]) == 2
            assert "USER/MODEL" in capsys.readouterr().err


def test_a_run_that_is_not_finished_and_links_are_not_sent(run: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    link = run.path / "vocab.txt"
    link.symlink_to(secret)
    try:
        assert "vocab.txt" not in collect_files(run.path)
    finally:
        link.unlink()
    add_facts(run.path, finished=False)
    try:
        with pytest.raises(CheckpointError, match="--resume"):
            collect_files(run.path)
    finally:
        add_facts(run.path, finished=True)


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
    for task, parts in RECIPES.items():
        recipe = {**parts, "training": {"max_steps": 2, "eval_steps": 1, "threads": 1}}
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
