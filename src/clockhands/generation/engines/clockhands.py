"""Greedy and beam search with the model's own blocks: the same texts as ``generate`` of transformers, in less time.

Three things make it fast. A step is little more than its matrix products (``model/lean.py``); the hypotheses of a beam
share the KV cache where the schemes allow it (``hypothesis_decoder.py``); and this module drops finished texts from the
batch, makes the logits of a few rows at a time, and finds the largest logits in two levels, blocks of the vocabulary
first.

Axes beside those of ``shapes``: W hypotheses of a source, C candidates, R sources that stay in the batch, G blocks of
the vocabulary, X tokens of a block, E end tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch

from clockhands.errors import UsageError
from clockhands.generation.engines.beam import (
    BeamState,
    Candidates,
    FinishedTexts,
    GreedyHypothesis,
    add_finished,
    choose_sources_to_keep,
)
from clockhands.generation.engines.engine import (
    DecodedSequence,
    DecodingOptions,
    Engine,
    get_end_tokens,
    get_start_token,
)
from clockhands.generation.engines.hypothesis_decoder import HypothesisDecoder, make_hypothesis_decoder
from clockhands.model import TokenBatch
from clockhands.model.lean import LeanDecoder, copy_for_decoding
from clockhands.shapes import Bool, Float, Int, Tensor

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsPreTrainedModel

__all__ = [
    "LOGIT_ROWS",
    "VOCABULARY_BLOCK",
    "ClockhandsEngine",
    "choose_candidates",
    "choose_likeliest",
    "count_sources_at_once",
    "drop_finished",
]

SourceSearch = TypeVar("SourceSearch", GreedyHypothesis, FinishedTexts)
"""The state of the search for one source: its text in a greedy search, its finished texts in a beam search."""
VOCABULARY_BLOCK = 64
"""Tokens in a block of the vocabulary. The maxima of blocks are compared first, so that most logits are not sorted."""
LOGIT_ROWS = 64
"""Rows of logits that are made and used at a time on a CPU, whose cache holds no more."""


class ClockhandsEngine(Engine):
    """The default engine: it runs every encoder-decoder, with the model's own blocks and in the type of its weights.

    Raises UsageError for another compute type than that of the weights.
    """

    def __init__(self, model: ClockhandsPreTrainedModel, compute_type: str | None = None) -> None:
        super().__init__(model, compute_type)
        weight_type = self.choose_compute_type(model)
        if self.compute_type != weight_type:
            raise UsageError(_describe_refusal(self.compute_type, f"the weights of this model are {weight_type}"))
        self.transformer = model.transformer
        self.start_token, self.end_tokens = get_start_token(model), get_end_tokens(model)
        self.lean_decoder, self.output_layer = LeanDecoder(self.transformer), copy_for_decoding(self.transformer.output)

    @classmethod
    def refuse_compute_type(cls, compute_type: str | None) -> None:
        """Raise UsageError for a compute type that weights cannot have, such as ``int8``."""
        dtype = None if compute_type is None else getattr(torch, compute_type, None)
        if compute_type is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise UsageError(_describe_refusal(compute_type, "weights have no such type"))

    def generate(
        self, ids_BT: Int[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"] | None, decoding: DecodingOptions
    ) -> list[DecodedSequence]:
        """Generate a text for each source, in order, of at most ``decoding.max_new_tokens`` tokens.

        Raises PositionError for a token beyond the last position of a scheme.
        """
        with torch.no_grad():
            source = self.transformer.encode(TokenBatch(ids_BT, mask_BT))
            decoder = make_hypothesis_decoder(self.lean_decoder, source, decoding.beam)
        # Inference mode makes a small step about 5 % faster, but in it schemes do not keep cosines and sines for the
        # next layers. It is for models whose schemes do not act in attention.
        with torch.inference_mode() if self.lean_decoder.attention_ignores_position else torch.no_grad():
            if decoding.beam == 1:
                return self._search_greedily(decoder, len(ids_BT), decoding.max_new_tokens)
            return self._search_beam(decoder, len(ids_BT), decoding)

    def compute_logits(self, states_BWD: Float[Tensor, "B W D"]) -> Float[Tensor, "B W V"]:
        """Compute the logits of the next token from the decoder's states; in float32, as searches compare them."""
        logits: Tensor = self.output_layer(states_BWD)
        return logits.float()

    def _search_greedily(self, decoder: HypothesisDecoder, batch: int, max_new_tokens: int) -> list[DecodedSequence]:
        """Add the likeliest token to each text until all have ended."""
        texts = [GreedyHypothesis() for _ in range(batch)]
        unfinished: list[GreedyHypothesis] = texts
        token_B1 = torch.full((batch, 1), self.start_token, device=decoder.source.states_BTD.device)
        for _ in range(max_new_tokens):
            token_B, log_p_B = self._choose_next_tokens(decoder.step(token_B1, None))
            for text, token, log_p in zip(unfinished, token_B.tolist(), log_p_B.tolist(), strict=True):
                text.add(token, log_p, self.end_tokens)
            token_B1 = token_B[:, None]
            unfinished, kept_R = drop_finished(unfinished, decoder)
            if not unfinished:
                break
            token_B1 = token_B1 if kept_R is None else token_B1[kept_R]
        return [DecodedSequence(text.tokens, text.log_probability) for text in texts]

    def _choose_next_tokens(self, states_B1D: Float[Tensor, "B 1 D"]) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
        """Return the likeliest next token of each row and its log-probability; logits exist for some rows at a time."""
        sources_at_once = count_sources_at_once(states_B1D)
        if len(states_B1D) <= sources_at_once:
            return choose_likeliest(self.compute_logits(states_B1D)[:, 0])
        parts_B1D = states_B1D.split(sources_at_once)
        parts = [choose_likeliest(self.compute_logits(part_B1D)[:, 0]) for part_B1D in parts_B1D]
        token_B, log_p_B = map(torch.cat, zip(*parts, strict=True))
        return token_B, log_p_B

    def _search_beam(self, decoder: HypothesisDecoder, batch: int, decoding: DecodingOptions) -> list[DecodedSequence]:
        """Search as transformers does with ``early_stopping=False``.

        At every step the 2·W likeliest continuations of a source's W hypotheses are candidates, and more if there are
        several end tokens. Of the first W, those that end are finished texts; the first W that do not end are
        continued. A source is done when it has W finished texts and its likeliest hypothesis, scored as if it ended
        here, is no better than the worst of them.
        """
        device = decoder.source.states_BTD.device
        finished = [FinishedTexts(decoding.beam, decoding.length_penalty) for _ in range(batch)]
        unfinished: list[FinishedTexts] = finished
        hypotheses = BeamState.start(len(unfinished), decoding.beam, self.start_token, device)
        end_tokens_E = torch.tensor(self.end_tokens, dtype=torch.long, device=device)
        # W candidates that do not end must remain, although each hypothesis may be continued by every end token.
        count = max(2, 1 + len(self.end_tokens)) * decoding.beam
        for length in range(1, decoding.max_new_tokens + 1):
            states_BWD = decoder.step(hypotheses.last_token_BW, hypotheses.parents_BW)
            candidates = self._find_candidates(states_BWD, hypotheses.log_p_BW, count)
            ending_BC = torch.isin(candidates.token_BC, end_tokens_E) | (length == decoding.max_new_tokens)
            add_finished(unfinished, hypotheses, candidates, ending_BC)
            if length == decoding.max_new_tokens:
                break
            hypotheses = hypotheses.advance(candidates, ending_BC)
            for texts, log_p in zip(unfinished, hypotheses.log_p_BW[:, 0].tolist(), strict=True):
                texts.finish_if_beaten(log_p, length)
            unfinished, kept_R = drop_finished(unfinished, decoder)
            if not unfinished:
                break
            hypotheses = hypotheses if kept_R is None else hypotheses.select(kept_R)
        return [texts.get_best() for texts in finished]

    def _find_candidates(
        self, states_BWD: Float[Tensor, "B W D"], log_p_BW: Float[Tensor, "B W"], count: int
    ) -> Candidates:
        """Return the ``count`` likeliest continuations of each source; logits exist for some sources at a time."""
        sources_at_once = count_sources_at_once(states_BWD)
        if len(states_BWD) <= sources_at_once:
            return choose_candidates(self.compute_logits(states_BWD), log_p_BW, count)
        parts = zip(states_BWD.split(sources_at_once), log_p_BW.split(sources_at_once), strict=True)
        candidates = [choose_candidates(self.compute_logits(states), log_p, count) for states, log_p in parts]
        return Candidates(*map(torch.cat, zip(*candidates, strict=True)))


