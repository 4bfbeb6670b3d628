"""Writes an extended model as a folder that transformers opens, opens it again, and says what it computes there."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clockhands.errors import CheckpointError, ConfigError, PositionError, UsageError
from clockhands.explanation import convert, read_positions
from clockhands.extension.choice_findings import describe_choice
from clockhands.extension.choose import Choice, Judged
from clockhands.extension.methods import (
    Method,
    apply,
    changes_by_cache,
    find_dependence,
    make_configuration,
    read_by_cache,
)
from clockhands.extension.retrieval import can_branch
from clockhands.files import UNFINISHED, write_text
from clockhands.findings import Finding, Findings, Table, join_words
from clockhands.model.huggingface_base import get_cache, name_cache
from clockhands.models import LanguageModel, is_run, open_language_model
from clockhands.models.language_model import count_rows_before, find_position_table
from clockhands.pretrained import CONFIG, GENERATION, TOKENIZER, WEIGHTS, read_json
from clockhands.runs.opening import change_positions
from clockhands.streams import quote_code

CONFIG4 = "config.transformers4.json"
"""The same configuration in the spelling of transformers 4, which is not read from the usual file."""
STAGE = f".model{UNFINISHED}"
"""The folder inside the result's in which a model is put together."""
HALF_WRITTEN = f".*{UNFINISHED}"
TUNING = ".tuning.pt"
"""Where a training is kept until it is done."""
MEASURED = ".measured.json"
"""Where results are kept until all is done, so that a stopped command goes on where it was."""
REPORT = "report"
"""The folder of the page, inside the result's."""
TOLERANCE = 1e-5
"""The largest difference of a logit between the model that was judged and the one that was written, as a share of the
largest logit. In 16 bits it is eight of their rounding errors, since steps by a cache round elsewhere than one pass."""
STEPS = 32
"""Tokens that a written model reads one by one with its cache."""
NOT_COPIED = (CONFIG, "README.md", "recipe.toml", "run.json", "metrics.jsonl", "curves.svg", CONFIG4)
"""Files of a model folder that are written again, or that tell of another training."""
STALE = 1e-3
"""The share of the spread of the logits above which a text that changes after a longer one is told."""
KEPT_KEYS = {
    1: "Keys keep the frequencies of the call that read them, the short list, and later tokens use the long one.",
    2: "Keys keep the frequencies of the step that read them, and every later token has slower ones.",
}
"""Why a cache changes what is read, by ``find_dependence``."""
DETAILS = {"group": "What was written"}


