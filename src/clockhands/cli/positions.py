"""Options of several commands that open a model and change its positions for one use."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clockhands.cli.common import as_float
from clockhands.errors import UsageError
from clockhands.options import parse, read_assignments

if TYPE_CHECKING:
    from clockhands.models import LanguageModel
    from clockhands.runs import Run

__all__ = ["RUN_OR_MODEL", "SCALINGS", "add_opening", "add_positions", "open_model", "read_positions"]

SCALINGS = ("linear", "ntk", "dynamic", "yarn")
"""RoPE scalings that change nothing with a factor of 1, their default."""
RUN_OR_MODEL = "the folder of a trained run, or the folder or hub name of any causal Hugging Face model"
"""The help of the argument that ``open_model`` opens."""


def add_positions(parser: argparse.ArgumentParser) -> None:
    """Declare how the positions of a model are changed."""
    parser.add_argument("--position.spectrum", dest="spectrum", metavar="NAME",
                        help="apply RoPE scaling, for this use only: linear, ntk, dynamic or yarn")  # fmt: skip
    parser.add_argument(
        "--factor",
        type=as_float,
        metavar="F",
        help="with --position.spectrum: scale for texts F times as long as the trained ones",
    )
    parser.add_argument("--set", nargs="+", default=[], dest="overrides", metavar="position.KEY=VALUE",
                        help="change options of the model's position schemes, for this use only")  # fmt: skip


def add_opening(parser: argparse.ArgumentParser) -> None:
    """Declare how a model of transformers is opened."""
    parser.add_argument("--weights", choices=("memory", "streamed"),
                        help="hold the weights of a Hugging Face model in memory, or read them from their files layer "
                        "by layer (default: streamed if they do not fit into the memory)")  # fmt: skip
    parser.add_argument("--dtype", metavar="TYPE",
                        help="number type of the weights: float32, bfloat16, ... (default: float32; for a run, the "
                        "type it was saved in)")  # fmt: skip
    parser.add_argument("--trust-remote-code", action="store_true",
                        help="allow the code that comes with a Hugging Face model to run")  # fmt: skip


def open_model(
    options: argparse.Namespace, position: Mapping[str, Any], *, masked: bool = False
) -> Run | LanguageModel:
    """Open the run or Hugging Face model that ``options.run`` names, as the options of ``add_opening`` say.

    ``masked``: whether a model that fills in masked tokens is opened too.
    """
    from clockhands.devices import read_dtype
    from clockhands.models import is_run, open_language_model
    from clockhands.runs import open_run

    dtype = None if options.dtype is None else read_dtype(options.dtype)
    if is_run(options.run) and options.weights != "streamed":
        return open_run(options.run, device=options.device, dtype=dtype, position=position)
    return open_language_model(
        options.run,
        device=options.device,
        dtype=dtype,
        position=position,
        weights=options.weights,
        trust_remote_code=options.trust_remote_code,
        masked=masked,
    )


def read_positions(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of position that the command line overrides; the model knows how long it was trained.

    Raises UsageError for a key that is none of position, and for a scaling without a factor.
    """

    overrides: dict[str, Any] = {}
    for key, value in read_assignments(options.overrides).items():
        if not key.startswith("position."):
            raise UsageError(f"--set {key}={value}: write position.OPTION=VALUE, such as position.base=500000")
        overrides[key.removeprefix("position.")] = parse(value)
    named = {"spectrum": options.spectrum, "factor": options.factor}
    overrides |= {key: value for key, value in named.items() if value is not None}
    spectrum = overrides.get("spectrum")
    if spectrum in SCALINGS and overrides.get("factor") is None:
        raise UsageError(
            f"--position.spectrum {spectrum} needs --factor, how many times longer than trained the text is"
        )
    return {key: value for key, value in overrides.items() if value is not None}
