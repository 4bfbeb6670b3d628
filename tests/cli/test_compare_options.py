"""The command of a comparison, made of its options, is read back as the same options."""

from __future__ import annotations

import argparse
import shlex

from clockhands.cli.compare_options import arguments, write_command


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    arguments(parser)
    return parser.parse_args(words)


def test_the_command_says_again_what_is_compared() -> None:
    words = [
        "--recipe", "recipes/numbers.toml", "--seeds", "5", "--margin", "0.1", "--redraw-text", "--steps", "100",
        "--vary", "position.scheme=sinusoidal,none", "--set", "training.learning_rate=1e-3", "--out", "my runs",
    ]  # fmt: skip
    again = shlex.split(write_command(parse(*words, "--workers", "2")))
    assert again[:4] == ["clockhands", "compare", "--recipe", "recipes/numbers.toml"]
    assert parse(*again[2:]) == parse(*words), "how trials run is no part of what is computed"
    assert write_command(parse("plan.toml")) == "clockhands compare plan.toml --out runs/compare"