def refuse_taken(folder: Path, source: str | Path) -> None:
    """Raise UsageError for a folder that holds a model, or files that would be replaced: nothing is overwritten.

    ``source``: of the model that is extended, whose files are copied if it is a folder.
    """
    if (folder / CONFIG).exists():
        raise UsageError(f"{folder} holds a model already; name another folder with --out")
    for path in (folder, folder / REPORT):
        if path.is_file():
            raise UsageError(f"{path} is a file; name another folder with --out")
    written = {*NOT_COPIED, WEIGHTS, GENERATION, TOKENIZER, *(path.name for path in Path(source).glob("[!.]*"))}
    taken = sorted(name for name in written if (folder / name).is_file())
    stopped = (folder / MEASURED).exists() or (folder / STAGE).exists()  # a command that left them, and goes on
    if taken and not stopped:
        raise UsageError(f"{folder} holds {join_words(taken)}, which would be replaced; name another folder with --out")


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

    A folder without a configuration holds no model, so a process that is killed here can be begun again. What that
    would need is removed just before the configuration comes.
    """
    for path in place.iterdir():
        if path.name != CONFIG:
            path.replace(folder / path.name)
    for name in (MEASURED, TUNING):
        (folder / name).unlink(missing_ok=True)
    if (place / CONFIG).exists():
        (place / CONFIG).replace(folder / CONFIG)


@dataclass(frozen=True)
class WriteCheck:
    """How a written model, opened again by plain transformers, computes; every number is of one text of random tokens.

    Args:
        trained, longest: tokens.
        error: the largest difference of a logit in one pass from the model that was judged.
        steps: how many tokens were read one by one with the cache, after the trained length at once; 0: none can be.
        step_error: the same of these steps, from what was judged of a cache.
        change: the largest difference of a logit beyond the trained length between one pass and such steps.
        stale: of a text of the trained length after one of the longest, from the same text read first.
        spread: the standard deviation of the logits.
        rereads: whether ``generate`` of its class reads a text again where that outgrows the trained length.
    """

    trained: int
    longest: int
    error: float
    steps: int
    step_error: float
    change: float
    stale: float
    spread: float
    rereads: bool


def write_extended(
    model: LanguageModel, method: Method, trained: int, longest: int, folder: Path, tuned: LanguageModel | None = None
) -> WriteCheck:
    """Write a model with a method into a folder, and return what ``write_checked`` returns and raises.

    Raises UsageError where the folder holds a model already.
    """
    refuse_taken(folder, model.source)
    with stage(folder) as place:
        written = write_checked(model, method, trained, longest, place, tuned)
        publish(place, folder)
    return written


def write_checked(
    model: LanguageModel, method: Method, trained: int, longest: int, place: Path, tuned: LanguageModel | None = None
) -> WriteCheck:
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
        elif is_run(model.source) and find_dependence(model, method) == 2:
            # Ours reads each text so far as in one pass over it, with its own base.
            passes = [
                extended.compute_logits(ids_BS[:, : place + 1])[0, -1] for place in range(trained, longest)[:STEPS]
            ]
            by_steps_SV = torch.cat([expected_SV[:trained], torch.stack(passes).cpu()])
    dtype = next(model.model.parameters()).dtype
    opened = open_language_model(place, device=str(model.device), dtype=dtype, masked=model.mask_id is not None)
    # The short text first: transformers may keep the base of a longer one, also of one that grew token by token.
    short_SV = opened.compute_logits(ids_BS[:, :trained])[0].cpu()
    switches = changes_by_cache(model, method) and find_dependence(model, method) == 1
    rereads = switches and _rereads(opened, ids_BS[:, :trained])
    stepped_CV = _decode(opened, ids_BS, trained)
    found_SV, again_SV = (opened.compute_logits(ids_BS[:, :length])[0].cpu() for length in (longest, trained))
    error = _differ(found_SV, expected_SV)
    step_error = _differ(stepped_CV, by_steps_SV[trained:][: len(stepped_CV)])
    tolerance = max(TOLERANCE, 8 * torch.finfo(dtype).eps)  # 9.5e-7 in float32
    if not max(error, step_error) <= tolerance * max(1.0, float(expected_SV.abs().max())):
        raise CheckpointError(
            f"what was written for {model.source} differs by {max(error, step_error):.2g} in its logits from what was "
            "judged; nothing was kept"
        )
    change, stale = _differ(by_steps_SV[trained:], expected_SV[trained : len(by_steps_SV)]), _differ(again_SV, short_SV)
    spread = float(expected_SV.std())
    return WriteCheck(trained, longest, error, len(stepped_CV), step_error, change, stale, spread, rereads)


def _differ(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the largest difference of two tensors; 0 of empty ones."""
    return float((ours - theirs).abs().max()) if len(ours) else 0.0


@torch.inference_mode()
def _decode(model: LanguageModel, ids_1S: torch.Tensor, prefill: int) -> torch.Tensor:
    """Return the logits of ``STEPS`` tokens that are read one by one with the cache, [C, V], after a prefill at once.

    Empty where the model cannot go on from its cache, or where keys in it would be stale.
    """
    if not can_branch(model):
        return torch.zeros(0, 0)
    reading = model.model(input_ids=ids_1S[:, :prefill].to(model.device), use_cache=True)
    logits = [reading.logits[:0, 0]]
    try:
        for token_11 in ids_1S[:, prefill : prefill + STEPS].to(model.device).split(1, dim=1):
            reading = model.model(input_ids=token_11, use_cache=True, **name_cache(get_cache(reading)))
            logits.append(reading.logits[:, -1])
    except PositionError:
        return torch.zeros(0, 0)
    return torch.cat(logits).float().cpu()


