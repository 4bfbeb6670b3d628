"""Writes an extended model as a folder that transformers opens, and opens it again to compare."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from clockhands.errors import CheckpointError, ConfigError, PositionError, UsageError
from clockhands.explanation import convert, read_positions
from clockhands.extension.attention_methods import Method
from clockhands.extension.methods import apply, changes_by_cache, read_by_cache
from clockhands.extension.retrieval import can_branch
from clockhands.files import UNFINISHED, write_text
from clockhands.model.huggingface_base import get_cache, name_cache
from clockhands.models import LanguageModel, is_run, open_language_model
from clockhands.models.language_model import count_rows_before, find_position_table
from clockhands.models.positions import change_foreign_positions
from clockhands.pretrained import CONFIG, read_json
from clockhands.runs.opening import change_positions

CONFIG4 = "config.transformers4.json"
"""The same configuration in the spelling of transformers 4, which is not read from the usual file."""
STAGE = f".model{UNFINISHED}"
"""The folder inside the result's in which a model is put together."""
HALF_WRITTEN = f".*{UNFINISHED}"
REPORT = "report"
"""The folder of the page, inside the result's."""
TOLERANCE = 1e-5
"""The largest difference of a logit between the model that was judged and the one that was written."""
STEPS = 32
"""Tokens that a written model reads one by one with its cache."""
LEFT = (CONFIG, "README.md", "recipe.toml", "run.json", "metrics.jsonl", "curves.svg", CONFIG4)
"""Files of a model folder that are written again, or that tell of another training."""


def refuse_taken(folder: Path) -> None:
    """Raise UsageError for a folder that holds a model: nothing is overwritten."""
    if (folder / CONFIG).exists():
        raise UsageError(f"{folder} holds a model already; name another folder with --out")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name a folder with --out")


