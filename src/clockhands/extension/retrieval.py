"""Retrieval: whether a value that stands in the text is found again, by depth and length, by its rank.

A base model writes what it likes; whether it would have found a value is seen in the rank of the right one among wrong
ones, of which chance gives one half (RULER, Hsieh et al. 2024, by rank in place of generation):

- *passkey*: the wrong values do not stand in the text.
- *recall*: the wrong values are those of the other names, so a model that only knows which values there were is at
  chance (multi-query associative recall; Arora et al. 2023).
- *tracking*: facts whose value is the name of another fact; asked for is the value at the end of the chain.

The control is the same question without the facts. A text is read once and asked for all that stands in it: passkey
and recall are the same questions of the same text, with other wrong values.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from clockhands.data.corpora.stdlib import NAMES, VALUES
from clockhands.errors import DataError, PositionError
from clockhands.extension.reading import Stream, can_read, choose_batch_tokens, compute_tail_logits, get_answer_ids
from clockhands.model.huggingface_base import get_cache, name_cache
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float, Int, Tensor

NAME = "{name}"
PLAIN = ("", "", "\n")
FORMATS = (
    ("@", "", "\n"),
    ("@", "", NAME + "\n"),
    PLAIN,
    ("", ":", "\n"),
    ("", " is", ".\n"),
    ("The code of", " is", ".\n"),
)
"""What stands before a name, between it and the value, and after the value; the first two are of the corpus *facts*.

``NAME`` stands for the name once more.
"""
FEWEST = 12
"""Names, and values, that a probe needs."""
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where the facts that are asked for stand: 0 is the beginning of the text."""
TASKS = ("passkey", "recall", "tracking")
FACTS = {"recall": 6, "tracking": 3}
"""Facts of a text; of *tracking*, chains of two."""
WRONG = 15
"""Wrong values of *passkey*."""
CHANCE = 0.5
CALIBRATION = 5
"""Texts by which the writing of the facts is chosen."""
PROBE = 12
"""Tokens of the text on which reading on from a cache is compared with reading the whole."""
TOLERANCE = 1e-3
"""The largest difference of a logit between the two, as a share of the largest logit; more in 16 bits."""