def _rereads(model: LanguageModel, ids_1S: torch.Tensor) -> bool:
    """Return whether ``generate`` reads the whole text again where that outgrows the trained length, as Phi 3's."""
    counts: list[int] = []

    def count(_: Any, arguments: Any, named: dict[str, Any]) -> None:
        counts.append(named["input_ids"].shape[1])

    with model.model.register_forward_pre_hook(count, with_kwargs=True):
        ids_1S = ids_1S.to(model.device)
        model.model.generate(
            input_ids=ids_1S, attention_mask=torch.ones_like(ids_1S), max_new_tokens=3, min_new_tokens=3,
            do_sample=False, pad_token_id=0,
        )  # fmt: skip
    return max(counts[1:]) > 1


def _write_files(extended: LanguageModel, method: Method, longest: int, place: Path, *, weights: bool) -> None:
    """Write configuration, weights and tokenizer; ``weights``: those in memory, in place of the source's files."""
    source, model = Path(extended.source), extended.model
    if source.is_dir() and (is_run(source) or not (weights or method.table)):
        for path in sorted(source.iterdir()):
            if path.is_file() and path.name not in NOT_COPIED and not path.name.startswith("."):
                shutil.copyfile(path, place / path.name)
    if is_run(source):
        if weights or method.table:
            model.save_pretrained(place)
        config = copy.deepcopy(model.config)  # in which saving notes the type of the weights
        if method.options:  # with another scheme or table, the model has the configuration already
            config = change_positions(config, method.options)
        config.architectures = model.config.architectures or [type(model).__name__]
        config.save_pretrained(place)
        return
    if weights or method.table or not source.is_dir():
        model.save_pretrained(place)
        extended.tokenizer.save_pretrained(place)
    settings = read_json(place / TOKENIZER) if (place / TOKENIZER).exists() else {}
    if settings.get("model_max_length", longest) < longest:  # it would cut texts at the old length
        write_text(place / TOKENIZER, json.dumps({**settings, "model_max_length": longest}, indent=2))
    config = make_configuration(extended, method) if method.options else copy.deepcopy(model.config)
    text, table = config.get_text_config(decoder=True), find_position_table(model)
    if method.options.get("spectrum") != "dynamic":
        text.max_position_embeddings = longest
    if table is not None and not hasattr(table[1], "offset"):
        # RoBERTa's configuration counts the rows before the first token's, OPT's does not.
        text.max_position_embeddings += count_rows_before(table[1])
    if getattr(text, "rope_parameters", None):  # tuples become lists, as they are read back
        text.rope_parameters = json.loads(json.dumps(text.rope_parameters))
    config.save_pretrained(place)
    # As transformers 4 spells it, where it can be said there.
    raw = read_json(place / CONFIG)
    if raw.pop("rope_parameters", None) is not None:
        try:
            spelling = json.loads(convert(read_positions(place), "hf4"))
        except ConfigError:
            return
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


