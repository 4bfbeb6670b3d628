"""The folder of a run: the names of its files, and functions that start a run and read what it records.

::

    recipe.toml       the resolved recipe
    run.json          versions, device, parameters, a fingerprint of the data, whether it is finished
    metrics.jsonl     loss, validation loss, learning rate, speed, by step
    curves.svg        the same, drawn
    config.json, generation_config.json, model.safetensors, tokenizer files: a Hugging Face model
    modeling_clockhands.py  lets plain transformers open it (trust_remote_code=True) where this package is installed
    README.md         the model card
    checkpoints/      what training resumes from
    begin.safetensors the weights that training.begin_from gave, until the run is finished
    .starting/        the first files while the run is being made: recipe.toml takes its place last of all
    .lock             the process that writes into the folder at the moment
"""

from __future__ import annotations

import json
import os
import reprlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from clockhands.errors import CheckpointError, DataError, UsageError
from clockhands.files import LOCK, UNFINISHED, apply_umask, explain_refusal, remove_unfinished, write_text
from clockhands.options import Range, check_options, options_of
from clockhands.pretrained import CONFIG, GENERATION, LOADING_CODE, TOKENIZER, WEIGHTS
from clockhands.reading import parse_json, read_json, stream_lines
from clockhands.runs import checkpoints

