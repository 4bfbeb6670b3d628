"""Retrieval: whether a value that stands in the text is found again, by depth and length, by its rank.

A base model writes what it likes; whether it would have found a value is seen in the rank of the right one among wrong
ones, of which chance gives one half. The tasks are those of ``fact_questions.py`` (RULER, Hsieh et al. 2024, by rank in
place of generation).

The control is the same question without the facts. A text is read once and asked for all that stands in it: passkey
and recall are the same questions of the same text, with other wrong values.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from clockhands.errors import PositionError
from clockhands.extension.facts import (
    DEPTHS,
    FORMATS,
    PLAIN,
    TASKS,
    FactQuestion,
    Item,
    Writing,
    lay_out_all,
    make_items,
    spread_fillers,
)
from clockhands.extension.reading import Stream, can_read, choose_batch_tokens, compute_tail_logits, get_answer_ids
from clockhands.model.huggingface_cache import get_cache, name_cache
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float, Int, Tensor

PROBE = 12
"""Tokens of the text on which reading on from a cache is compared with reading the whole."""
TOLERANCE = 1e-3
"""The largest difference of a logit between the two, as a share of the largest logit; more in 16 bits."""


def can_branch(model: LanguageModel) -> bool:
    """Return whether a model goes on from its KV cache to the logits that it gives when it reads the whole text."""
    if model.mask_id is not None:
        return False
    vocabulary = model.vocabulary_size
    ids_BS = np.random.default_rng(0).integers(0, vocabulary, (2, PROBE))
    context_NC, asked_NKQ = ids_BS[:, :-2], np.stack([ids_BS[:, -2:], ids_BS[::-1, -2:]], axis=1)
    try:
        branched, expected = (ask(model, context_NC, asked_NKQ, branching=branching) for branching in (True, False))
    except Exception:  # a model that takes no cache, or not ours, raises anything
        return False
    share = TOLERANCE if next(model.model.parameters()).dtype == torch.float32 else 30 * TOLERANCE
    return bool((branched - expected).abs().max() <= share * expected.abs().max())


@torch.inference_mode()
def ask(
    model: LanguageModel, context_NC: Int[np.ndarray, "N C"], asked_NKQ: Int[np.ndarray, "N K Q"], *, branching: bool
) -> Float[Tensor, "N K V"]:
    """Compute the logits of the answer to each of K questions of N texts, in float32 on the CPU.

    ``branching``: each text is read once, and every question goes on from a copy of its cache, with positions and rules
    as while the model writes; else each is read whole, and so it is by a model of ours whose positions follow from the
    length of the text.
    """
    batch = max(1, choose_batch_tokens(model) // context_NC.shape[1])
    pieces = []
    for first in range(0, len(context_NC), batch):
        context_BC = torch.from_numpy(context_NC[first : first + batch])
        asked_KBQ = torch.from_numpy(asked_NKQ[first : first + batch]).transpose(0, 1)
        if branching:
            try:
                logits = _read_on(model, context_BC, asked_KBQ)
            except PositionError:  # ours refuse a cache whose keys a longer text makes stale
                branching = False
        if not branching:
            whole = (torch.cat([context_BC, asked_BQ], 1) for asked_BQ in asked_KBQ)
            tail = max(1, len(get_answer_ids(model)))
            logits = [compute_tail_logits(model, ids_BS, tail)[:, 0] for ids_BS in whole]
        pieces.append(torch.stack([logits_BV.float().cpu() for logits_BV in logits], dim=1))
    return torch.cat(pieces)


def _read_on(
    model: LanguageModel, context_BC: Int[Tensor, "B C"], asked_KBQ: Int[Tensor, "K B Q"]
) -> list[Float[Tensor, "B V"]]:
    cache = get_cache(model.model(input_ids=context_BC.to(model.device), use_cache=True, logits_to_keep=1))
    logits = []
    for asked_BQ in asked_KBQ.to(model.device):
        reading = model.model(input_ids=asked_BQ, use_cache=True, **name_cache(copy.deepcopy(cache)))
        logits.append(reading.logits[:, -1])
    return logits


CHANCE = 0.5
CALIBRATION = 5
"""Texts by which the writing of the facts is chosen."""


@dataclass(frozen=True)
class Retrieval:
    """Ranks of the right values, 1 the best and 0 the worst, by task.

    Args:
        lengths: R lengths in tokens.
        ranks: of each task, the mean over the questions of each of N texts, by R lengths; NaN where the model cannot
            read so far.
        control: of each task, the ranks of the texts without the facts.
        by_depth: of each task, the mean rank at each of ``DEPTHS`` by R lengths.
        questions: of each task, how many were asked at each length.
        writing: how a fact was written.
    """

    lengths: tuple[int, ...]
    ranks: Mapping[str, Float[np.ndarray, "N R"]]
    control: Mapping[str, Float[np.ndarray, " N"]]
    by_depth: Mapping[str, Float[np.ndarray, "D R"]]
    questions: Mapping[str, int]
    writing: str


def rank(logits_V: torch.Tensor, question: FactQuestion) -> float:
    """Return the share of wrong values that the right one beats; a tie counts half."""
    wrong = logits_V[list(question.wrong)]
    right = logits_V[question.right]
    return float((right > wrong).double().mean() + 0.5 * (right == wrong).double().mean())


def _rank_all(
    model: LanguageModel, rows: Sequence[Sequence[int]], items: Sequence[Item], writing: Writing, branching: bool
) -> list[list[float]]:
    """Return the ranks of the questions of each text."""
    names_NK = [list(dict.fromkeys(question.name for question in item.questions)) for item in items]
    asked_NKQ = np.array([[writing.ask(name) for name in names] for names in names_NK])
    logits_NKV = ask(model, np.array(rows), asked_NKQ, branching=branching)
    return [
        [rank(logits_KV[names.index(question.name)], question) for question in item.questions]
        for item, names, logits_KV in zip(items, names_NK, logits_NKV, strict=True)
    ]


def choose_writing(model: LanguageModel, stream: Stream, length: int, seed: int) -> Writing:
    """Return the writing of facts that the model finds best in texts of ``length`` tokens, by texts of their own."""
    (items,) = make_items(model, ("passkey", "recall"), CALIBRATION, seed + 1_000)
    fillers = list(spread_fillers(stream, len(items), length))
    branching = can_branch(model)
    best, chosen = -1.0, None
    for form in FORMATS:
        writing = Writing.of(model, form)
        rows = lay_out_all(items, fillers, writing, length, model.start_ids)
        if rows is None:
            continue
        mean = float(np.mean(_rank_all(model, rows, items, writing, branching)))
        if mean > best:
            best, chosen = mean, writing
    return chosen or Writing.of(model, PLAIN)


def measure_retrieval(
    model: LanguageModel,
    stream: Stream,
    lengths: Sequence[int],
    writing: Writing,
    *,
    items: int,
    seed: int,
    tasks: Sequence[str] = TASKS,
    control: bool = True,
    progress: CountProgress = ignore_count,
) -> Retrieval:
    """Measure the rank of right values in texts of these lengths, and without the facts.

    ``items``: questions of passkey and of recall, one at each depth in a text; *tracking* asks three of as many texts.
    A length too short for the facts of a task is left out, as NaN.
    """
    count = -(-items // len(DEPTHS))
    kinds = make_items(model, tasks, count, seed)
    fillers = list(spread_fillers(stream, count, max(lengths)))
    readable, branching = [can_read(model, length) for length in lengths], can_branch(model)
    scores: list[tuple[Sequence[Item], list[list[list[float]] | None], list[list[float]] | None]] = []
    total, done = len(kinds) * sum(lengths), 0
    for texts in kinds:
        by_length: list[list[list[float]] | None] = []
        for rung, length in enumerate(lengths):
            progress("retrieval: tokens of context", done, total)
            done += length
            rows = lay_out_all(texts, fillers, writing, length, model.start_ids) if readable[rung] else None
            by_length.append(None if rows is None else _rank_all(model, rows, texts, writing, branching))
        bare = None
        if control:
            empty = [Item((), item.questions) for item in texts]
            rows = lay_out_all(empty, fillers, writing, min(lengths), model.start_ids)
            bare = None if rows is None else _rank_all(model, rows, empty, writing, branching)
        scores.append((texts, by_length, bare))
    progress("retrieval: tokens of context", total, total)
    return _gather(tuple(lengths), tasks, scores, writing)


def _gather(lengths: tuple[int, ...], tasks: Sequence[str], scores: Sequence[Any], writing: Writing) -> Retrieval:
    """Take the ranks of each task out of those of the texts in which it is asked."""
    ranks, controls, depths, counts = {}, {}, {}, {}
    for texts, by_length, bare in scores:
        for task in (task for task in tasks if any(question.task == task for question in texts[0].questions)):
            places = [place for place, question in enumerate(texts[0].questions) if question.task == task]
            absent = [[np.nan] * len(texts[0].questions)] * len(texts)
            ranks_NKR = np.stack([np.array(rows or absent)[:, places] for rows in by_length], axis=-1)
            depth_NK = np.array([[item.questions[place].depth for place in places] for item in texts])
            ranks[task] = ranks_NKR.mean(1)
            depths[task] = np.stack(
                [ranks_NKR[depth_NK == depth].mean(0) if (depth_NK == depth).any() else np.full(len(lengths), np.nan)
                 for depth in DEPTHS]
            )  # fmt: skip
            counts[task] = depth_NK.size
            if bare is not None:
                controls[task] = np.array(bare)[:, places].mean(1)
    return Retrieval(lengths, ranks, controls, depths, counts, writing.example)
