"""Greedy and beam search with the model's own blocks: the texts of ``generate`` of transformers, in less time.

A step is little more than its matrix products (``model/lean.py``), and the W hypotheses of a beam share what they have
in common (``hypotheses.py``). Here: sentences leave the batch when they are finished, logits exist for some rows at a
time, and the best tokens are found in two levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch

from clockhands.errors import UsageError
from clockhands.generation.engines.beam import (
    BeamState,
    Candidates,
    Draft,
    FinishedHypotheses,
    choose_rows_to_keep,
    collect,
)
from clockhands.generation.engines.engine import DecodedSequence, Decoding, Engine, get_end_tokens, get_first_token
from clockhands.generation.engines.hypotheses import Hypotheses, make_hypotheses
from clockhands.model import Text, Transformer
from clockhands.model.lean import LeanDecoder, copy_for_decoding
from clockhands.shapes import Bool, Float, Int, Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Row = TypeVar("Row", Draft, FinishedHypotheses)
BLOCK = 64
"""Tokens of the vocabulary whose maximum is taken together, so that most logits are never sorted."""
ROWS = 64
"""Rows of logits that are made and used at a time, where a processor's cache holds no more."""


class ClockhandsEngine(Engine):
    """Every model, with its own blocks; the compute type is that of the weights."""

    def __init__(self, model: PreTrainedModel, compute_type: str = "float32") -> None:
        super().__init__(model, compute_type)
        self.core: Transformer = model.model
        self.start, self.ends = get_first_token(model), get_end_tokens(model)
        self.decoder, self.output = LeanDecoder(self.core), copy_for_decoding(self.core.output)

    @classmethod
    def refuse_options(cls, compute_type: str) -> None:
        """Raise UsageError for a compute type: the engine computes in the type of the weights."""
        if compute_type != "float32":
            raise UsageError(
                f"compute_type is {compute_type!r}, but the engine clockhands computes in the type of the weights; "
                "choose another engine for it, such as ctranslate2"
            )

    def write(
        self, ids_BT: Int[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"] | None, decoding: Decoding
    ) -> list[DecodedSequence]:
        """Write a text for each source, in at most ``decoding.max_new_tokens`` tokens."""
        with torch.no_grad():
            hypotheses = make_hypotheses(self.decoder, self.core.encode(Text(ids_BT, mask_BT)), decoding.beam)
        # Inference mode makes a small step about 5 % faster, but in it schemes do not keep cosines and sines for the
        # next layers. It is for models whose schemes do not act in attention.
        with torch.inference_mode() if self.decoder.attention_ignores_position else torch.no_grad():
            if decoding.beam == 1:
                return self._search_greedily(hypotheses, len(ids_BT), decoding.max_new_tokens)
            return self._search_beam(hypotheses, len(ids_BT), decoding)

    def compute_logits(self, states_BWD: Float[Tensor, "B W D"]) -> Float[Tensor, "B W V"]:
        """Compute the logits of the next token; in float32, as searches compare them."""
        logits: Tensor = self.output(states_BWD)
        return logits.float()

    def _search_greedily(self, hypotheses: Hypotheses, batch: int, longest: int) -> list[DecodedSequence]:
        """Take the likeliest token each time."""
        drafts = [Draft() for _ in range(batch)]
        rows: list[Draft] = drafts
        token_B1 = torch.full((batch, 1), self.start, device=hypotheses.source.states_BTD.device)
        for _ in range(longest):
            token_B, log_p_B = self._choose_best(hypotheses.step(token_B1, None))
            for draft, token, log_p in zip(rows, token_B.tolist(), log_p_B.tolist(), strict=True):
                draft.add(token, log_p, self.ends)
            token_B1 = token_B[:, None]
            rows, kept = drop_finished(rows, hypotheses)
            if not rows:
                break
            token_B1 = token_B1 if kept is None else token_B1[kept]
        return [DecodedSequence(draft.tokens, draft.total) for draft in drafts]

    def _choose_best(self, states_B1D: Float[Tensor, "B 1 D"]) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
        """Return the likeliest next token of each row and its log-probability, some rows at a time."""
        rows = count_rows_at_once(states_B1D)
        if len(states_B1D) <= rows:
            return choose_best(self.compute_logits(states_B1D)[:, 0])
        chosen = [choose_best(self.compute_logits(part)[:, 0]) for part in states_B1D.split(rows)]
        token_B, log_p_B = map(torch.cat, zip(*chosen, strict=True))
        return token_B, log_p_B

    def _search_beam(self, hypotheses: Hypotheses, batch: int, decoding: Decoding) -> list[DecodedSequence]:
        """Search as transformers does with ``early_stopping=False``.

        At every step the likeliest continuations of a source's W hypotheses, two for each, are candidates. Of the first
        W, those that end are finished texts; the first W that do not end are continued. A source is done when it has W
        finished texts and its likeliest hypothesis, scored as if it ended here, is no better than the worst of them.
        """
        width, device = hypotheses.beams, hypotheses.source.states_BTD.device
        finished = [FinishedHypotheses(width, decoding.length_penalty) for _ in range(batch)]
        rows: list[FinishedHypotheses] = finished
        beam = BeamState.start(len(rows), width, self.start, device)
        ends_E = torch.tensor(self.ends, dtype=torch.long, device=device)
        # W candidates that do not end must remain, although each hypothesis may be continued by every end token.
        count = max(2, 1 + len(self.ends)) * width
        for length in range(1, decoding.max_new_tokens + 1):
            candidates = self._find_candidates(hypotheses.step(beam.tokens_BW, beam.parents_BW), beam.total_BW, count)
            ending_BC = torch.isin(candidates[2], ends_E) | (length == decoding.max_new_tokens)
            collect(rows, beam, candidates, ending_BC)
            if length == decoding.max_new_tokens:
                break
            beam = beam.advance(candidates, ending_BC)
            for row, total in zip(rows, beam.total_BW[:, 0].tolist(), strict=True):
                row.settle(total, length)
            rows, kept = drop_finished(rows, hypotheses)
            if not rows:
                break
            beam = beam if kept is None else beam.select(kept)
        return [row.best() for row in finished]

    def _find_candidates(
        self, states_BWD: Float[Tensor, "B W D"], total_BW: Float[Tensor, "B W"], count: int
    ) -> Candidates:
        """Return the ``count`` likeliest continuations of each source, some sources at a time."""
        rows = count_rows_at_once(states_BWD)
        parts = zip(states_BWD.split(rows), total_BW.split(rows), strict=True)
        best = [choose_candidates(self.compute_logits(states), total, count) for states, total in parts]
        total_BC, parent_BC, token_BC = map(torch.cat, zip(*best, strict=True))
        return total_BC, parent_BC, token_BC


def drop_finished(rows: list[Row], hypotheses: Hypotheses) -> tuple[list[Row], Int[Tensor, " R"] | None]:
    """Drop finished rows from the batch of a search, if enough are finished.

    Return the rows that stay, none once all are finished, and their indices before; None if all stay.
    """
    staying = choose_rows_to_keep(rows)
    if not staying or len(staying) == len(rows):
        return [rows[row] for row in staying], None
    kept = torch.tensor(staying, device=hypotheses.source.states_BTD.device)
    hypotheses.select(kept)
    return [rows[row] for row in staying], kept


def count_rows_at_once(states_BWD: Float[Tensor, "B W D"]) -> int:
    """Return how many sources' logits to make at a time: all, but on a CPU as many as stay in the processor's cache."""
    batch, width, _ = states_BWD.shape
    return max(1, ROWS // width) if states_BWD.device.type == "cpu" else batch


def choose_best(logits_NV: Float[Tensor, "N V"]) -> tuple[Int[Tensor, " N"], Float[Tensor, " N"]]:
    """Return the likeliest token of each row, the first among equals, and its log-probability.

    The logits are overwritten. Of several rows the maximum is taken in blocks of the vocabulary, which PyTorch does
    faster than a whole row; of one row it is not.
    """
    if logits_NV.shape[1] % BLOCK or len(logits_NV) == 1:
        top_N, token_N = logits_NV.max(-1)
    else:
        blocks_NGX = logits_NV.unflatten(-1, (-1, BLOCK))
        top_N, block_N = blocks_NGX.amax(-1).max(-1)
        inside_N1X = blocks_NGX.take_along_dim(block_N[:, None, None], dim=1)
        token_N = block_N * BLOCK + inside_N1X[:, 0].argmax(-1)
    return token_N, -logits_NV.sub_(top_N[:, None]).exp_().sum(-1).log()


def choose_candidates(logits_BWV: Float[Tensor, "B W V"], total_BW: Float[Tensor, "B W"], count: int) -> Candidates:
    """Return the ``count`` likeliest continuations of each source, by the log-probability of the whole text.

    Each of the ``count`` largest of W·V numbers lies in one of the ``count`` blocks with the largest maxima, so that
    most are never sorted. Where the vocabulary cannot be divided into blocks, or has fewer of them, all are.
    """
    vocabulary = logits_BWV.shape[-1]
    log_p_BWV = logits_BWV.log_softmax(-1)
    if vocabulary % BLOCK or logits_BWV[0].numel() < BLOCK * count:
        total_BC, index_BC = (log_p_BWV + total_BW[..., None]).flatten(1).topk(count)
        return total_BC, index_BC // vocabulary, index_BC % vocabulary
    blocks_BWGX = log_p_BWV.unflatten(-1, (-1, BLOCK))
    block_BC = (blocks_BWGX.amax(-1) + total_BW[..., None]).flatten(1).topk(count).indices
    inside_BCX = blocks_BWGX.flatten(1, 2).take_along_dim(block_BC[..., None], dim=1)
    before_BC = total_BW.gather(1, block_BC // blocks_BWGX.shape[2])
    total_BC, place_BC = (inside_BCX + before_BC[..., None]).flatten(1).topk(count)
    index_BC = block_BC.gather(1, place_BC // BLOCK) * BLOCK + place_BC % BLOCK
    return total_BC, index_BC // vocabulary, index_BC % vocabulary