RECIPE, RECORD, METRICS, CURVES = "recipe.toml", "run.json", "metrics.jsonl", "curves.svg"
CARD = "README.md"
CARD_MARK = "<!-- Written by clockhands. Take this line out to keep your own changes. -->"
"""The line of a model card by which it is known that it may be written again."""
BEGIN = "begin.safetensors"
"""The weights that training began from (``training.begin_from``)."""
STARTING, EXPORTING = ".starting", ".exporting"
"""Staging folders: for the first files of a run, and for the model that is exported."""
RUN_FILES = (
    *(RECIPE, RECORD, METRICS, CONFIG, CURVES, BEGIN, STARTING, EXPORTING, "checkpoints", GENERATION),
    *(CARD, LOADING_CODE),
    *(WEIGHTS, "model-*.safetensors", "model.safetensors.index.json", f".*{UNFINISHED}"),
    *("tokenizer.json", TOKENIZER, "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("target", "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
    *("report.html", "findings.json", "figures", "tables", "variants"),
)
"""Names of what a run writes, the tokenizers of transformers and the tour's page included. Nothing else is deleted."""


def refuse_existing(path: Path, *, overwrite: bool = False) -> None:
    """Raise UsageError if something is in the way of a new run: anything but a run, or a run unless ``overwrite``.

    A run whose start was killed is not in the way.
    """
    # os.path, unlike pathlib, takes a folder that may not be entered for one that is not there; `lock_folder`, which
    # comes next, then names it.
    if not os.path.exists(path) or (path.is_dir() and set(os.listdir(path)) <= {LOCK}):  # noqa: PTH110, PTH208
        return
    if not (path / RECIPE).is_file():
        if not (path / STARTING).is_dir():
            raise UsageError(f"{path} exists and is not a training run; it is left alone, choose another folder")
    elif not overwrite:
        raise UsageError(
            f"{path} already holds a run; replace it: --overwrite (overwrite=True), or continue a training that "
            f"was stopped: clockhands train --resume {path} (resume)"
        )


def refuse_obstacles(path: Path) -> None:
    """Raise CheckpointError if a folder lies where a run writes a file: training would fail there at its end."""
    for name in (CONFIG, GENERATION, WEIGHTS, METRICS, RECORD, CURVES, LOADING_CODE):
        if (path / name).is_dir():
            raise CheckpointError(f"{path / name} is a folder, and the run writes a file of that name: move it away")


@contextmanager
def start_folder(path: Path) -> Iterator[Path]:
    """Yield a staging folder for the first files of a new run, ``recipe.toml`` among them.

    On exit the files of a former run (``RUN_FILES``) are deleted and the new ones moved into the folder, with
    ``recipe.toml`` last. A process that is killed leaves one of three: the former run; a folder without
    ``recipe.toml``, which the same command takes over; the new run. Raises DataError if the folder cannot be written.
    """
    staging = path / STARTING
    with explain_refusal(f"make the run folder {path}"):
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
    try:
        yield staging
        apply_umask(staging)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    with explain_refusal(f"make the run folder {path}"):
        # Without recipe.toml the folder is not a run any more; .starting tells that what is in it may be deleted.
        (path / RECIPE).unlink(missing_ok=True)
        for former in list(path.iterdir()):
            is_run_file = any(fnmatchcase(former.name, pattern) for pattern in RUN_FILES)
            is_own_card = former.name == CARD and not is_generated_card(former)  # somebody's
            if former == staging or not is_run_file or is_own_card:
                continue
            if former.is_dir() and not former.is_symlink():
                shutil.rmtree(former)
            else:
                former.unlink()
        (path / "checkpoints").mkdir()
        for file in sorted(staging.iterdir(), key=lambda file: file.name == RECIPE):
            file.replace(path / file.name)
        staging.rmdir()


def find_model_folder(path: Path) -> Path | None:
    """Return the folder that holds the model of a run: its own, else its last checkpoint; None if there is none."""
    folders = (path, *checkpoints.list_checkpoints(path / "checkpoints")[::-1])
    return next((folder for folder in folders if (folder / CONFIG).is_file()), None)


def tidy_folder(path: Path) -> None:
    """Remove what a killed process left half written in the folder of a run."""
    for name in (STARTING, EXPORTING):
        shutil.rmtree(path / name, ignore_errors=True)
    remove_unfinished(path, RECIPE, RECORD, METRICS, CURVES, CARD)
    checkpoints.remove_leftovers(path / "checkpoints")


def is_generated_card(path: Path) -> bool:
    """Return whether training wrote a model card, and nobody has taken ``CARD_MARK`` out of it to keep it."""
    return path.is_file() and CARD_MARK.encode() in path.read_bytes()


def add_facts(folder: Path, **facts: Any) -> None:
    """Add facts to ``run.json``; a fact of the same name is replaced."""
    path = folder / RECORD
    known = read_json(path) if path.is_file() else {}
    write_text(path, json.dumps({**known, **facts}, indent=2) + "\n")


@dataclass(frozen=True)
class _RunFacts:
    """What ``run.json`` says of a run, as far as anything depends on it."""

    finished: bool = False
    step: Annotated[int, Range(least=0)] = 0
    exported_step: Annotated[int, Range(least=0)] | None = 0
    parameters: Annotated[int, Range(least=0)] = 0
    device: str = ""
    torch: str = ""
    transformers: str = ""
    data: str = ""
    precision: Mapping[str, str] = field(default_factory=dict)


def read_record(path: Path) -> dict[str, Any]:
    """Read ``run.json``. Raises CheckpointError if it is damaged, or lacks the size and step of a finished run."""
    record = read_json(path)
    options = options_of(_RunFacts)
    _, faults = check_options({key: record[key] for key in options if key in record}, options, RECORD, prefix="")
    if record.get("finished"):
        faults += [f"{key} is missing" for key in ("step", "parameters") if key not in record]
    precision = record.get("precision")
    if isinstance(precision, Mapping) and not (
        precision.get("name") in ("fp32", "bf16") and isinstance(precision.get("device"), str)
    ):
        faults.append("precision has no name (fp32 or bf16) and device")
    if faults:
        raise CheckpointError(f"{path} is damaged: {'; '.join(faults)}; put back a whole copy")
    return record


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a ``metrics.jsonl``; a last line that was cut off while it was written is left out.

    Raises DataError for any other line that is not JSON, and for one that is not a step with numbers.
    """
    if not path.is_file():
        return []
    lines = list(stream_lines(path))
    metrics = []
    for number, line in enumerate(lines, 1):
        try:
            values = parse_json(line)
        except ValueError as fault:
            if number < len(lines):
                raise DataError(f"{path}, line {number} is not JSON ({fault}); delete that line") from fault
        else:
            wrong = ""
            if not isinstance(values, dict) or type(values.get("step")) is not int:
                wrong = "it has no step"
            elif stray := [name for name, value in values.items() if type(value) not in (int, float)]:
                wrong = f"{reprlib.repr(stray[0])} is {reprlib.repr(values[stray[0]])}"
            if wrong:
                raise DataError(f"{path}, line {number} is not a step with its numbers: {wrong}; delete that line")
            metrics.append(values)
    return metrics


def describe_missing(path: Path, file: str) -> str:
    """Return why a folder does not hold a file: the file is missing, or the path is not a folder."""
    if path.is_dir():
        return f"{file} not found"
    return "it is a file" if path.exists() else "no such folder"
