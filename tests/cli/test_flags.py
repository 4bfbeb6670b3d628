"""Flags are made of the fields of a dataclass; what is read is written again as the same command."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from clockhands.cli import Parser
from clockhands.cli.flags import POSITIONAL, REPEATED, declare, read_options, write_command
from clockhands.errors import UsageError
from clockhands.options import Count


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Shared.

    Args:
        loud: make 100 % noise
    """

    GROUP = "how loud"
    loud: bool = False


@dataclass(frozen=True, kw_only=True)
class Options(Shared):
    """What a bell can be told.

    Args:
        name: of the bell
        tones: what it strikes
        weight: in tons
        shape: what it looks like
        cracked: whether it is cracked (default: look)
        hymn: one hymn
        plan: a plan
    """

    name: Annotated[str, POSITIONAL]
    tones: Annotated[tuple[str, ...], POSITIONAL] = ()
    weight: Annotated[Count, "N"] = 3
    shape: Literal["round", "flat"] = "round"
    cracked: bool | None = None
    hymn: Annotated[tuple[str, ...], "TEXT", REPEATED] = ()
    plan: Annotated[float | None, "--the-plan", "X"] = None


def read(*words: str) -> Options:
    parser = Parser(prog="ring")
    declare(parser, Options)
    return read_options(parser, Options, words)


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("big", Options(name="big")),
        ("big a b --weight 4", Options(name="big", tones=("a", "b"), weight=4)),
        ("big --weight 2e3 --shape flat", Options(name="big", weight=2000, shape="flat")),
        ("big --cracked --hymn 'a b' --hymn c", Options(name="big", cracked=True, hymn=("a b", "c"))),
        ("big --no-cracked --the-plan 0.1 --loud", Options(name="big", cracked=False, plan=0.1, loud=True)),
    ],
)
def test_a_command_is_read_and_written_again_as_the_same(written: str, options: Options) -> None:
    assert read(*shlex.split(written)) == options
    assert read(*shlex.split(write_command("ring", options))[2:]) == options


def test_what_has_its_default_and_what_is_left_out_is_not_written() -> None:
    assert write_command("ring", Options(name="big", weight=3)) == "clockhands ring big"
    assert (
        write_command("ring", Options(name="big", loud=True, weight=4), ("loud",)) == "clockhands ring big --weight 4"
    )


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("big --weight 0", "argument --weight: the value is 0, but must be at least 1"),
        ("big --weight x", "argument --weight: the value is 'x', but must be a whole number"),
        ("big --shape square", "invalid choice: 'square'"),
        ("", "the following arguments are required: name"),
    ],
)
def test_what_does_not_fit_a_field_is_refused_in_one_sentence(written: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(*written.split())


def test_the_help_tells_meanings_defaults_and_groups() -> None:
    parser = Parser(prog="ring")
    declare(parser, Options)
    told = " ".join(parser.format_help().split())
    for part in ("--weight N in tons (default: 3)", "how loud: --loud make 100 % noise", "name of the bell",
                 "(default: look)", "--the-plan X a plan"):  # fmt: skip
        assert part in told
