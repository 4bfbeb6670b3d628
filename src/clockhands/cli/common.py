"""Options that several verbs share."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clockhands.generation import Search


def add_device(parser: argparse.ArgumentParser) -> None:
    """Where to compute, and with how many threads."""
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: the GPU if there is one)")
    parser.add_argument("--threads", type=int, help="threads of this process (default: torch decides)")


def add_search(parser: argparse.ArgumentParser) -> None:
    """How to decode."""
    parser.add_argument("--beam", type=int, default=1, help="beams; 1 is greedy (default: %(default)s)")
    parser.add_argument("--length-penalty", type=float, default=1.0, help="exponent of the length (default: 1)")
    parser.add_argument("--batch", type=int, default=64, help="sentences at a time (default: %(default)s)")
    parser.add_argument("--max-length", type=int, help="most tokens of one translation")
    parser.add_argument("--engine", default="clockhands", metavar="NAME",
                        help="ctranslate2 takes less time, and fewer models (default: our own decoder)")  # fmt: skip
    parser.add_argument("--compute-type", default="float32", metavar="TYPE",
                        help="of the engine ctranslate2: int8, bfloat16, ... (default: float32)")  # fmt: skip


def search_of(options: argparse.Namespace) -> Search:
    """What ``add_search`` read."""
    from clockhands.generation import Search

    return Search(
        options.beam, options.length_penalty, options.batch, options.max_length, options.engine, options.compute_type
    )


def prepare(options: argparse.Namespace) -> None:
    """Set the threads before torch starts, and keep the libraries' own chatter out of the output."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch
    from transformers.utils import logging

    from clockhands.devices import open_device
    from clockhands.errors import UsageError

    if options.threads is not None:
        if options.threads < 1:
            raise UsageError(f"--threads is {options.threads}; it must be 1 or more")
        torch.set_num_threads(options.threads)
    if options.device is not None:
        open_device(options.device, "--device")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
