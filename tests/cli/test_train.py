"""``clockhands train``: recipes, flags and settings, the run they make, and one message for each misuse."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path

import pytest

from clockhands.cli import main
from clockhands.runs import Run
from tests.cli.conftest import Capture, Patch

SMALL = ["data.train=80", "data.validation=10", "data.test=10", "model.d_model=16", "model.d_ff=16"]
STEPS = ["training.max_steps=4", "training.log_steps=1"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pair(folder: Path, name: str = "a", lines: int = 40) -> tuple[str, str]:
    for side in ("de", "en"):
        (folder / f"{name}.{side}").write_text("".join(f"{side} {number} {side}\n" for number in range(lines)))
    return f"{name}.de", f"{name}.en"


def test_a_corpus_by_flags_alone_and_on_from_there(here: Path, capsys: Capture) -> None:
    command = ["train", "--corpus", "roles", "--preset", "tiny", "--seed", "3", "--set", *SMALL, *STEPS]
    assert main([*command, "position.scheme=rope", "--threads", "1", "--out", "runs/r"]) == 0
    captured = capsys.readouterr()
    said = captured.err.splitlines()
    assert said[0] == "reading the text (roles)"
    assert said[1] == "learning a tokenizer (bpe); the text has 80 pairs for training"
    assert re.fullmatch(r"encoding the text with \d+ tokens", said[2])
    assert re.match(r"A model that ignores word order can get at most 4\d\.\d % of these items right", said[3])
    # d_model is 16 and the warm-up a tenth of 4 steps; what is known before the first step is said before it.
    ahead = next(i for i, line in enumerate(said) if line.startswith("training "))
    assert "parameters for 4 steps; learning rate 0.008, warm-up 0 steps; the loss is in nats per token" in said[ahead]
    steps = [i for i, line in enumerate(said) if line.startswith("step ")]
    assert ahead < steps[0] and re.search(r"^step 2 of 4 .* s left$", captured.err, re.M)
    assert "step 4 of 4" in captured.err
    assert captured.out.startswith("runs/r: 4 steps, ")
    loss = float(re.search(r"validation loss ([\d.]+)", captured.out)[1])  # type: ignore[index]
    tokens = len(Run.from_folder("runs/r").tokenizers.target)
    assert f"perplexity {math.exp(loss):,.1f}"[:-2] in captured.out
    assert f"a uniform guess among {tokens} tokens has a loss of {math.log(tokens):.2f}" in captured.out
    assert "next: clockhands translate runs/r" in captured.out
    recipe = Run.from_folder("runs/r").recipe
    assert (recipe.training.seed, recipe.training.threads, recipe.model.decoder.scheme) == (3, 1, "rope")
    assert main(["train", "--resume", "runs/r", "--set", "training.max_steps=6", "--dry-run"]) == 0
    assert "max_steps = 6" in capsys.readouterr().out
    assert main(["train", "--resume", "runs/r", "--set", "training.max_steps=6", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "" and "nothing was trained" not in captured.out
    assert Run.from_folder("runs/r").record["step"] == 6
    assert main(["train", "--resume", "runs/r", "--quiet"]) == 0
    assert "runs/r is finished, and nothing was trained" in capsys.readouterr().out


def test_own_files_and_the_default_folder(here: Path) -> None:
    source, target = pair(here)
    command = ["train", "--source", source, "--target", target, "--preset", "tiny", "--quiet"]
    assert main([*command, "--set", *STEPS, "model.d_model=16"]) == 0
    run = Run.from_folder("runs/parallel")
    assert run.recipe.corpus_options["source"] == str(here / "a.de")
    assert run.record["step"] == 4


def test_a_recipe_takes_the_files_from_flags(here: Path) -> None:
    sources, targets = zip(pair(here), pair(here, "b"), strict=True)
    (here / "mine.toml").write_text('[data]\ncorpus="parallel"\n[model]\npreset="tiny"\nd_model=16\n')
    files = ["--source", *sources, "--target", *targets]
    assert main(["train", "mine.toml", *files, "--quiet", "--set", *STEPS]) == 0
    assert Run.from_folder("runs/mine").recipe.corpus_options["source"] == [str(here / "a.de"), str(here / "b.de")]


def test_plain_text_makes_a_language_model(here: Path, capsys: Capture) -> None:
    (here / "words.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 50)
    command = ["train", "--text", "words.txt", "--preset", "tiny", "--quiet", "--set", *STEPS, "batches.window=8"]
    assert main([*command, "batches.size=4", "data.unit=file", "tokenizer.kind=character"]) == 0
    assert "next: clockhands generate runs/text" in capsys.readouterr().out
    assert Run.from_folder("runs/text").recipe.model.kind == "decoder"


def test_a_table_of_pairs_makes_a_translator(here: Path) -> None:
    (here / "pairs.tsv").write_text("source\ttarget\n" + "".join(f"de {n}\ten {n}\n" for n in range(80)))
    command = ["train", "--data", "pairs.tsv", "--preset", "tiny", "--quiet", "--out", "runs/t", "--set", *STEPS]
    assert main([*command, "model.d_model=16"]) == 0
    recipe = Run.from_folder("runs/t").recipe
    assert (recipe.corpus, recipe.model.kind) == ("table", "encoder-decoder")


@pytest.mark.parametrize(("side", "length"), [("encoder", 4), ("decoder", 5)])
def test_a_table_of_positions_too_short_for_the_text_is_found_before_training(
    here: Path, capsys: Capture, side: str, length: int
) -> None:
    """Three words and the end are four tokens of the source; the target has one more."""
    (here / "a.de").write_text("".join(f"a b {n}\n" for n in range(80)))
    (here / "a.en").write_text("".join(f"a b c {n}\n" for n in range(80)))
    files = ["--source", "a.de", "--target", "a.en", "--preset", "tiny", "--quiet", "--out", "runs/l"]
    command = ["train", *files, "--set", *STEPS, "tokenizer.kind=word", "model.d_model=16"]
    other = "decoder" if side == "encoder" else "encoder"
    learned = [f"position.{other}.scheme=rope", f"position.{side}.scheme=learned", f"position.{side}.max_length="]
    assert main([*command, *learned[:2], f"{learned[2]}{length - 1}"]) == 2
    said = capsys.readouterr().err
    assert f"the {side}'s learned has {length - 1} positions and the longest example {length} tokens" in said
    assert not (here / "runs").exists()
    assert main([*command, *learned[:2], f"{learned[2]}{length}"]) == 0


def test_a_dry_run_says_what_would_be_trained_and_makes_nothing(here: Path, capsys: Capture) -> None:
    command = ["train", "--corpus", "roles", "--preset", "tiny", "--dry-run", "--set", "data.train=80", *STEPS]
    assert main(command) == 0
    printed = capsys.readouterr().out
    training = tomllib.loads(printed)["training"]
    assert training["max_steps"] == 4, "what is printed is itself a recipe"
    assert (training["learning_rate"], training["warmup_steps"]) == (8e-3, 0), "with numbers in place of auto"
    assert "parameters, vocabulary" in printed
    assert "80 training examples" in printed
    assert "# A model that ignores word order can get at most 4" in printed
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ([], 2, "there is nothing to train on: give a recipe, --corpus, --source and --target, --data, or --text"),
        (["nowhere.toml"], 1, "cannot read the recipe nowhere.toml: there is no such file"),
        (["--corpus", "numbrs", "--set", "training.max_steps=1"], 2, "unknown corpus 'numbrs'; did you mean"),
        (["--corpus", "roles", "--set", "training.max_stps=1"], 2, "unknown key in [training] 'max_stps'"),
        (["--corpus", "roles", "--set", "rope"], 2, "'rope' is not of the form KEY=VALUE"),
        (["training.max_steps=1"], 2, "'training.max_steps=1' is not a recipe; overrides stand after --set"),
        (["--corpus", "roles", "--set", "training.max_steps=1", "training.epochs=1"], 2, "both say how long"),
        (["--source", "a.de", "--set", "training.max_steps=1"], 2, "data.target is missing"),
        (["--resume", "nowhere"], 1, "nowhere is not a training run (no such folder)"),
        (["--resume", "r", "--corpus", "roles"], 2, "--resume goes on with the recipe of the run; leave out --corpus"),
        (["--resume", "r", "--overwrite"], 2, "leave out --overwrite"),
        (["--text", "no.txt", "--preset", "tiny", "--set", "training.max_steps=1"], 1, "no.txt"),
        (["--text", "a.txt", "--data", "a.tsv"], 2, "--data and --text each say what to train on; give one of them"),
    ],
)  # fmt: skip
def test_each_misuse_has_one_message(here: Path, capsys: Capture, command: list[str], code: int, message: str) -> None:
    assert main(["train", *command]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_an_existing_run_is_refused_and_replaced_when_asked(here: Path, capsys: Capture) -> None:
    command = ["train", "--corpus", "roles", "--preset", "tiny", "--set", *SMALL, *STEPS, "--quiet"]
    assert main(command) == 0
    assert main(command) == 2
    assert (
        "already holds a run; replace it: --overwrite (overwrite=True), or continue a training that was stopped: clockh"
        in capsys.readouterr().err
    )
    assert main([*command, "--overwrite"]) == 0


def test_faults_of_the_text_leave_no_run_in_the_way(here: Path) -> None:
    source, target = pair(here)
    Path(target).write_text("one line\n")
    command = ["train", "--source", source, "--target", target, "--preset", "tiny", "--quiet", "--set", *STEPS]
    assert main(command) == 1
    pair(here)
    assert main(command) == 0


def test_a_run_begins_with_the_weights_of_another(here: Path, capsys: Capture) -> None:
    """Flags and settings say what differs; the rest, of the model too, is as in the other run."""
    (here / "words.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 50)
    text = ["train", "--text", "words.txt", "--set", *STEPS, "batches.window=8", "batches.size=4", "data.unit=file"]
    first = ["tokenizer.kind=character", "model.d_model=16", "model.d_ff=16", "model.num_heads=2", "position.scheme=t5"]
    assert main([*text, *first, "model.decoder_layers=1", "--out", "runs/first", "--quiet"]) == 0
    begun = ["train", "--threads", "1", *text[1:], "training.begin_from=runs/first", "position.scheme=rope"]
    capsys.readouterr()
    assert main([*begun, "--out", "runs/second"]) == 0
    line = f"beginning from {here}/runs/first; not taken over: decoder.schemes.*.table_HN"
    assert line in capsys.readouterr().err.splitlines()
    assert Run.from_folder("runs/second").recipe.model.d_model == 16
    assert main([*begun, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert f"# {line}" in printed
    assert tomllib.loads(printed)["training"]["begin_from"] == f"{here}/runs/first"
    assert main(["train", "--preset", "tiny", *begun[1:], "model.d_model=32", "--out", "runs/third"]) == 2
    said = capsys.readouterr().err
    assert "training.begin_from has" in said and f"model.d_model is 32, and in {here}/runs/first 16" in said
    assert not (here / "runs/third").exists()
