"""Asks several questions of a text that is read once: each goes on from a copy of its KV cache."""

from __future__ import annotations

import copy

import numpy as np
import torch

from clockhands.errors import PositionError
from clockhands.extension.drift import choose_batch_tokens, compute_tail_logits
from clockhands.extension.masked import get_answer_ids
from clockhands.model.huggingface_cache import get_cache, name_cache
from clockhands.models import LanguageModel
from clockhands.shapes import Float, Int, Tensor

__all__ = ["ask", "can_branch"]

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
