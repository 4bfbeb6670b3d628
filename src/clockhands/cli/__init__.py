"""The command line: ``clockhands COMMAND``. There is a module for each command, which is imported when it is used.

The module of a command has ``Options``, a dataclass of which its flags are made (``clockhands.cli.flags``),
``run(options) -> int``, which returns the exit code, and ``EXAMPLES``, which stand at the end of its ``--help`` and are
executed by a test; ``complete(parser)`` adds choices that have to be read first. It imports what needs torch inside
functions, so that ``--help`` is printed at once.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from clockhands import __version__
from clockhands.cli.flags import declare, read_options
from clockhands.errors import (
    ClockhandsError,
    ClockhandsWarning,
    MissingPackageError,
    UsageError,
    cut_long_line,
    show_value,
    suggest_nearest,
)
from clockhands.streams import open_streams, replace_controls

__all__ = ["VERBS", "Parser", "main"]

EXIT_CODES = "exit codes: 0 done; 1 it failed, or found a fault or a difference; 2 wrong usage; 130 it was stopped"
NO_MEMORY = "not enough memory: take a smaller model, shorter texts, smaller batches or fewer hypotheses"
VERBS = {
    "tour": "train a small translator and show what its positional encoding does (start here)",
    "schemes": "list the ways to encode position, or explain and draw one of them",
    "train": "train a Transformer on a built-in corpus or on your own text, or resume a training",
    "translate": "translate sentences, a file or standard input with a trained run",
    "generate": "continue a prompt with a trained run or any causal Hugging Face model",
    "evaluate": "score the translations of a run, or measure the loss of a run or any causal Hugging Face model",
    "inspect": "measure what position does inside a run or any Hugging Face checkpoint",
    "compare": "train variants of a model with several seeds and say whether they differ",
    "study": "run one of the built-in studies, each of which answers a question about positions",
    "check": "test whether a model handles position correctly",
    "explore": "write a web page in which trained translators run and their positions can be changed",
    "extend": "measure how long a text a model can use, and make it read longer ones",
    "push": "upload a trained run to the Hugging Face hub",
    "explain": "explain what a position configuration means, or how two of them differ",
}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose faults are one sentence, without the whole usage in front of it."""

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help, whose reader may be gone or whose disk full, which argparse would not tell."""
        print(message, end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        mark = "unrecognized arguments: "
        if message.startswith(mark):
            unread = message.removeprefix(mark).split()
            message = f"unexpected argument {' '.join(unread)!r}"
            if strange := next((word for word in unread if word.startswith("-")), ""):
                # One is suggested only where it is near: `--help` lists them all.
                known = list(self._option_string_actions)
                near = difflib.get_close_matches(strange.lstrip("-"), [name.lstrip("-") for name in known])
                message = f"there is no option {strange!r}{suggest_nearest(strange, known) if near else ''}"
        raise UsageError(f"{message} (`{self.prog} --help` explains)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 (it failed), 2 (it was used wrongly) or 130 (it was stopped)."""
    with open_streams():
        return _main(list(sys.argv[1:] if arguments is None else arguments))


def _main(words: list[str]) -> int:
    try:
        _check_text(words)
        with warnings.catch_warnings():
            warnings.simplefilter("always", ClockhandsWarning)
            warnings.showwarning = _show_on_one_line(warnings.showwarning)
            code = _run_command(words)
        sys.stdout.flush()
        return code
    except SystemExit as stopped:
        # rich meets a reader that has gone with an exit code of its own.
        if not isinstance(stopped.__context__, BrokenPipeError):
            raise
        return 0
    except ClockhandsError as fault:
        return _print_failure(str(fault), fault.exit_code)
    except KeyboardInterrupt:
        return _print_failure("stopped", 130)
    except MemoryError:
        return _print_failure(NO_MEMORY, 1)
    except RecursionError:
        return _print_failure("the input nests lists or tables too deeply to be read", 1)
    except RuntimeError as fault:
        # torch has no MemoryError: "DefaultCPUAllocator: can't allocate memory", "CUDA out of memory".
        if "allocate memory" not in str(fault) and "out of memory" not in str(fault):
            raise
        return _print_failure(NO_MEMORY, 1)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): not an error, and nothing more may be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as fault:
        # What no command foresaw: a folder that may not be entered, a disk that is full.
        if fault.strerror is None:
            raise
        return _print_failure(f"{fault.filename}: {fault.strerror}" if fault.filename else fault.strerror, 1)


def _check_text(words: list[str]) -> None:
    """Raise UsageError for an argument that no file, table or message can hold: bytes that are not UTF-8, or NUL."""
    for index, argument in enumerate(words, 1):
        try:
            argument.encode("utf8")
        except UnicodeEncodeError as fault:
            raise UsageError(
                f"argument {index}, {show_value(argument)}, is not UTF-8; write it so, or rename the file"
            ) from fault
        if "\0" in argument:
            raise UsageError(f"argument {index}, {show_value(argument)}, holds the character NUL, which no name has")


def _show_on_one_line(usual: Callable[..., None]) -> Callable[..., None]:
    """Return what prints a warning of ours as one line, and others as ``usual``."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, ClockhandsWarning):
            print(f"clockhands: warning: {replace_controls(message, lines=True)}", file=sys.stderr, flush=True)
        else:
            usual(message, category, *place, **more)

    return show


def _run_command(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        width = max(map(len, VERBS))
        print("usage: clockhands COMMAND [options]\n\nThe workbench for how Transformers know word order.\n")
        for verb, meaning in VERBS.items():
            print(f"  {verb:<{width}}  {meaning}")
        print("\n`clockhands COMMAND --help` explains one, with examples; `clockhands --version` prints the version.")
        return 0
    verb = words[0]
    if verb == "--version":
        print(f"clockhands {__version__}")
        return 0
    if verb not in VERBS:
        raise UsageError(f"there is no command {verb!r}{suggest_nearest(verb, VERBS)}")
    try:
        module = importlib.import_module(f"clockhands.cli.{verb}")
        notes = getattr(module, "NOTES", EXIT_CODES)
        parser = Parser(
            prog=f"clockhands {verb}",
            description=VERBS[verb][0].upper() + VERBS[verb][1:] + ".",
            epilog="\n".join(["examples:", *(f"  {example}" for example in module.EXAMPLES), "", notes]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        declare(parser, module.Options)
        if hasattr(module, "complete"):
            module.complete(parser)
        return int(module.run(read_options(parser, module.Options, words[1:])))
    except ModuleNotFoundError as fault:
        if str(fault.name).startswith("clockhands") or isinstance(fault, ClockhandsError):
            raise
        raise MissingPackageError(f"clockhands {verb}", str(fault.name)) from fault


def _print_failure(message: str, code: int) -> int:
    # A terminal that was closed (SIGHUP) takes no words any more; the exit code is still to be right.
    with contextlib.suppress(OSError):
        text = "\n".join(map(cut_long_line, replace_controls(message, lines=True).split("\n")))
        print(f"clockhands: {text}", file=sys.stderr, flush=True)
    return code
