"""What the options of ``clockhands extend`` mean: a length, a training, and the command that measures again."""

from __future__ import annotations

import argparse
import shlex

import pytest

from clockhands.cli.extend_options import arguments, find_longest, make_tuning, write_command
from clockhands.errors import UsageError


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    arguments(parser)
    return parser.parse_args(words)


def test_a_length_is_tokens_or_a_multiple() -> None:
    assert [find_longest(to, 64) for to in ("2x", " 1.5x", "128", "1x")] == [128, 96, 128, 64]
    for to, message in (
        ("far", "neither a number of tokens nor a multiple"),
        ("infx", "neither a number of tokens"),
        ("63", "is 63 tokens, less than the 64"),
    ):
        with pytest.raises(UsageError, match=message):
            find_longest(to, 64)


def test_a_training_has_what_was_asked_for() -> None:
    assert make_tuning(parse("llama")) is None
    tuning = make_tuning(parse("llama", "--train", "3", "--windows", "full", "--seed", "5"))
    assert tuning is not None and (tuning.steps, tuning.windows, tuning.seed) == (3, "full", 5)
    for words in (("--learning-rate", "0.1"), ("--learning-rate", "0"), ("--only", "measure", "--train", "3")):
        with pytest.raises(UsageError, match=r"give --train STEPS|leave out --train"):
            make_tuning(parse("llama", *words))


def test_the_command_says_what_is_not_usual() -> None:
    words = ["llama", "--to", "2x", "--text", "my book.txt", "--texts", "9", "--train", "3", "--learning-rate", "0.1"]
    again = shlex.split(write_command(parse(*words, "--json")))
    assert again[:2] == ["clockhands", "extend"] and vars(parse(*again[2:])) == {**vars(parse(*words)), "json": False}
    assert write_command(parse("llama", "--items", "60")) == "clockhands extend llama --to 8x"
