"""``evaluate`` reads the corpus of a run again: what has become of its files is told in one message."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from clockhands.cli import evaluate, main
from clockhands.errors import UsageError

GOOD = {"de": "eins zwei", "en": "one two"}
STRANGE = {
    '{"de": 1, "en": "one"}': "line 1: column 'de' holds no text but int: 1",
    '{"de": null, "en": "one"}': "line 1: column 'de' holds no text but NoneType: None",
    '{"de": ["eins"], "en": "one"}': "line 1: column 'de' holds no text but list: ['eins']",
    '{"de": "eins"}': "line 1: there is no column 'en'; did you mean 'de'? (columns: de)",
    '{"de": "eins", "en": ""}': "line 1: the target is blank",
    '{"de": "eins", "de": "zwei", "en": "one"}': "line 1: more than one column is named 'de'",
    '{"de": "\\ud800", "en": "one"}': "which is not text in Unicode without NUL",
    '{"de": "", "en": ""}': "split 'test' holds nothing that can be used",
    "[]": "line 1 is not a JSON object with named columns but list",
    "": "is empty",
}


def test_strange_columns_are_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.parametrize(("length", "windows"), [(None, [64]), ("2x,16,0.5x", [128, 16, 32])])
def test_the_windows_are_those_trained_on_unless_others_are_asked_for(length: str | None, windows: list[int]) -> None:
    assert list(evaluate._lengths(64, Namespace(length=length))) == windows


def test_a_multiple_of_a_length_that_nobody_knows_is_refused() -> None:
    assert list(evaluate._lengths(None, Namespace(length="16,32", run="x"))) == [16, 32]
    with pytest.raises(UsageError, match="does not say how long its trained texts were; give --length in tokens"):
        list(evaluate._lengths(None, Namespace(length=None, run="x")))
