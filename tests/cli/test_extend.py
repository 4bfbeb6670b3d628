"""What the options of ``clockhands extend`` mean: a length, a training, and the command that measures again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from threading import Event, Thread

import pytest
from safetensors.torch import load_file, save_file

from clockhands.cli import Parser, main
from clockhands.cli.extend import UNTOLD, Options, make_tuning
from clockhands.cli.flags import declare, read_options, write_command
from clockhands.errors import UsageError
from clockhands.files import lock_folder
from tests.cli.conftest import Capture, Patch
from tests.runs.tiny import save_masked_model, save_model


def parse(*words: str) -> Options:
    parser = Parser()
    declare(parser, Options)
    return read_options(parser, Options, words)


def test_a_training_has_what_was_asked_for() -> None:
    assert make_tuning(parse("llama")) is None
    tuning = make_tuning(parse("llama", "--train", "3", "--windows", "full", "--seed", "5"))
    assert tuning is not None and (tuning.steps, tuning.windows, tuning.seed) == (3, "full", 5)
    for words in (("--learning-rate", "0.1"), ("--learning-rate", "0"), ("--only", "measure", "--train", "3")):
        with pytest.raises(UsageError, match=r"give --train STEPS|leave out --train"):
            make_tuning(parse("llama", *words))


def test_the_command_says_what_is_not_usual() -> None:
    words = ["llama", "--to", "2x", "--text", "my book.txt", "--texts", "9", "--train", "3", "--learning-rate", "0.1"]
    again = shlex.split(write_command("extend", parse(*words, "--json"), UNTOLD))
    assert again[:2] == ["clockhands", "extend"] and parse(*again[2:]) == parse(*words)
    assert write_command("extend", parse("llama", "--items", "60"), UNTOLD) == "clockhands extend llama"


TEXT = "The clock has many hands, and each turns at its own speed. " * 80
FEW = ["--text", "book.txt", "--texts", "8", "--items", "10", "--trained", "64"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(TEXT)
    Path("short.txt").write_text(TEXT[:100])
    Path("russian.txt").write_text("Часы идут. " * 400)
    Path("notes").mkdir()
    Path("notes", "README.md").write_text("What I know of clocks.")
    Path("notes", "tokenizer.json").write_text("{}")
    Path("filed").mkdir()
    Path("filed", "report").write_text("")
    save_model(tmp_path / "llama", "llama")
    save_model(tmp_path / "mpt", "mpt", attn_config={"alibi": True})
    save_masked_model(tmp_path / "bert")
    return tmp_path


def test_a_chosen_model_is_written_with_card_and_page(capsys: Capture) -> None:
    words = ["extend", "llama", "--to", "2x", *FEW, "--evaluations", "4", "--out", "longer", "--json"]
    assert main(words) == 0
    findings = json.loads(capsys.readouterr().out)
    names = [item["name"] for item in findings["items"]]
    assert names[:5] == ["extend.usable", "extend.drift", "extend.retrieval", "extend.choice", "extend.tried"]
    assert Path("longer/report/index.html").is_file()
    if "written" in findings["facts"]:
        assert Path("longer/README.md").is_file() and names[-1] == "extend.engines"
        assert main(words) == 2
        assert "longer holds a model already" in capsys.readouterr().err


def test_a_trained_model_is_written_as_it_was_trained(capsys: Capture) -> None:
    words = ["extend", "llama", "--to", "2x", *FEW, "--evaluations", "0", "--train", "2", "--out", "tuned", "--json"]
    assert main(words) == 0
    findings = json.loads(capsys.readouterr().out)
    items = {item["name"]: item for item in findings["items"]}
    assert "extend.trained" in items and "steps by its cache" in findings["facts"]["written"]
    for page in ("README.md", "report/index.html"):
        assert items["extend.cache"]["verdict"].partition(":")[2] in Path("tuned", page).read_text("utf8")
    before, after = (load_file(f"{folder}/model.safetensors") for folder in ("llama", "tuned"))
    assert before.keys() == after.keys() and any(not before[name].equal(after[name]) for name in before)
    assert sorted(path.name for path in Path("tuned").glob(".*")) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mpt"], "has no positions that can be extended"),
        (["bert", "--only", "measure"], "the tokenizer in bert has no mask token"),
        (["llama", "--to", "0.5x"], "is 32 tokens, less than the 64 that the model was trained on"),
        (["llama", "--to", "1x"], "--to 1x is the trained length"),
        (["llama", "--to", "far"], "neither a number of tokens nor a multiple"),
        (["llama", "--text", "short.txt"], "too few for 8 texts of 512"),
        (["llama", "--text", "russian.txt"], "are tokens that the tokenizer of llama does not know"),
        (["llama", "--texts", "3"], "argument --texts: the value is 3, but must be at least 8"),
        (["llama", "--margin", "0"], "argument --margin: the value is 0.0, but must be above 0"),
        (["llama", "--trained", "20"], "a trained length of 20 tokens is too short"),
        (["llama", "--out", "llama"], "llama holds a model already"),
        (["llama", "--out", "notes"], "notes holds README.md and tokenizer.json, which would be replaced"),
        (["llama", "--out", "filed"], "filed/report is a file; name another folder with --out"),
        (["llama", "--windows", "full"], "--windows says how to train; give --train STEPS"),
        (["llama", "--only", "measure", "--train", "3"], "--only measure stops before training"),
        (["llama", "--only", "measure", "--evaluations", "0"], "stops before the search; leave out --evaluations"),
        (["llama", "--trained", "0"], "argument --trained: the value is 0, but must be at least 1"),
        (["llama", "--train", "0"], "training takes 1 step"),
        (["llama", "--train", "2", "--weights", "streamed"], "left in their files; to train, give --weights memory"),
        (["mpt", "--train", "2"], "mpt takes no position_ids, so it cannot be trained skip-wise"),
        (["nowhere"], "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(words: list[str], message: str, capsys: Capture) -> None:
    before = sorted(path.name for path in Path().iterdir())
    few = FEW[2:] if "--text" in words else FEW
    assert main(["extend", words[0], *few, *words[1:]]) in (1, 2)
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and message in said[0], said
    assert sorted(path.name for path in Path().iterdir()) == before


@pytest.mark.parametrize(
    "words",
    [
        ["generate", "llama", "--prompt", "a", "--tokens", "2"],
        ["generate", "llama", "--prompt", "a", "--tokens", "2", "--beam", "2"],
        ["evaluate", "llama", "--text", "book.txt", "--length", "16"],
        ["extend", "llama", *FEW, "--only", "measure", "--to", "2x"],
    ],
    ids=["sampled", "beam", "loss", "length"],
)
def test_logits_that_are_no_numbers_are_told(words: list[str], capsys: Capture) -> None:
    """As of finite weights that overflow: a loss was nan, "cannot be read" was said, and sampling was a traceback."""
    state = load_file("llama/model.safetensors")
    state["model.layers.0.mlp.gate_proj.weight"].fill_(3e38)
    save_file(state, "llama/model.safetensors", metadata={"format": "pt"})
    assert main(words) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.strip().splitlines()[-1].startswith(
        "clockhands: llama gives NaN or infinite logits"
    )


def test_one_process_at_a_time_writes_into_a_folder(capsys: Capture) -> None:
    """While another holds the folder nothing is measured, nothing written, and the holder is named."""
    held, done = Event(), Event()

    def hold() -> None:
        with lock_folder(Path("longer")):
            held.set()
            done.wait(60)

    other = Thread(target=hold)
    other.start()
    try:
        assert held.wait(60)
        assert main(["extend", "llama", "--to", "2x", *FEW, "--out", "longer"]) in (1, 2)
    finally:
        done.set()
        other.join()
    assert "longer" in (told := capsys.readouterr().err) and "wait until it ends" in told
    assert not Path("longer/config.json").exists() and not Path("longer/report").exists()
