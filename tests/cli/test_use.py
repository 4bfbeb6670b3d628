"""``translate``, ``generate`` and ``evaluate`` as a person types them."""

from __future__ import annotations

import gzip
import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from clockhands.cli import main
from clockhands.generation import Search
from clockhands.runs import Run
from tests.generation.conftest import translator, writer

__all__ = ["translator", "writer"]


def test_words_on_the_command_line(translator: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", str(translator.path), "Tom saw Anna", "Anna saw Tom"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_file_in_and_a_file_out(translator: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"Tom saw Anna\n\nAnna saw Tom\n"))
    command = ["translate", str(translator.path), "--input", str(tmp_path / "in.gz"), "--output", str(tmp_path / "out")]
    assert main(command) == 0
    lines = (tmp_path / "out").read_text(encoding="utf8").splitlines()
    assert len(lines) == 3 and lines[1] == ""
    assert main(command) == 2
    assert "out exists; name another file, or pass --overwrite" in capsys.readouterr().err


def test_a_file_grows_while_it_is_translated_and_keeps_its_lines_when_stopped(
    translator: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends early by a byte that is not UTF-8 in the input, then by Ctrl-C."""
    (tmp_path / "in").write_bytes(b"Tom saw Anna\n" * 800 + b"\xff\n")
    part = tmp_path / "out.part"
    command = ["translate", str(translator.path), "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    assert main(command) == 1
    kept = part.read_text("utf8").splitlines()
    wrong = "in, line 801: byte 1 (0xff) of the line is not utf-8; convert the file"
    said = f"{wrong}; the first {len(kept)} translations are in {part}\n"
    assert capsys.readouterr().err.endswith(said)
    assert len(set(kept)) == 1 and len(kept) >= 64
    assert main(command) == 2
    assert f"{part} exists (what an interrupted translation left); name another file" in capsys.readouterr().err
    module = sys.modules["clockhands.generation.translate"]
    first = iter([module._translate_pool])

    def stopped(*given: Any) -> Any:
        for pool in first:
            return pool(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_translate_pool", stopped)
    assert main([*command, "--overwrite", "--batch", "2"]) == 130
    assert capsys.readouterr().err == f"clockhands: stopped; the first 2 translations are in {part}\n"
    assert not (tmp_path / "out").exists()


def test_standard_input_as_json(
    translator: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Tom saw Anna\nbad \xff byte\n"), encoding="utf8"))
    assert main(["translate", str(translator.path), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["source"] for row in rows] == ["Tom saw Anna", "bad \ufffd byte"]
    assert all(row["score"] < 0 for row in rows)


def test_attention_is_drawn_and_not_overwritten(
    translator: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["translate", str(translator.path), "Tom saw Anna", "--attention", str(tmp_path / "a.svg")]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "<svg" in (tmp_path / "a.svg").read_text(encoding="utf8")
    assert len(out.splitlines()) == 1 and err == f"drew {tmp_path / 'a.svg'}\n"
    assert main(command) == 2
    # More than one is refused before any is translated.
    monkeypatch.setattr(Search, "make_engine", None)
    assert main([*command[:3], "Anna saw Tom", *command[3:], "--overwrite"]) == 2
    assert "--attention draws one sentence, and 2 were given" in capsys.readouterr().err


def test_faults_are_one_line(translator: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults = {
        ("translate", "nowhere", "x"): "nowhere is not a finished run (no such folder); `clockhands train` makes one",
        ("translate", str(translator.path), "--input", "none.txt"): "there is no file none.txt",
        ("translate", str(translator.path), "x", "--beam", "0"): "beam is 0; it must be 1 or more",
        ("translate", str(translator.path), "x", "--engine", "ctranslate"): "unknown engine 'ctranslate'; did you mean",
        ("translate", str(translator.path), "x", "--threads", "0"): "--threads is 0; it must be 1 or more",
        ("evaluate", str(translator.path), "--source", "a"): "--source and --target go together",
        ("evaluate", str(translator.path), "--length", "2x"): "test it on longer ones with --source and --target",
        ("evaluate", str(translator.path), "--split", "tset"): "unknown split 'tset'; did you mean 'test'?",
        ("generate", str(translator.path)): "the model there translates",
        ("evaluate", str(translator.path), "--tokenize", "zzz"): "unknown tokenization of sacreBLEU 'zzz'",
        ("translate", str(translator.path), "x", "--attention", "a.png"): "the format is SVG; name the file a.svg",
        ("translate", str(translator.path), "x", "--max-length", "0"): "max_length is 0; it must be 1 or more",
        ("translate", str(translator.path), "x", "--length-penalty", "0.5"): "length_penalty is 0.5, but beam is 1",
        ("generate", str(translator.path), "--seed", "9" * 23): "must be a whole number of at most 64 bits",
        (
            "generate",
            str(translator.path),
            "--seed",
            "-1",
        ): "argument --seed: the value is -1, but must be from 0 to 4,294,967,295",
        ("generate", str(translator.path), "--beam", "2", "--top-k", "3"): "nothing is sampled: leave out top_k",
        ("generate", str(translator.path), "--temperature", "1e-320"): "the least is 0.001",
    }
    for command, message in faults.items():
        assert main(list(command)) in (1, 2)
        printed = capsys.readouterr().err
        assert message in printed
        assert printed.startswith("clockhands: ") and printed.count("\n") == 1


def test_latin1_input_is_named(translator: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_bytes("für\n".encode("latin1"))
    assert main(["translate", str(translator.path), "--input", str(tmp_path / "in.txt")]) == 1
    assert "in.txt, line 1: byte 2 (0xfc) of the line is not utf-8; convert the file" in capsys.readouterr().err


def test_generate_prints_prompt_and_continuation(writer: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(writer.path), "--prompt", "the cat", "--tokens", "4", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == "the cat sat\n"


def test_evaluate_prints_scores_with_signatures(translator: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(translator.path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("split test (20 pairs of who did what to whom, English to Esperanto")
    tokens = len(translator.tokenizers.target)
    assert f"(loss: lower is better; a uniform guess among {tokens} tokens has {math.log(tokens):.2f}" in printed
    assert "BLEU|#:1|bs:1000" in printed and "exact match %" in printed and "loss|nats per token" in printed


def test_evaluate_own_files(translator: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s").write_text("Tom saw Anna\n", encoding="utf8")
    (tmp_path / "t").write_text("Tomo vidis Annan\nextra\n", encoding="utf8")
    command = ["evaluate", str(translator.path), "--source", str(tmp_path / "s"), "--target", str(tmp_path / "t")]
    assert main(command) == 1
    assert "has 1 lines and" in capsys.readouterr().err
    (tmp_path / "t").write_text("Tomo vidis Annan\n", encoding="utf8")
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert found["scores"][0]["name"] == "BLEU"
    assert found["text"] == f"1 pairs of {tmp_path / 's'} and {tmp_path / 't'}"


def test_evaluate_says_which_split_stands_in_for_a_missing_one(writer: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(writer.path)]) == 0
    said = capsys.readouterr().out.splitlines()[0]
    assert said == "split validation (1 documents of text.txt; there is no test split)"


def test_evaluate_beyond_the_trained_length(writer: Run, capsys: pytest.CaptureFixture[str]) -> None:
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
        (["--length", "1x,much"], "'much' is neither a number nor a multiple like 2x"),
        (["--length", "2x", "--position.spectrum", "yarn"], "--position.spectrum yarn needs --factor"),
        (["--length", "2x", "--set", "position.spectrum=ntk"], "--position.spectrum ntk needs --factor"),
        (["--beam", "4", "--tokenize", "char"], "its loss is measured, and --beam, --tokenize is for translations"),
        (["--text", "a", "--split", "test"], "--text and --split each say what to evaluate on; give one of them"),
        (
            ["--set", "position.slopes=a", "position.form=b"],
            "(rope) have no options slopes, form; they have",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_one_line(
    arguments: list[str], message: str, writer: Run, capsys: pytest.CaptureFixture[str]
) -> None:
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
def test_an_option_of_a_scheme_that_cannot_be(
    option: str, message: str, writer: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(writer.path), "--set", option]) == 2
    assert message in capsys.readouterr().err


def test_a_translator_is_told_which_split_is_longer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["data.train=200", "data.validation=10", "data.test=10", "data.longer=5", "training.max_steps=1"]
    quick = [
        "train",
        "--corpus",
        "numbers",
        "--preset",
        "tiny",
        "--set",
        *sizes,
        "--quiet",
        "--out",
        str(tmp_path / "r"),
    ]
    assert main(quick) == 0
    assert main(["evaluate", str(tmp_path / "r"), "--length", "2x"]) == 2
    wanted = "with --split longer-7 or longer-8 or longer-9, or --source and --target"
    assert wanted in capsys.readouterr().err


def test_only_line_feeds_end_a_sentence(
    translator: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = "Tom saw\rAnna\r\nAnna\x0bsaw\u2028Tom\x85now\n".encode()
    wanted = ["Tom saw\rAnna", "Anna\x0bsaw\u2028Tom\x85now"]
    (tmp_path / "in.txt").write_bytes(content)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf8"))
    for given in ([], ["--input", str(tmp_path / "in.txt")]):
        assert main(["translate", str(translator.path), "--json", *given]) == 0
        printed = capsys.readouterr().out.split("\n")[:-1]
        assert [json.loads(line)["source"] for line in printed] == wanted


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"Tom saw Anna\n" * 99, mtime=0)[:-9], b"\x1f\x8bfake", b"\xff\xfe"],
    ids=["cut off", "fake", "no text"],
)
@pytest.mark.parametrize(
    "reader", ["translate --input", "evaluate --source", "train --text", "train --data", "inspect --text"]
)
def test_a_damaged_file_is_one_message_for_every_reader(
    reader: str, content: bytes, translator: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
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
    assert "bad.tsv.gz" in told and ("is broken gzip" in told or "is not utf-8" in told)
    assert not (tmp_path / "runs").exists()
