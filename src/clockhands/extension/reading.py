"""The text that a model is measured on, and its losses on the same last tokens after more and more context.

Perplexity over whole windows mixes two things: that more context makes tokens easier, and that positions beyond the
trained ones do harm. Here the tokens that are scored are the same at every length, and differences are taken text by
text. Of a model that fills in masked tokens every seventh of the last tokens of a text is masked, near the 15 % of BERT
(Devlin et al. 2019, section 3.1), the same ones at every length.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from clockhands.data import encode_documents
from clockhands.errors import ClockhandsError, DataError, UsageError
from clockhands.generation.score import choose_batch
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float, Int, Tensor

Stream = NDArray[np.int64]
MOST_UNKNOWN = 0.2
"""The share of unknown tokens above which a tokenizer does not fit a text."""
FEWEST_TEXTS = 8
"""Fewer texts give no interval that is worth printing."""
COMMON_WORK = 2_048 * 10_000_000
"""Tokens of a text times parameters of a model, for which the numbers of texts and questions of a choice are meant."""
COMMON_TOKENS = 8_192
"""Tokens of that many texts, where the model is smaller: attention costs more in long texts, whatever the model."""
MOST_TIMES = 8
"""How many times as many are read at most, where texts are shorter or the model is smaller."""
APART = 7
"""Of so many tokens one is masked."""
BATCH_TOKENS = {"cpu": 4_096, "cuda": 65_536}
"""Tokens that are read at a time: on a CPU no more than what stays near it, which is faster than larger batches."""


def encode_text(model: LanguageModel, documents: Sequence[str]) -> Stream:
    """Return documents as one stream of tokens. Raises DataError where the tokenizer does not know the text."""
    stream = encode_documents(model.tokenizer, documents).values.astype(np.int64)
    unknown = model.tokenizer.unk_token_id
    share = float((stream == unknown).mean()) if unknown is not None and len(stream) else 0.0
    if share > MOST_UNKNOWN:
        raise DataError(
            f"{share:.0%} of the text are tokens that the tokenizer of {model.source} does not know; give a text of "
            "the kind that it was trained on"
        )
    return stream


def multiply_texts(model: LanguageModel, longest: int) -> int:
    """Return how many times as many texts a choice reads where model and texts are so small, for no more cost.

    A short text scores few tokens, so methods that differ by some percent are told apart by more of them only.
    """
    parameters = sum(parameter.numel() for parameter in model.model.parameters())
    return min(MOST_TIMES, max(1, min(COMMON_TOKENS // longest, COMMON_WORK // (longest * max(1, parameters)))))


def cut_texts(stream: Stream, length: int, tail: int, count: int, start: Sequence[int]) -> Int[np.ndarray, "N S"]:
    """Cut up to ``count`` texts of ``length`` tokens whose last ``tail`` tokens no two share, evenly over the stream.

    Each begins with ``start``. Raises UsageError where fewer than 8 fit.
    """
    own = length - len(start)
    fitting = (len(stream) - own) // tail + 1 if len(stream) >= own and tail else 0
    if fitting < FEWEST_TEXTS:
        raise UsageError(
            f"the text has {len(stream):,} tokens here, too few for {FEWEST_TEXTS} texts of {length:,}; give more "
            "text, or a smaller --to"
        )
    ends_N = np.linspace(own, len(stream), min(count, fitting)).astype(np.int64)
    before_NS = np.broadcast_to(np.asarray(start, np.int64), (len(ends_N), len(start)))
    return np.concatenate([before_NS, stream[ends_N[:, None] - own + np.arange(own)]], axis=1)


def get_answer_ids(model: LanguageModel) -> tuple[int, ...]:
    """Return what stands after a question, from the place that is asked for on: a masked token and the end of a text.

    Nothing for a model that continues text.
    """
    return () if model.mask_id is None else (model.mask_id, *model.end_ids)


def mask_tail(
    model: LanguageModel, ids_NS: Int[np.ndarray, "N S"], tail: int
) -> tuple[Int[np.ndarray, "N S"], Int[np.ndarray, "N K"]]:
    """Mask tokens among the last ``tail`` of each text, and return the texts with the places, counted from the tail.

    The last tokens give way to those that end every text for this tokenizer. Which are masked depends on the number of
    the text alone.
    """
    end = len(model.end_ids)
    room = tail - end
    count = max(1, room // APART)
    places_NK = (np.arange(len(ids_NS))[:, None] + APART * np.arange(count)) % room
    seen_NS = np.array(ids_NS)
    seen_NS[:, ids_NS.shape[1] - end :] = model.end_ids
    np.put_along_axis(seen_NS, ids_NS.shape[1] - tail + places_NK, int(model.mask_id or 0), axis=1)
    return seen_NS, places_NK


@dataclass(frozen=True)
class Drift:
    """Losses of the same tokens by the length of the text that ends with them.

    Args:
        lengths: R lengths in tokens, rising; the scored tokens are counted.
        tail: how many last tokens are scored.
        losses_NR: the mean loss of the tail in nats, of N texts; NaN where the model cannot read so far.
    """

    lengths: tuple[int, ...]
    tail: int
    losses_NR: Float[np.ndarray, "N R"]


def choose_batch_tokens(model: LanguageModel) -> int:
    """Return how many tokens are read at a time where the model computes."""
    return BATCH_TOKENS.get(model.device.type, BATCH_TOKENS["cpu"])


@torch.inference_mode()
def compute_tail_logits(model: LanguageModel, ids_BS: Int[Tensor, "B S"], tail: int) -> Float[Tensor, "B T V"]:
    """Compute the logits of the ``tail`` last tokens alone, where the model can leave out the others."""
    if "logits_to_keep" not in inspect.signature(model.model.forward).parameters:
        return model.compute_logits(ids_BS)[:, -tail:]
    if model.max_length is not None and ids_BS.shape[1] > model.max_length:
        return model.compute_logits(ids_BS)  # which says what is wrong
    logits: Tensor = model.model(input_ids=ids_BS.to(model.device), use_cache=False, logits_to_keep=tail).logits
    return logits.float()


def can_read(model: LanguageModel, length: int) -> bool:
    """Return whether a model reads a text of this length at all: a table of positions may end before.

    Raises RuntimeError where memory is short, which says nothing of the model.
    """
    try:
        compute_tail_logits(model, torch.zeros((1, length), dtype=torch.long), 1)
    except (ClockhandsError, IndexError):
        return False
    except RuntimeError as fault:
        if "memory" in str(fault) or "alloc" in str(fault):
            raise
        return False  # MPT's bias is built for its own length, and nothing longer can be added to it
    return True


def measure_losses(model: LanguageModel, ids_NS: Int[np.ndarray, "N S"], tail: int) -> Float[np.ndarray, " N"]:
    """Measure the mean loss in nats of the last ``tail`` tokens of each text.

    Of a model that fills in masked tokens, the loss of every seventh of them.
    """
    length, masked = ids_NS.shape[1], model.mask_id is not None
    batch = max(1, min(choose_batch(model, length), choose_batch_tokens(model) // length))
    seen_NS, places_NK = mask_tail(model, ids_NS, tail) if masked else (ids_NS, ids_NS[:, :0])
    losses = []
    for first in range(0, len(ids_NS), batch):
        rows = slice(first, first + batch)
        # Where text is continued, the logits of a token stand at the one before.
        logits_BTV = compute_tail_logits(model, torch.from_numpy(seen_NS[rows]), tail + (not masked))[:, :tail]
        labels_BT = torch.from_numpy(ids_NS[rows, -tail:]).to(logits_BTV.device)
        loss_BT = F.cross_entropy(logits_BTV.transpose(1, 2), labels_BT, reduction="none")
        if masked:
            loss_BT = loss_BT.gather(1, torch.from_numpy(places_NK[rows]).to(loss_BT.device))
        losses.append(loss_BT.double().mean(1).cpu().numpy())
    return np.concatenate(losses)


def measure_drift(
    model: LanguageModel, stream: Stream, lengths: Sequence[int], *, tail: int, texts: int,
    progress: CountProgress = ignore_count,
) -> Drift:  # fmt: skip
    """Measure the loss of the same ``tail`` tokens after contexts that make texts of these lengths.

    At most ``texts`` texts. Raises UsageError for a stream too short for the longest.
    """
    start = len(model.start_ids)
    whole_NS = cut_texts(stream, max(lengths), tail, texts, model.start_ids)
    losses_NR = np.full((len(whole_NS), len(lengths)), np.nan)
    total = sum(lengths)
    for rung, length in enumerate(lengths):
        progress("drift: tokens of context", sum(lengths[:rung]), total)
        if can_read(model, length):
            ids_NS = np.concatenate([whole_NS[:, :start], whole_NS[:, whole_NS.shape[1] - length + start :]], axis=1)
            losses_NR[:, rung] = measure_losses(model, ids_NS, tail)
    progress("drift: tokens of context", total, total)
    return Drift(tuple(lengths), tail, losses_NR)
