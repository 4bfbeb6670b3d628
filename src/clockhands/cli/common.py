"""Options that several commands share, and what they do with them."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from clockhands.errors import UsageError
from clockhands.options import options_of, parse, read_assignments

if TYPE_CHECKING:
    from clockhands.generation import Search
    from clockhands.models import LanguageModel
    from clockhands.runs import Run


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


def parse_length(option: str, written: str, trained: int | None, unknown: str) -> int:
    """Return a length in tokens: a number, or a multiple of the trained length such as 2x.

    Raises UsageError for what is neither, and with ``unknown`` for a multiple where no trained length is known.
    """
    word = written.strip()
    if word.endswith("x") and trained is None:
        raise UsageError(unknown)
    try:
        return int(float(word.removesuffix("x")) * (trained or 0)) if word.endswith("x") else int(word)
    except (ValueError, OverflowError):
        raise UsageError(f"{option}: {written!r} is neither a number of tokens nor a multiple like 2x") from None


def name_texts(files: Sequence[str]) -> str:
    """Return what the text of ``--text`` is called in sentences."""
    return f"the text of {', '.join(files)}"


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


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where to compute, and with how many threads.

    Args:
        device: cpu, cuda, cuda:1, ... (default: the GPU if there is one)
        threads: use N processor threads (default: torch decides)
    """

    device: Annotated[str | None, "NAME"] = None
    threads: Annotated[int | None, "N"] = None


@dataclass(frozen=True, kw_only=True)
class Searching:
    """How to search for translations.

    Args:
        beam: search with a beam of N translations; 1 takes the most likely token at each step
        length_penalty: with a beam: choose the highest log-probability / tokens^P
        max_length: the most tokens of one translation (default: twice the tokens of its source, which are rounded up to
            a multiple of 16 first, plus 50)
        max_source: read only the first N tokens of a sentence
        engine: transformers (every model) or ctranslate2 (faster; added or plain rotary positions only); default: the
            faster one where both write the same, which is greedy search
        compute_type: number type of the engine's matrix products: int8, bfloat16, ... (default: that of the weights
            with transformers, float32 with ctranslate2)
    """

    GROUP = "how a translation is searched for"
    beam: Annotated[int, "N"] = 1
    length_penalty: Annotated[float, "P"] = 1.0
    max_length: Annotated[int | None, "N"] = None
    max_source: Annotated[int, "N"] = 1024
    engine: Annotated[str | None, "NAME"] = None
    compute_type: Annotated[str | None, "TYPE"] = None

    def make_search(self, batch: int | None) -> Search:
        """Make the ``Search`` that the options describe. Raises UsageError as it does."""
        from clockhands.generation import Search

        search: dict[str, Any] = {name: getattr(self, name) for name in options_of(Searching)}
        return Search(**(search if batch is None else {**search, "batch": batch}))


def prepare(options: DeviceOptions) -> None:
    """Set the number of threads, check the device, and keep what the libraries print out of the output."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Read where transformers is imported, if it is: two seconds that not every command has to spend.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from clockhands.devices import check_threads, open_device
    from clockhands.progress import quieten

    quieten()
    if options.threads is not None:
        import torch

        check_threads(options.threads, "--threads")
        torch.set_num_threads(options.threads)
    if options.device is not None:
        open_device(options.device, "--device")


SCALINGS = ("linear", "ntk", "dynamic", "yarn")
"""RoPE scalings that change nothing with a factor of 1, their default."""


@dataclass(frozen=True, kw_only=True)
class PositionOptions:
    """How the positions of a model are changed.

    Args:
        spectrum: apply RoPE scaling, for this use only: linear, ntk, dynamic or yarn
        factor: with --position.spectrum: scale for texts F times as long as the trained ones
        overrides: change options of the model's position schemes, for this use only
    """

    spectrum: Annotated[str | None, "NAME", "--position.spectrum"] = None
    factor: Annotated[float | None, "F"] = None
    overrides: Annotated[tuple[str, ...], "position.KEY=VALUE", "--set"] = ()


@dataclass(frozen=True, kw_only=True)
class Opening:
    """How a model of transformers is opened.

    Args:
        weights: hold the weights of a Hugging Face model in memory, or read them from their files layer by layer
            (default: streamed if they do not fit into the memory)
        dtype: number type of the weights: float32, bfloat16, ... (default: float32; for a run, the type it was saved
            in)
        trust_remote_code: allow the code that comes with a Hugging Face model to run
    """

    weights: Literal["memory", "streamed"] | None = None
    dtype: Annotated[str | None, "TYPE"] = None
    trust_remote_code: bool = False


def import_engine() -> None:
    """Import CTranslate2 without transformers, which its converters import and nothing here needs.

    Only where this command is the whole process: somebody else may want to convert.
    """
    if Path(sys.argv[0]).name not in ("clockhands", "__main__.py") or "transformers" in sys.modules:
        return
    sys.modules["transformers"] = None  # type: ignore[assignment]
    with contextlib.suppress(ImportError):
        importlib.import_module("ctranslate2")
    del sys.modules["transformers"]


def open_model(options: Any, position: Mapping[str, Any], *, masked: bool = False) -> Run | LanguageModel:
    """Open the run or Hugging Face model that ``options.run`` names, as ``Opening`` says.

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


def read_positions(options: PositionOptions) -> dict[str, Any]:
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
    if overrides.get("spectrum") in SCALINGS and overrides.get("factor") is None:
        spectrum = f"--position.spectrum {overrides['spectrum']}"
        raise UsageError(f"{spectrum} needs --factor, how many times longer than trained the text is")
    return {key: value for key, value in overrides.items() if value is not None}