@dataclass(frozen=True)
class Writing:
    """How facts are written for one tokenizer: the tokens before a name, between name and value, after the value.

    ``again``: whether the name stands after the value once more. ``answer``: what a question ends with, at the place of
    the value (``get_answer_ids``).
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    again: bool
    example: str
    answer: tuple[int, ...] = ()

    @classmethod
    def of(cls, model: LanguageModel, form: tuple[str, str, str]) -> Writing:
        """Make the writing of one of ``FORMATS``."""
        tokenizer = model.tokenizer
        parts = []
        for text in form:
            ids = tokenizer(text.removeprefix(NAME), add_special_tokens=False)["input_ids"]
            parts.append(tuple(token for token in ids if token != tokenizer.unk_token_id))
        example = f"{form[0]} hazel{form[1]} amber{form[2].replace(NAME, ' hazel')}".strip()
        return cls(parts[0], parts[1], parts[2], form[2].startswith(NAME), example, get_answer_ids(model))

    def state(self, name: int, value: int) -> list[int]:
        """Return the tokens of a fact."""
        return [*self.before, name, *self.between, value, *([name] if self.again else []), *self.after]

    def ask(self, name: int) -> list[int]:
        """Return the tokens of a fact up to its value, which is asked for."""
        return [*self.before, name, *self.between, *self.answer]


class _Question(NamedTuple):
    """A name that is asked for, with the right value and wrong ones, and the depth of its fact."""

    task: str
    name: int
    right: int
    wrong: tuple[int, ...]
    depth: float


_Facts = list[tuple[float, int, int]]
"""The facts of a text: depth, name and value."""
_Item = tuple[_Facts, list[_Question]]
"""What stands in a text, and what is asked of it."""


def _make_items(model: LanguageModel, tasks: Sequence[str], count: int, seed: int) -> list[list[_Item]]:
    """Make ``count`` texts of each kind that these tasks need; passkey and recall are asked of the same ones.

    All texts of a kind ask for the same tasks in the same order.
    """
    names, values = _find_words(model)
    made = []
    for number, make in enumerate((_make_recall, _make_tracking)):
        rng = np.random.default_rng([seed, number])
        items = [make(rng, names, values, text) for text in range(count)]
        kept = [(facts, [question for question in every if question.task in tasks]) for facts, every in items]
        if kept[0][1]:
            made.append(kept)
    return made


def _find_words(model: LanguageModel) -> tuple[list[int], list[int]]:
    """Return the tokens that serve as names and as values, each one token.

    They are words that the tokenizer has whole; where it has few, other tokens of letters. Raises DataError where
    there are too few of these, too.
    """
    tokenizer = model.tokenizer
    whole: list[list[int]] = []
    for words in (NAMES, VALUES):
        ids = [tokenizer(f" {word}", add_special_tokens=False)["input_ids"] for word in words]
        whole.append([own[0] for own in ids if len(own) == 1 and own[0] != tokenizer.unk_token_id])
    if min(map(len, whole)) >= FEWEST:
        return whole[0], whole[1]
    # The longest words first, at most some thousands.
    tokens = sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids))[:20_000]
    texts = {token: tokenizer.decode([token]).strip() for token in tokens}
    letters = [token for token, text in texts.items() if text.isascii() and text.isalpha()]
    letters.sort(key=lambda token: (-min(len(texts[token]), 4), token))
    random.Random(0).shuffle(letters)
    half = min(len(letters) // 2, 40)
    if half < FEWEST:
        raise DataError(
            f"the tokenizer of {model.source} has {len(letters)} tokens of letters, and facts need {2 * FEWEST}"
        )
    return letters[:half], letters[half : 2 * half]


def _make_recall(rng: np.random.Generator, names: Sequence[int], values: Sequence[int], text: int) -> _Item:
    """Make a text with a fact at each of ``DEPTHS``, which are asked for, and more that are not."""
    count = FACTS["recall"]
    chosen = rng.choice(names, count, replace=False).tolist()
    drawn = rng.choice(values, min(count + WRONG, len(values)), replace=False).tolist()
    stated, absent = drawn[:count], tuple(drawn[count:])
    depths = [*DEPTHS, *rng.uniform(0.02, 0.98, count - len(DEPTHS)).tolist()]
    questions = []
    for name, right, depth in zip(chosen, stated, DEPTHS, strict=False):
        others = tuple(value for value in stated if value != right)
        questions.append(_Question("passkey", name, right, absent, depth))
        questions.append(_Question("recall", name, right, others, depth))
    return list(zip(depths, chosen, stated, strict=True)), questions


def _make_tracking(rng: np.random.Generator, names: Sequence[int], values: Sequence[int], text: int) -> _Item:
    """Make a text with chains that end at depths taken in turn."""
    count = FACTS["tracking"]
    chosen = rng.choice(names, 2 * count, replace=False).tolist()
    ends = rng.choice(values, count, replace=False).tolist()
    facts, questions = [], []
    for chain, right in enumerate(ends):
        first, second = chosen[2 * chain : 2 * chain + 2]
        depth = DEPTHS[(text + 2 * chain) % len(DEPTHS)]
        facts += [(0.7 * depth, first, right), (depth, second, first)]
        questions.append(_Question("tracking", second, right, tuple(end for end in ends if end != right), depth))
    return facts, questions


def _spread_fillers(stream: Stream, count: int, length: int) -> list[Stream]:
    """Return pieces of the stream, evenly spread; a stream that is too short is repeated."""
    long = np.resize(stream, max(len(stream), 2 * length))
    return [long[end - length : end] for end in np.linspace(length, len(long), count).astype(int)]


def can_branch(model: LanguageModel) -> bool:
    """Return whether a model goes on from its KV cache to the logits that it gives when it reads the whole text."""
    if model.mask_id is not None:
        return False
    ids_BS = np.random.default_rng(0).integers(0, model.vocabulary_size, (2, PROBE))
    context_NC, asked_NKQ = ids_BS[:, :-2], np.stack([ids_BS[:, -2:], ids_BS[::-1, -2:]], axis=1)
    try:
        branched = ask(model, context_NC, asked_NKQ, branching=True)
        expected = ask(model, context_NC, asked_NKQ, branching=False)
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
        logits: list[Tensor] = []
        if branching:
            try:
                cache = get_cache(model.model(input_ids=context_BC.to(model.device), use_cache=True, logits_to_keep=1))
                for asked_BQ in asked_KBQ.to(model.device):
                    reading = model.model(input_ids=asked_BQ, use_cache=True, **name_cache(copy.deepcopy(cache)))
                    logits.append(reading.logits[:, -1])
            except PositionError:  # ours refuse a cache whose keys a longer text makes stale
                branching = False
        if not branching:
            tail = max(1, len(get_answer_ids(model)))
            whole = [torch.cat([context_BC, asked_BQ], 1) for asked_BQ in asked_KBQ]
            logits = [compute_tail_logits(model, ids_BS, tail)[:, 0] for ids_BS in whole]
        pieces.append(torch.stack([logits_BV.float().cpu() for logits_BV in logits], dim=1))
    return torch.cat(pieces)


def _rank_items(
    model: LanguageModel, items: Sequence[_Item], fillers: Sequence[Stream], writing: Writing, length: int,
    branching: bool,
) -> Float[np.ndarray, "N K"]:  # fmt: skip
    """Return the rank of the right value of each of K questions of N texts; NaN where the facts do not fit the length.

    A text is filler with the facts at their depths, and with a question it has ``length`` tokens. The filler ends with
    the same tokens at every length.
    """
    facts, questions = items[0]
    ranks_NK = np.full((len(items), len(questions)), np.nan)
    room = length - len(model.start_ids) - len(writing.ask(0)) - len(facts) * len(writing.state(0, 0))
    if room < 0:
        return ranks_NK
    rows = []
    for (facts, _), filler_S in zip(items, fillers, strict=True):
        body = filler_S[len(filler_S) - room :].tolist()
        ids, done = list(model.start_ids), 0
        for depth, name, value in sorted(facts):
            here = int(depth * room)
            ids += body[done:here] + writing.state(name, value)
            done = here
        rows.append([*ids, *body[done:]])
    # A name is asked for once, whatever wrong values its right one is ranked among.
    names_NK = [list(dict.fromkeys(question.name for question in questions)) for _, questions in items]
    asked_NKQ = np.array([[writing.ask(name) for name in names] for names in names_NK])
    logits_NKV = ask(model, np.array(rows), asked_NKQ, branching=branching)
    for text, (_, questions) in enumerate(items):
        for place, question in enumerate(questions):
            logits_V = logits_NKV[text, names_NK[text].index(question.name)]
            wrong, right = logits_V[list(question.wrong)], logits_V[question.right]
            # The share of wrong values that the right one beats; a tie counts half.
            ranks_NK[text, place] = float((right > wrong).double().mean() + 0.5 * (right == wrong).double().mean())
    return ranks_NK


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


def choose_writing(model: LanguageModel, stream: Stream, length: int, seed: int) -> Writing:
    """Return the writing of facts that the model finds best in texts of ``length`` tokens, by texts of their own."""
    (items,) = _make_items(model, ("passkey", "recall"), CALIBRATION, seed + 1_000)
    fillers, branching = _spread_fillers(stream, len(items), length), can_branch(model)
    best, chosen = -1.0, Writing.of(model, PLAIN)
    for form in FORMATS:
        writing = Writing.of(model, form)
        mean = float(_rank_items(model, items, fillers, writing, length, branching).mean())
        if mean > best:  # which NaN is not
            best, chosen = mean, writing
    return chosen


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
    kinds = _make_items(model, tasks, count, seed)
    fillers = _spread_fillers(stream, count, max(lengths))
    readable, branching = [can_read(model, length) for length in lengths], can_branch(model)
    ranks, controls, by_depth, counts = {}, {}, {}, {}
    total, done = len(kinds) * sum(lengths), 0
    for texts in kinds:
        questions = texts[0][1]
        ranks_NKR = np.full((count, len(questions), len(lengths)), np.nan)
        for rung, length in enumerate(lengths):
            progress("retrieval: tokens of context", done, total)
            done += length
            if readable[rung]:
                ranks_NKR[..., rung] = _rank_items(model, texts, fillers, writing, length, branching)
        bare_NK = np.full((count, len(questions)), np.nan)
        if control:
            empty: list[_Item] = [([], own) for _, own in texts]
            bare_NK = _rank_items(model, empty, fillers, writing, min(lengths), branching)
        depth_NK = np.array([[question.depth for question in own] for _, own in texts])
        for task in tasks:
            places = [place for place, question in enumerate(questions) if question.task == task]
            if not places:
                continue
            own_NKR, at_NK = ranks_NKR[:, places], depth_NK[:, places]
            ranks[task], counts[task] = own_NKR.mean(1), at_NK.size
            if not np.isnan(bare_NK).any():
                controls[task] = bare_NK[:, places].mean(1)
            by_depth[task] = np.full((len(DEPTHS), len(lengths)), np.nan)
            for row, depth in enumerate(DEPTHS):
                if (at_NK == depth).any():
                    by_depth[task][row] = own_NKR[at_NK == depth].mean(0)
    progress("retrieval: tokens of context", total, total)
    return Retrieval(tuple(lengths), ranks, controls, by_depth, counts, writing.example)