def _describe_refusal(compute_type: str, reason: str) -> str:
    """Return the message for a compute type that is not that of the weights."""
    return (
        f"compute_type is {compute_type!r}, but the engine clockhands computes in the type of the weights, and {reason}"
        "; leave it out, or choose another engine for it, such as ctranslate2"
    )


def drop_finished(
    searches: list[SourceSearch], decoder: HypothesisDecoder
) -> tuple[list[SourceSearch], Int[Tensor, " R"] | None]:
    """Drop finished sources from the batch of a search, if enough of them are finished.

    Returns the searches of the sources that stay (none once all are finished), and their indices among ``searches``, or
    None if all or none stay.
    """
    staying = choose_sources_to_keep(searches)
    if not staying or len(staying) == len(searches):
        return [searches[index] for index in staying], None
    kept_R = torch.tensor(staying, device=decoder.source.states_BTD.device)
    decoder.select(kept_R)
    return [searches[index] for index in staying], kept_R


def count_sources_at_once(states_BWD: Float[Tensor, "B W D"]) -> int:
    """Return for how many sources to make logits at a time: all, but on a CPU as many as stay in its cache."""
    batch, beam, _ = states_BWD.shape
    return max(1, LOGIT_ROWS // beam) if states_BWD.device.type == "cpu" else batch


def choose_likeliest(logits_BV: Float[Tensor, "B V"]) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """Return the likeliest token of each row, the first among equals, and its log-probability.

    The logits are overwritten. With several rows, the maximum of each block of the vocabulary is found first, which
    PyTorch does faster than the maximum of a whole row; with one row it is slower.
    """
    if logits_BV.shape[1] % VOCABULARY_BLOCK or len(logits_BV) == 1:
        max_B, token_B = logits_BV.max(-1)
    else:
        blocks_BGX = logits_BV.unflatten(-1, (-1, VOCABULARY_BLOCK))
        max_B, block_B = blocks_BGX.amax(-1).max(-1)
        best_block_B1X = blocks_BGX.take_along_dim(block_B[:, None, None], dim=1)
        token_B = block_B * VOCABULARY_BLOCK + best_block_B1X[:, 0].argmax(-1)
    # log softmax at the maximum: max - log sum exp(logits) = -log sum exp(logits - max).
    return token_B, -logits_BV.sub_(max_B[:, None]).exp_().sum(-1).log()


def choose_candidates(logits_BWV: Float[Tensor, "B W V"], log_p_BW: Float[Tensor, "B W"], count: int) -> Candidates:
    """Return the ``count`` likeliest continuations of each source, by the log-probability of the whole text.

    ``log_p_BW`` is the log-probability of each hypothesis so far. Each of the ``count`` largest of W·V sums lies in one
    of the ``count`` blocks with the largest maxima, so that only these blocks are sorted. If the vocabulary is not a
    multiple of ``VOCABULARY_BLOCK``, or there are fewer blocks than ``count``, all sums are.
    """
    vocabulary = logits_BWV.shape[-1]
    next_log_p_BWV = logits_BWV.log_softmax(-1)
    if vocabulary % VOCABULARY_BLOCK or logits_BWV[0].numel() < VOCABULARY_BLOCK * count:
        best_BC, index_BC = (next_log_p_BWV + log_p_BW[..., None]).flatten(1).topk(count)
        return Candidates(best_BC, index_BC // vocabulary, index_BC % vocabulary)
    blocks_BWGX = next_log_p_BWV.unflatten(-1, (-1, VOCABULARY_BLOCK))
    # The numbers of the best blocks, counted through all W hypotheses of a source.
    block_BC = (blocks_BWGX.amax(-1) + log_p_BW[..., None]).flatten(1).topk(count).indices
    best_blocks_BCX = blocks_BWGX.flatten(1, 2).take_along_dim(block_BC[..., None], dim=1)
    parent_log_p_BC = log_p_BW.gather(1, block_BC // blocks_BWGX.shape[2])
    best_BC, flat_BC = (best_blocks_BCX + parent_log_p_BC[..., None]).flatten(1).topk(count)
    # From the place among the best blocks to the place among all W·V sums.
    index_BC = block_BC.gather(1, flat_BC // VOCABULARY_BLOCK) * VOCABULARY_BLOCK + flat_BC % VOCABULARY_BLOCK
    return Candidates(best_BC, index_BC // vocabulary, index_BC % vocabulary)
