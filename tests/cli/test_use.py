"""What every command of a trained run refuses, in one line: ``translate``, ``generate`` and ``evaluate``."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from clockhands.cli import main
from clockhands.runs import Run
from tests.cli.conftest import Capture, Patch
from tests.generation.conftest import translator

__all__ = ["translator"]


def test_faults_are_one_line(translator: Run, tmp_path: Path, capsys: Capture) -> None:
    faults = {
        "translate nowhere x": "nowhere is not a finished run (no such folder); `clockhands train` makes one",
        "translate RUN --input none.txt": "cannot read the file none.txt: there is no such file",
        "translate RUN x --beam 0": "beam is 0, but must be from 1 to 1,024",
        "translate RUN --input t --output t --overwrite": "--input and --output both name",
        "translate RUN x --engine ctranslate": "unknown engine 'ctranslate'; did you mean",
        "evaluate RUN --source a": "--source and --target go together",
        "evaluate RUN --length 2x": "test it on longer ones with --source and --target",
        "evaluate RUN --split tset": "unknown split 'tset'; did you mean 'test'?",
        "generate RUN": "the model there translates",
        "evaluate RUN --tokenize zzz": "unknown tokenization of sacreBLEU 'zzz'",
        "translate RUN x --max-length 0": "max_length is 0, but must be at least 1",
        "translate RUN x --length-penalty 0.5": "length_penalty is 0.5, but beam is 1",
        "generate RUN --seed 99999999999999999999999": "must be a whole number of at most 64 bits",
        "generate RUN --seed -1": "argument --seed: the value is -1, but must be from 0 to 4,294,967,295",
    }
    for command, message in faults.items():
        assert main(command.replace("RUN", str(translator.path)).split()) in (1, 2)
        printed = capsys.readouterr().err
        assert message in printed
        assert printed.startswith("clockhands: ") and printed.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"Tom saw Anna\n" * 99, mtime=0)[:-9], b"\x1f\x8bfake", b"\xffno\xfe", "Tom\n".encode("utf-16-le")],
    ids=["cut off", "fake", "no text", "UTF-16 without a mark"],
)
@pytest.mark.parametrize(
    "reader", ["translate --input", "evaluate --source", "train --text", "train --data", "inspect --text"]
)
def test_a_damaged_file_is_one_message_for_every_reader(
    reader: str, content: bytes, translator: Run, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.tsv.gz").write_bytes(content)
    (tmp_path / "good.txt").write_text("Tom\n")
    verb, option = reader.split()
    command = [verb] if verb == "train" else [verb, str(translator.path)]
    command += [option, "bad.tsv.gz"]
    command += ["--target", "good.txt"] if option == "--source" else []
    command += ["--set", "training.max_steps=1", "model.preset=tiny"] if verb == "train" else []
    assert main(command) == 1
    printed = capsys.readouterr().err
    # ``train`` says what it reads before it finds the fault.
    *before, told = printed.splitlines()
    assert before == (
        ["reading the text (text)" if option == "--text" else "reading the text (table)"] * (verb == "train")
    )
    assert "bad.tsv.gz" in told and any(
        words in told for words in ("is broken gzip", "is not utf-8", "holds the character NUL")
    )
    assert not (tmp_path / "runs").exists()
