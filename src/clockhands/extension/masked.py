"""Losses of a model that fills in masked tokens, measured so that they can be compared by the length of the text.

Of the last tokens of a text every seventh is masked, near the 15 % of BERT (Devlin et al. 2019, section 3.1). They are
the same ones at every length, so that differences are paired as those of models that continue text are.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from clockhands.data import Example, MaskedCollator
from clockhands.models import LanguageModel
from clockhands.shapes import Float, Int, Tensor

__all__ = ["APART", "compute_fill_loss", "get_answer_ids", "mask_tail", "score_masked"]

APART = 7
"""Of so many tokens one is masked."""


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


def score_masked(
    logits_BTV: Float[Tensor, "B T V"], ids_BT: Int[Tensor, "B T"], places_BK: Int[np.ndarray, "B K"]
) -> Float[Tensor, "B K"]:
    """Return the loss in nats of the masked tokens of a tail, by their places in it."""
    index_BK = torch.from_numpy(places_BK).to(logits_BTV.device)
    logits_BKV = logits_BTV.gather(1, index_BK[..., None].expand(-1, -1, logits_BTV.shape[-1]))
    return F.cross_entropy(logits_BKV.transpose(1, 2), ids_BT.gather(1, index_BK), reduction="none")


def compute_fill_loss(
    model: LanguageModel, ids_BS: Int[Tensor, "B S"], arguments: dict[str, Tensor], seed: int
) -> Float[Tensor, ""]:
    """Compute the training loss of texts of which tokens are drawn and masked as BERT does."""
    rows: list[Example] = [{"input_ids": row_S, "labels": row_S} for row_S in ids_BS.cpu().numpy().astype(np.int32)]
    batch = MaskedCollator.of(model.tokenizer, seed=seed)(rows)
    logits_BSV = model.model(input_ids=batch["input_ids"].to(model.device), **arguments).logits.float()
    return F.cross_entropy(logits_BSV.transpose(1, 2), batch["labels"].to(model.device))
