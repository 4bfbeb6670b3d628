"""Options that several commands share, and what they do with them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.errors import UsageError
from clockhands.options import Seed, check_value, convert, parse

if TYPE_CHECKING:
    from clockhands.generation import Search

__all__ = [
    "add_device",
    "add_search",
    "as_float",
    "as_int",
    "as_seed",
    "check_file",
    "make_search",
    "prepare",
    "read_as",
    "report_new_folder",
]


def read_as(type_: Any) -> Callable[[str], Any]:
    """Return the function with which argparse reads an option of this type; it refuses values out of the range."""

    def read(written: str) -> Any:
        value = convert(parse(written, type_), type_)
        faults = check_value("the value", value, type_)
        if faults:
            raise argparse.ArgumentTypeError(faults[0])
        return value

    return read


as_int, as_float, as_seed = read_as(int), read_as(float), read_as(Seed)


def check_file(option: str, path: str | None, *, overwrite: bool, suffix: str = "") -> None:
    """Raise UsageError unless a file can be written there: its folder exists, and nothing is in the way.

    ``suffix``: the one format that is written, such as ``.svg``. Nothing is checked where ``path`` is None.
    """
    if path is None:
        return
    place = Path(path)
    if suffix and place.suffix.lower() != suffix:
        raise UsageError(f"{option} {path}: the format is {suffix[1:].upper()}; name the file {place.stem}{suffix}")
    if place.is_dir():
        raise UsageError(f"{option} {path}: that is a folder; name a file in it")
    if not place.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {place.parent}; make it first, or name another file")
    if place.exists() and not overwrite:
        raise UsageError(f"{path} exists; name another file, or pass --overwrite")


@contextmanager
def report_new_folder(path: str | Path, *, quiet: bool = False) -> Iterator[None]:
    """Print on exit, on standard error, that the parent folder of ``path`` was made too, where it was missing."""
    parent = Path(path).absolute().parent
    missing = not parent.exists()
    try:
        yield
    finally:
        if missing and not quiet and parent.exists():
            print(f"made the folder {Path(path).parent}, which was not there", file=sys.stderr)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Declare where to compute, and with how many threads."""
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1, ... (default: the GPU if there is one)")
    parser.add_argument("--threads", type=as_int, metavar="N", help="use N processor threads (default: torch decides)")


def add_search(parser: argparse.ArgumentParser) -> None:
    """Declare how to search for translations."""
    group = parser.add_argument_group("how a translation is searched for")
    group.add_argument("--beam", type=as_int, default=1, metavar="N",
                       help="search with a beam of N translations; 1 takes the most likely token at each step "
                       "(default: %(default)s)")  # fmt: skip
    group.add_argument("--length-penalty", type=as_float, default=1.0, metavar="P",
                       help="with a beam: choose the highest log-probability / tokens^P (default: 1)")  # fmt: skip
    group.add_argument("--max-length", type=as_int, metavar="N",
                       help="the most tokens of one translation (default: twice the tokens of its source, which "
                       "are rounded up to a multiple of 16 first, plus 50)")  # fmt: skip
    group.add_argument("--max-source", type=as_int, default=1024, metavar="N",
                       help="read only the first N tokens of a sentence (default: %(default)s)")  # fmt: skip
    group.add_argument("--engine", metavar="NAME",
                       help="transformers (every model) or ctranslate2 (faster; added or plain rotary positions "
                       "only); default: the faster one where both write the same, which is greedy search")  # fmt: skip
    group.add_argument("--compute-type", metavar="TYPE",
                       help="number type of the engine's matrix products: int8, bfloat16, ... (default: that of the "
                       "weights with transformers, float32 with ctranslate2)")  # fmt: skip


def make_search(options: argparse.Namespace) -> Search:
    """Make the ``Search`` that the options of ``add_search`` and ``--batch`` describe. Raises UsageError as it does."""
    from clockhands.generation import Search

    return Search(
        options.beam,
        options.length_penalty,
        Search().batch if options.batch is None else options.batch,
        options.max_length,
        options.engine,
        options.compute_type,
        options.max_source,
    )


def prepare(options: argparse.Namespace) -> None:
    """Set the number of threads, check the device, and keep what the libraries print out of the output."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch
    from transformers.utils import logging

    from clockhands.devices import check_threads, open_device

    if options.threads is not None:
        check_threads(options.threads, "--threads")
        torch.set_num_threads(options.threads)
    if options.device is not None:
        open_device(options.device, "--device")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
