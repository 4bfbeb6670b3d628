"""Messages are part of the interface: each is tested as a person reads it."""

from __future__ import annotations

import copy
import pickle

import pytest

from clockhands.errors import ConfigError, Fault, describe_unknown, show_value, suggest_nearest


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("sinusodal", ["rope", "sinusoidal"], "did you mean 'sinusoidal'?"),
        ("zzz", ["rope", "alibi"], "choose one of alibi, rope"),
        ("RoPE", ["alibi", "none", "rope"], "did you mean 'rope'?"),
        ("lstm", ["GRU", "LSTM"], "did you mean 'LSTM'?"),
        # A name that was begun is meant before one that looks like it.
        ("report", ["export", "report_to"], "did you mean 'report_to'?"),
        ("--leng", ["--length-penalty", "--length"], "did you mean '--length'?"),
    ],
)
def test_the_nearest_name_is_named_or_all_where_nothing_is_close(name: str, known: list[str], said: str) -> None:
    assert suggest_nearest(name, known) == f"; {said}"
    assert describe_unknown("scheme", name, known) == f"unknown scheme {name!r}; {said}"


def test_config_error_reports_all_faults_at_once() -> None:
    fault = ConfigError(["a is 1", "b is 2"], "recipe.toml")
    assert str(fault) == "recipe.toml has 2 faults:\n  - a is 1\n  - b is 2"
    assert fault.exit_code == 2
    assert str(ConfigError(["a is 1"], "x")).startswith("x has 1 fault:")


def test_a_value_is_shown_short_whatever_it_is() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    assert show_value("zwei") == "'zwei'"
    assert show_value("x" * 5000).endswith("... (5,002 characters)") and len(show_value("x" * 5000)) < 120
    assert show_value(10**5000) == "a value of type int, too large to be written here"
    assert show_value(nested) == "a value of type list, too large to be written here"


def test_a_fault_of_many_thousand_characters_is_cut() -> None:
    message = str(ConfigError(["9" * 20_000 + " stands outside any table", "scheme 'ropee' is unknown"]))
    assert len(message) < 2_000
    assert "(20,025 characters)" in message
    assert "scheme 'ropee' is unknown" in message


def test_a_fault_is_printed_as_its_sentence_and_keeps_its_keys() -> None:
    fault = Fault("num_heads is 3, which does not divide d_model 64", "num_heads", "d_model")
    error = ConfigError([fault, "a is 1"], "x")
    assert str(error) == "x has 2 faults:\n  - num_heads is 3, which does not divide d_model 64\n  - a is 1"
    assert [getattr(kept, "keys", None) for kept in error.faults] == [("num_heads", "d_model"), None]
    for other in (copy.copy(fault), pickle.loads(pickle.dumps(fault))):
        assert (other, other.keys) == (fault, fault.keys)
