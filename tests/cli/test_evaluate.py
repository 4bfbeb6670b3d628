"""``evaluate`` as a person types it: scores, windows, and one message for everything that cannot be."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from clockhands.cli import main
from clockhands.runs import Run
from tests.cli.conftest import Capture
from tests.generation.conftest import translator, writer

__all__ = ["translator", "writer"]

GOOD = {"de": "eins zwei", "en": "one two"}
STRANGE = {
    '{"de": 1, "en": "one"}': "line 1: column 'de' holds no text but int: 1",
    '{"de": null, "en": "one"}': "line 1: column 'de' holds no text but NoneType: None",
    '{"de": ["eins"], "en": "one"}': "line 1: column 'de' holds no text but list: ['eins']",
    '{"de": "eins"}': "line 1: there is no column 'en', which data.target names (columns: 'de')",
    '{"de": "eins", "en": ""}': "line 1: the target is blank",
    '{"de": "eins", "de": "zwei", "en": "one"}': "line 1: more than one column is named 'de'",
    '{"de": "\\ud800", "en": "one"}': "which is not text in Unicode without NUL",
    '{"de": "", "en": ""}': "split 'test' holds nothing that can be used",
    "[]": "line 1 holds no JSON object but a list",
    "": "test.jsonl is empty",
}


def test_strange_columns_are_one_message(tmp_path: Path, capsys: Capture) -> None:
    table, run = tmp_path / "train.jsonl", str(tmp_path / "run")
    table.write_text("".join(json.dumps({**GOOD, "de": f"eins {word}"}) + "\n" for word in ["zwei", "drei", "vier"]))
    test = tmp_path / "test.jsonl"
    test.write_text(json.dumps(GOOD) + "\n")
    settings = {"corpus": "table", "train": table, "test": test, "source": "de", "target": "en", "holdout": 0.3}
    words = [f"data.{key}={value}" for key, value in settings.items()]
    model = ["model.preset=tiny", "model.d_model=8", "model.num_heads=1", "model.d_ff=8", "tokenizer.kind=word"]
    assert main(["train", "--out", run, "--set", *words, *model, "training.max_steps=1"]) == 0
    assert main(["evaluate", run]) == 0
    for row, message in STRANGE.items():
        test.write_text(row + "\n")
        capsys.readouterr()
        assert main(["evaluate", run]) == 1, row
        said = capsys.readouterr().err.strip().splitlines()
        assert len(said) == 1 and message in said[0], row


def test_evaluate_prints_scores_with_signatures(translator: Run, capsys: Capture) -> None:
    assert main(["evaluate", str(translator.path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("split test (20 pairs of who did what to whom, English to Esperanto")
    tokens = len(translator.tokenizers.target)
    assert (
        f"(loss: lower is better; a uniform guess among {tokens} tokens has a loss of {math.log(tokens):.2f}" in printed
    )
    assert "BLEU|#:1|bs:1000" in printed and "exact match %" in printed and "loss|nats per token" in printed


def test_evaluate_own_files(translator: Run, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "s").write_text("Tom saw Anna\n", encoding="utf8")
    (tmp_path / "t").write_text("Tomo vidis Annan\nextra\n", encoding="utf8")
    command = ["evaluate", str(translator.path), "--source", str(tmp_path / "s"), "--target", str(tmp_path / "t")]
    assert main(command) == 1
    assert "has 1 lines and" in capsys.readouterr().err
    (tmp_path / "t").write_text("Tomo vidis Annan\n", encoding="utf8")
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert found["scores"][0]["name"] == "BLEU"
    assert found["text"] == f"1 pair of {tmp_path / 's'} and {tmp_path / 't'}"


def test_evaluate_says_which_split_stands_in_for_a_missing_one(writer: Run, capsys: Capture) -> None:
    assert main(["evaluate", str(writer.path)]) == 0
    said = capsys.readouterr().out.splitlines()[0]
    assert said == "split validation (1 document of text.txt; there is no test split)"


def test_evaluate_beyond_the_trained_length(writer: Run, capsys: Capture) -> None:
    bent = ["--position.spectrum", "linear", "--factor", "2"]
    assert main(["evaluate", str(writer.path), "--length", "1x,2x", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert [result["length"] for result in plain] == [33, 66]
    assert main(["evaluate", str(writer.path), "--length", "2x", "--json", *bent]) == 0
    changed = json.loads(capsys.readouterr().out)
    assert changed[0]["scores"][0]["value"] != plain[1]["scores"][0]["value"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--length", "0x"], "--length 0x: a window needs 2 tokens or more, and '0x' is 0"),
        (["--length", "1x,much"], "'much' is neither a number of tokens nor a multiple like 2x"),
        (["--length", "2x", "--position.spectrum", "yarn"], "--position.spectrum yarn needs --factor"),
        (["--length", "2x", "--set", "position.spectrum=ntk"], "--position.spectrum ntk needs --factor"),
        (["--beam", "4", "--tokenize", "char"], "its loss is measured, and --beam, --tokenize is for translations"),
        (["--text", "a", "--split", "test"], "--text and --split each say what to evaluate on; give one of them"),
        (["--set", "position.slopes=a", "position.form=b"], "(rope) have no options slopes, form; they have"),
    ],
)
def test_what_cannot_be_evaluated_is_one_line(arguments: list[str], message: str, writer: Run, capsys: Capture) -> None:
    assert main(["evaluate", str(writer.path), *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed and printed.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("position.spectrum=[1]", "rope.spectrum is [1], but must be"),
        ("position.base=1e400", "rope.base is inf, but must be a finite number"),
        ("position.base=" + "9" * 5000, "rope.base is '99999"),
    ],
)
def test_an_option_of_a_scheme_that_cannot_be(option: str, message: str, writer: Run, capsys: Capture) -> None:
    assert main(["evaluate", str(writer.path), "--set", option]) == 2
    assert message in capsys.readouterr().err


def test_a_translator_is_told_which_split_is_longer(tmp_path: Path, capsys: Capture) -> None:
    sizes = ["data.train=200", "data.validation=10", "data.test=10", "data.longer=5", "training.max_steps=1"]
    quick = ["train", "--corpus", "numbers", "--preset", "tiny", "--quiet", "--set"]
    assert main([*quick, *sizes, "--out", str(tmp_path / "r")]) == 0
    assert main(["evaluate", str(tmp_path / "r"), "--length", "2x"]) == 2
    wanted = "with --split longer-7 or longer-8 or longer-9, or --source and --target"
    assert wanted in capsys.readouterr().err