@contextmanager
def stage(folder: Path) -> Iterator[Path]:
    """Yield an empty folder inside a folder, and remove it at the end with whatever was not published.

    What a killed process left half written in the folder and in its page is removed first. No other process may be
    writing there; in other folders below it one may be.
    """
    place = folder / STAGE
    shutil.rmtree(place, ignore_errors=True)
    for path in (*folder.glob(HALF_WRITTEN), *(folder / REPORT).rglob(HALF_WRITTEN)):
        if not path.is_dir():
            path.unlink()
    place.mkdir(parents=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def publish(place: Path, folder: Path) -> None:
    """Move the files of a finished model from ``stage`` into its folder, its configuration last.

    A folder without a configuration holds no model, so a process that is killed here can be begun again.
    """
    for path in sorted(place.iterdir(), key=lambda path: path.name == CONFIG):
        path.replace(folder / path.name)


@dataclass(frozen=True)
class Written:
    """How a written model, opened again by plain transformers, computes; every number is of one text of random tokens.

    Args:
        trained, longest: tokens.
        error: the largest difference of a logit in one pass from the model that was judged.
        steps: how many tokens were read one by one with the cache, after the trained length at once; 0: none can be.
        step_error: the same of these steps, from what was judged of a cache.
        change: the largest difference of a logit beyond the trained length between one pass and such steps.
        stale: of a text of the trained length after one of the longest, from the same text read first.
        spread: the standard deviation of the logits.
    """

    trained: int
    longest: int
    error: float
    steps: int
    step_error: float
    change: float
    stale: float
    spread: float


def write_extended(
    model: LanguageModel, method: Method, trained: int, longest: int, folder: Path, tuned: LanguageModel | None = None
) -> Written:
    """Write a model with a method into a folder, and return what ``write_checked`` returns and raises.

    Raises UsageError where the folder holds a model already.
    """
    refuse_taken(folder)
    with stage(folder) as place:
        written = write_checked(model, method, trained, longest, place, tuned)
        publish(place, folder)
    return written


def write_checked(
    model: LanguageModel, method: Method, trained: int, longest: int, place: Path, tuned: LanguageModel | None = None
) -> Written:
    """Write a model with a method into an empty folder, open it again, and return how it computes, by its cache too.

    Weights of a folder are copied as they are, unless ``tuned``, the model with the method laid over it, was trained
    since. Raises CheckpointError where what was written does not compute what was judged.
    """
    # One text of the longest length, of ordinary tokens.
    ids_BS = torch.randint(0, len(model.tokenizer), (1, longest), generator=torch.Generator().manual_seed(0))
    ids_BS[0, : len(model.start_ids)] = torch.tensor(model.start_ids, dtype=torch.long)
    with nullcontext(tuned) if tuned is not None else apply(model, method) as extended:
        _write_files(extended, method, longest, place, weights=tuned is not None)
        expected_SV = by_steps_SV = extended.compute_logits(ids_BS)[0].cpu()
        if changes_by_cache(model, method):
            with read_by_cache(extended, method, trained):
                by_steps_SV = extended.compute_logits(ids_BS)[0].cpu()
    opened = open_language_model(
        place, device=str(model.device), dtype=next(model.model.parameters()).dtype, masked=model.mask_id is not None
    )
    stepped_CV = _decode(opened, ids_BS, trained)
    short_SV = opened.compute_logits(ids_BS[:, :trained])[0].cpu()
    error = _differ(opened.compute_logits(ids_BS)[0].cpu(), expected_SV)
    written = Written(
        trained,
        longest,
        error,
        steps=len(stepped_CV),
        step_error=_differ(stepped_CV, by_steps_SV[trained:][: len(stepped_CV)]),
        change=_differ(by_steps_SV[trained:], expected_SV[trained:]),
        stale=_differ(opened.compute_logits(ids_BS[:, :trained])[0].cpu(), short_SV),
        spread=float(expected_SV.std()),
    )
    if not max(error, written.step_error) <= TOLERANCE * max(1.0, float(expected_SV.abs().max())):
        raise CheckpointError(
            f"what was written for {model.source} differs by {max(error, written.step_error):.2g} in its logits from "
            "what was judged; nothing was kept"
        )
    return written


def _differ(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the largest difference of two tensors; 0 of empty ones."""
    return float((ours - theirs).abs().max()) if len(ours) else 0.0


@torch.inference_mode()
def _decode(model: LanguageModel, ids_1S: torch.Tensor, prefill: int) -> torch.Tensor:
    """Return the logits of ``STEPS`` tokens that are read one by one with the cache, [C, V], after a prefill at once.

    None of a model that does not go on from its cache, or of ours where keys in it would be stale.
    """
    if not can_branch(model):
        return torch.zeros(0, 0)
    reading = model.model(input_ids=ids_1S[:, :prefill].to(model.device), use_cache=True)
    logits = [reading.logits[:0, 0]]
    try:
        for place in range(prefill, min(prefill + STEPS, ids_1S.shape[1])):
            token_11 = ids_1S[:, place : place + 1].to(model.device)
            reading = model.model(input_ids=token_11, use_cache=True, **name_cache(get_cache(reading)))
            logits.append(reading.logits[:, -1])
    except PositionError:
        return torch.zeros(0, 0)
    return torch.cat(logits).float().cpu()


def _write_files(extended: LanguageModel, method: Method, longest: int, place: Path, *, weights: bool) -> None:
    """Write configuration, weights and tokenizer; ``weights``: those in memory, in place of the source's files."""
    source = Path(extended.source)
    if is_run(extended.source):
        _copy(source, place)
        if weights or method.table:
            extended.model.save_pretrained(place)
        config = copy.deepcopy(extended.model.config)
        if method.options:  # with another scheme or table, the model has the configuration already
            config = change_positions(config, method.options)
        config.architectures = extended.model.config.architectures or [type(extended.model).__name__]
        config.save_pretrained(place)
        return
    if weights or method.table or not source.is_dir():
        extended.model.save_pretrained(place)
        tokenizer = copy.deepcopy(extended.tokenizer)
        if getattr(tokenizer, "model_max_length", longest) < longest:  # it would cut texts at the old length
            tokenizer.model_max_length = longest
        tokenizer.save_pretrained(place)
    else:
        _copy(source, place)
    config = copy.deepcopy(extended.model.config)
    if method.options:
        change_foreign_positions(config, method.options, extended.source, extended.trained_length)
    text = config.get_text_config(decoder=True)
    # transformers takes this number for the trained length where the base grows with the text.
    if method.options.get("spectrum") == "dynamic":
        text.max_position_embeddings = method.options["original_length"]
    else:
        # RoBERTa's configuration counts the rows before the first token's, OPT's does not.
        table = find_position_table(extended.model)
        counts = table is not None and not hasattr(table[1], "offset")
        text.max_position_embeddings = longest + (count_rows_before(table[1]) if table and counts else 0)
    if getattr(text, "rope_parameters", None):  # tuples become lists, as they are read back
        text.rope_parameters = json.loads(json.dumps(text.rope_parameters))
    config.save_pretrained(place)
    _write_for_version_4(place)


def _copy(source: Path, place: Path) -> None:
    """Copy the files of a model folder, those that are written anew left out."""
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name not in LEFT and not path.name.startswith("."):
            shutil.copyfile(path, place / path.name)


def _write_for_version_4(place: Path) -> None:
    """Write the configuration as transformers 4 spells it, where it can be said there."""
    raw = read_json(place / CONFIG)
    if "rope_parameters" not in raw:
        return
    try:
        spelling = json.loads(convert(read_positions(place), "hf4"))
    except ConfigError:
        return
    del raw["rope_parameters"]
    write_text(place / CONFIG4, json.dumps({**raw, **spelling}, indent=2))


def list_engine_lines(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield how each program is told the positions of a folder, or why it cannot be."""
    positions = read_positions(folder)
    names = {"vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp", "gguf": "GGUF"}
    for form, name in names.items():
        try:
            yield name, convert(positions, form)
        except ConfigError as fault:
            yield name, f"cannot be told: {'; '.join(fault.faults)}"
