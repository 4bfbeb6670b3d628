"""Which options of ``clockhands check`` go together, and one line for those that do not."""

from __future__ import annotations

import pytest

from clockhands.cli import main
from clockhands.cli.check_options import split_names
from clockhands.errors import UsageError

WRONG = {
    (): "name one thing to check: a model or --type NAME (or --list)",
    ("m", "--type", "llama"): "name one thing to check",
    ("--type", "llama"): "--type llama names no weights: add --tiny",
    ("m", "--tiny", "--weights", "streamed"): "--tiny does not go with --weights: the weights are initialised",
    ("m", "--tiny", "--dtype", "float32", "--device", "cpu"): "--tiny does not go with --dtype, --device: the weights",
    ("--type", "llama", "--tiny", "--trust-remote-code"): "--type does not go with --trust-remote-code",
    ("m", "--json", "--verbose"): "--json does not go with --verbose: the JSON holds everything",
    ("--list", "--json"): "--list does not go with --json: nothing is checked",
    ("--type", "llama", "--tiny", "--only", "shft"): "unknown check 'shft'; did you mean 'shift'?",
}


@pytest.mark.parametrize("given", WRONG, ids=" ".join)
def test_wrong_usage_is_told_in_one_line(given: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *given]) == 2
    assert WRONG[given] in capsys.readouterr().err


def test_names_stand_between_commas() -> None:
    assert split_names("shift, cache.steps,,") == ["shift", "cache.steps"]
    assert split_names(None) is None
    for nothing in ("", ",", " , "):
        with pytest.raises(UsageError, match="names no check"):
            split_names(nothing)
