"""The options of ``clockhands extend``, which of them go together, and what they say of lengths and training."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.cli.common import add_device, as_float, as_int, as_seed
from clockhands.cli.positions import add_opening
from clockhands.errors import UsageError

if TYPE_CHECKING:
    from clockhands.extension import Tuning

USUAL = {"texts": 32, "items": 60, "margin": 0.05, "seed": 0, "evaluations": 64}
"""The defaults of what is measured."""
__all__ = ["arguments", "find_longest", "make_tuning", "validate", "write_command"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", metavar="MODEL",
                        help="a run or Hugging Face model that continues text or fills in masked tokens")  # fmt: skip
    _add_extension(parser)
    _add_measurement(parser)
    parser.add_argument("--seed", type=as_seed, default=USUAL["seed"], help="of the questions (default: %(default)s)")
    parser.add_argument("--out", metavar="FOLDER", default="extended",
                        help="where the model and the page go (default: %(default)s)")  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="print the findings as JSON; with --only measure, instead of writing a page"
    )
    add_opening(parser)
    add_device(parser)


def _add_extension(parser: argparse.ArgumentParser) -> None:
    """Declare how far the model shall read, and how it is made to."""
    parser.add_argument("--to", default="8x", metavar="LENGTH",
                        help="the longest text: tokens, or 2x the trained (default: %(default)s)")  # fmt: skip
    parser.add_argument("--only", choices=("measure",), help="say how far the model reads as it is, and stop")
    parser.add_argument("--evaluations", type=as_int, default=USUAL["evaluations"], metavar="N",
                        help="factors that the search tries; 0 searches none (default: %(default)s)")  # fmt: skip
    parser.add_argument("--train", type=as_int, metavar="STEPS", help="train the chosen model so many steps")
    parser.add_argument("--windows", choices=("skip", "full"),
                        help="train in windows of the trained length with positions all over the new one (default), or "
                        "of the new length")  # fmt: skip
    parser.add_argument("--learning-rate", type=as_float, help="of the training (default: 0.1 / d_model)")


def _add_measurement(parser: argparse.ArgumentParser) -> None:
    """Declare what it reads, and how much of it."""
    parser.add_argument("--text", nargs="+", metavar="FILE",
                        help="what it reads (default: the run's own corpus, or Python's library)")  # fmt: skip
    parser.add_argument(
        "--texts",
        type=as_int,
        default=USUAL["texts"],
        help="texts whose loss is measured; a choice reads more, if short (default: %(default)s)",
    )
    parser.add_argument(
        "--items",
        type=as_int,
        default=USUAL["items"],
        help="questions of each task at each length (default: %(default)s)",
    )
    parser.add_argument("--margin", type=as_float, default=USUAL["margin"],
                        help="nats per token that a length may cost (default: %(default)s)")  # fmt: skip
    parser.add_argument("--trained", type=as_int, metavar="TOKENS",
                        help="the trained length, where the model does not say it or says it wrongly")  # fmt: skip


def validate(options: argparse.Namespace) -> None:
    """Raise UsageError for options that exclude each other, and for numbers from which nothing could be concluded."""
    for name, least in (("texts", 8), ("items", 10)):
        if getattr(options, name) < least:
            raise UsageError(f"--{name} is {getattr(options, name)}; at least {least} are needed for an interval")
    if options.evaluations < 0:
        raise UsageError(f"--evaluations is {options.evaluations}; give 0 for no search, or more")
    if options.only is None:
        from clockhands.extension.write import refuse_taken

        refuse_taken(Path(options.out))
    elif said := _list_said(options, ("evaluations",)):
        raise UsageError(f"--only measure stops before the search; leave out {said[0]}")
    make_tuning(options)
    if options.trained is not None and options.trained < 1:
        raise UsageError(f"--trained is {options.trained}; give the number of tokens of a trained text, 1 or more")
    if not options.margin > 0:
        raise UsageError(f"--margin is {options.margin}; give a number of nats above 0")


def _list_said(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Return those of some options whose values are not those that they have when nobody gives them."""
    values = {name: getattr(options, name) for name in names}
    said = [name for name, value in values.items() if value is not False and value != USUAL.get(name)]
    return [f"--{name.replace('_', '-')}" for name in said]


def make_tuning(options: argparse.Namespace) -> Tuning | None:
    """Return how to train, or None. Raises UsageError for options of a training that is not asked for."""
    if options.train is None:
        if said := _list_said(options, ("windows", "learning_rate")):
            verb = "says" if len(said) == 1 else "say"
            raise UsageError(f"{' and '.join(said)} {verb} how to train; give --train STEPS beside")
        return None
    if options.only:
        raise UsageError("--only measure stops before training; leave out --train")
    from clockhands.extension import Tuning

    return Tuning(options.train, options.windows or "skip", learning_rate=options.learning_rate, seed=options.seed)


def find_longest(to: str, trained: int) -> int:
    """Return the longest length. Raises UsageError for what is no length, and for one below the trained."""
    word = to.strip()
    try:
        longest = int(float(word.removesuffix("x")) * trained) if word.endswith("x") else int(word)
    except (ValueError, OverflowError):
        raise UsageError(f"--to {to}: that is neither a number of tokens nor a multiple like 8x") from None
    if longest < trained:
        raise UsageError(
            f"--to {to} is {longest:,} tokens, less than the {trained:,} that the model was trained on; give a factor "
            "of 1 or more"
        )
    return longest


def write_command(options: argparse.Namespace) -> str:
    """Return the command that measures this again."""
    words = ["clockhands", "extend", options.run, "--to", options.to]
    words += ["--only", options.only] if options.only else []
    words += ["--text", *options.text] if options.text else []
    usual: dict[str, Any] = USUAL | dict.fromkeys(("trained", "train", "windows", "learning_rate", "dtype", "weights"))
    for name, value in usual.items():
        if getattr(options, name) != value:
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return shlex.join(words)
