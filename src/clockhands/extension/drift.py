"""Drift: the same last tokens scored after more and more context, so that what they say cancels.

Perplexity over whole windows mixes two things: that more context makes tokens easier, and that positions beyond the
trained ones do harm. Here the tokens that are scored are the same at every length, and differences are taken text by
text.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from clockhands.errors import ClockhandsError
from clockhands.extension.masked import mask_tail, score_masked
from clockhands.extension.text import Stream, cut_texts
from clockhands.generation.perplexity import choose_batch
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float, Int, Tensor

__all__ = ["Drift", "can_read", "choose_batch_tokens", "compute_tail_logits", "measure_drift", "measure_losses"]

BATCH_TOKENS = {"cpu": 4_096, "cuda": 65_536}
"""Tokens that are read at a time: on a CPU no more than what stays near it, which is faster than larger batches."""


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
    ids_BS = ids_BS.to(model.device)
    logits: Tensor = model.model(input_ids=ids_BS, use_cache=False, logits_to_keep=tail).logits
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
    length = ids_NS.shape[1]
    batch = max(1, min(choose_batch(model, length), choose_batch_tokens(model) // length))
    seen_NS, places_NK = (ids_NS, None) if model.mask_id is None else mask_tail(model, ids_NS, tail)
    losses = []
    for first in range(0, len(ids_NS), batch):
        seen_BS = torch.from_numpy(seen_NS[first : first + batch])
        labels_BT = torch.from_numpy(ids_NS[first : first + batch, -tail:]).to(model.device)
        if places_NK is None:
            logits_BTV = compute_tail_logits(model, seen_BS, tail + 1)[:, :-1]
            loss_BT = F.cross_entropy(logits_BTV.transpose(1, 2), labels_BT, reduction="none")
        else:
            logits_BTV = compute_tail_logits(model, seen_BS, tail)
            loss_BT = score_masked(logits_BTV, labels_BT, places_NK[first : first + batch])
        losses.append(loss_BT.double().mean(1).cpu().numpy())
    return np.concatenate(losses)


def measure_drift(
    model: LanguageModel,
    stream: Stream,
    lengths: Sequence[int],
    *,
    tail: int,
    texts: int,
    progress: CountProgress = ignore_count,
) -> Drift:
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