def make_cache_finding(written: WriteCheck, chosen: Judged, plain: Judged, *, ours: bool) -> Finding:
    """Return the finding that says what a written model computes where it goes on by its cache.

    ``chosen``: what was judged of it, after training where it was trained. ``ours``: whether it is one of this project.
    """
    trained, lengths = written.trained, chosen.drift.lengths
    is_stale = written.stale > STALE * written.spread
    rows: list[tuple[object, ...]] = []
    if chosen.cached is not None:
        means = [reading.losses_NR.mean(0) for reading in (plain.drift, chosen.drift, chosen.cached)]
        rows = list(zip(lengths, *means, strict=True))
        plain_loss = f"{means[0][-1]:.3f}" if np.isfinite(means[0][-1]) else "it cannot be read"
        whose = "It reads"
        if written.rereads:
            whose = (
                f"For `generate` nothing: it reads the whole text again after {trained:,} tokens, and goes on as in "
                "one pass. A program that keeps the cache reads"
            )
        verdict = (
            f"{whose} otherwise: after {trained:,} tokens at once and the others one by one the loss at "
            f"{lengths[-1]:,} tokens is {means[2][-1]:.3f}; in one pass it is {means[1][-1]:.3f}, as trained "
            f"{plain_loss}. {KEPT_KEYS[chosen.dependence]} Beyond {trained:,} tokens its logits differ by "
            f"up to {written.change:.2g} from those of one pass; their standard deviation is {written.spread:.2g}."
        )
    elif chosen.dependence and ours and written.steps:
        verdict = "Nothing: its one layer keeps keys as they are before they turn, and turns them again at every step."
    elif chosen.dependence and ours:
        verdict = (
            f"It takes none beyond {trained:,} tokens, where keys in it would be stale: `generate` reads the whole "
            "text again at every step, as in one pass, which is slower."
        )
    elif not written.steps:
        verdict = "It was not tried: this model does not go on from a cache to the logits of one pass."
    else:
        verdict = (
            f"Nothing: its positions do not depend on the length of the text. After {trained:,} tokens at once, "
            f"{written.steps} tokens one by one gave logits that differ by at most {written.step_error:.1g}."
        )
    if is_stale:
        verdict += (
            f" After a text of {written.longest:,} tokens, one of {trained:,} gives logits that differ by up to "
            f"{written.stale:.2g} from those in a fresh process: transformers keeps the base of the longer text until "
            f"it reads one of fewer than {trained:,} tokens."
        )
    return Finding(
        "extend.cache",
        "What changes where it goes on by its cache, as in `generate`?",
        verdict,
        light="warn" if rows or is_stale else "good",
        table=Table.of(["tokens", "loss as trained", "loss in one pass", "loss by its cache"], rows),
        method=(
            "The written folder was opened again; one text of random tokens was read in one pass and by its cache, and "
            "compared with what was judged. Losses: texts of the judgement."
        ),
        details=DETAILS,
    )


def make_engine_finding(folder: Path, dependence: int) -> Finding:
    """Return the finding that lists how each program is told the positions of a written model."""
    four = f"; for transformers 4 put {CONFIG4} in the place of config.json" if (folder / CONFIG4).exists() else ""
    verdict = f"transformers 5 reads the folder as it is{four}."
    if dependence == 1:
        verdict += " vLLM and SGLang use the long list for every text, short ones too."
    return Finding(
        "extend.engines",
        "How is it served?",
        verdict,
        light="info",
        table=Table.of(["program", "is told"], list_engine_lines(folder)),
        method="Converted from the written configuration, as `clockhands explain --to` does.",
        details=DETAILS,
    )


def write_card(findings: Findings, choice: Choice, source: str, folder: Path) -> Path:
    """Write ``README.md`` of an extended model: the sentences of the findings with their tables."""
    from huggingface_hub import ModelCard, ModelCardData

    base = None if Path(source).exists() else source  # a folder is nobody else's model
    data = ModelCardData(library_name="transformers", tags=["clockhands", "long-context"], base_model=base)
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {source}, for texts of {choice.longest:,} tokens",
        describe_choice(choice),
        f"Trained on texts of {choice.trained:,} tokens. Made by {quote_code(findings.command)}.",
    ]
    for finding in findings:
        parts += [f"## {finding.question}", finding.verdict]
        if finding.table.rows:
            lines = []
            for row in (finding.table.columns, ["---"] * len(finding.table.columns), *finding.table.rows):
                texts = [
                    f"{cell:.4g}" if isinstance(cell, float) else str("" if cell is None else cell) for cell in row
                ]
                lines.append("| " + " | ".join(text.replace("\n", "⏎").replace("|", "\\|") for text in texts) + " |")
            parts.append("\n".join(lines))
    ModelCard("\n\n".join(parts) + "\n").save(folder / "README.md")
    return folder / "README.md"
