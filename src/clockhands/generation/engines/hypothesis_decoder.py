"""Three ways to run the decoder on the hypotheses of a search.

A search (``clockhands.py``) has W hypotheses for each of B sources. At every step it says which token is added to each
hypothesis, and which hypothesis of the step before each continues; a ``HypothesisDecoder`` runs the decoder on the new
tokens and returns its last states. The schemes of the decoder and of its cross-attention decide among three classes:

- ``SharedCacheDecoder``: the W hypotheses of a source are W queries of one row. Their keys lie in the KV cache side
  by side and are never moved; a mask tells which keys belong to which hypothesis (tree attention, Miao et al. 2024).
  The source's keys are shared. The logit of a query and a key must depend on these two tokens alone.
- ``SeparateCacheDecoder``: each hypothesis is a row of its own, and the rows of the KV cache are reordered when a
  hypothesis continues another.
- ``UncachedDecoder``: nothing is cached and every text is read again at every step, because positions or what a
  scheme makes of them depend on the length of the text.

Axes beside those of ``shapes``: W hypotheses of a source, M cached tokens, N = B·W rows, R sources that stay in
the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import torch

from clockhands.model import EncodedSource, TokenBatch
from clockhands.model.lean import LeanDecoder
from clockhands.model.masks import has_padding
from clockhands.model.stack import Stack
from clockhands.shapes import Float, Int, Tensor

__all__ = [
    "NON_PAIRWISE_HOOKS",
    "HypothesisDecoder",
    "SeparateCacheDecoder",
    "SharedCacheDecoder",
    "UncachedDecoder",
    "can_share_cache",
    "expand_rows",
    "flatten_parents",
    "make_hypothesis_decoder",
    "must_reread_text",
    "repeat_rows",
]

NON_PAIRWISE_HOOKS = frozenset({"locate", "logits", "weigh"})
"""Hooks whose result for a query and a key may depend on which other keys the cache holds, masked ones too, or on their
order. The hypotheses cannot share one KV cache if a scheme has one of them."""


class HypothesisDecoder(ABC):
    """Runs the decoder on W texts for each of B sources; ``step`` adds a token to each.

    Args:
        lean_decoder: the decoder of the model.
        source: the encoder's states of the sources with their mask: [B, T, D], or [B·W, T, D] where each hypothesis is
            a row of its own.
        beam: W, the number of hypotheses of each source.
    """

    def __init__(self, lean_decoder: LeanDecoder, source: EncodedSource, beam: int) -> None:
        self.lean_decoder, self.source, self.beam = lean_decoder, source, beam

    @abstractmethod
    def step(self, tokens_BW: Int[Tensor, "B W"], parents_BW: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W D"]:
        """Add a token to each hypothesis, and return the decoder's state of that token.

        ``parents_BW`` numbers, within its source, the hypothesis that each one continues from now on; None: itself.
        Raises PositionError for a token beyond the last position of a scheme.
        """

    @abstractmethod
    def select(self, sources_R: Int[Tensor, " R"]) -> None:
        """Keep the hypotheses of these sources, numbered from 0 to B - 1, and drop the others."""


class SharedCacheDecoder(HypothesisDecoder):
    """Decodes the hypotheses of a source as queries of one row, over one KV cache."""

    def __init__(self, lean_decoder: LeanDecoder, source: EncodedSource, beam: int) -> None:
        super().__init__(lean_decoder, source, beam)
        self.state = lean_decoder.start(source)
        batch, device = len(source.states_BTD), source.states_BTD.device
        # Row w of the mask says of which cached tokens hypothesis w consists. When a hypothesis continues another one,
        # it takes over the row of that one: nothing is copied in the cache, where the tokens of hypotheses that nobody
        # continues stay, masked.
        self.ancestors_BWM = torch.zeros(batch, beam, 0, dtype=torch.bool, device=device)
        self.identity_BWW = torch.eye(beam, dtype=torch.bool, device=device).expand(batch, -1, -1)

    def step(self, tokens_BW: Int[Tensor, "B W"], parents_BW: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W D"]:
        """Run the decoder on the tokens as queries of one row; each attends to its own text and itself."""
        if self.beam == 1:  # the only hypothesis continues itself
            return self.lean_decoder.step(tokens_BW, self.state)
        if parents_BW is not None:
            self.ancestors_BWM = self.ancestors_BWM.take_along_dim(parents_BW[..., None], dim=1)
        self.ancestors_BWM = torch.cat([self.ancestors_BWM, self.identity_BWW], dim=2)
        return self.lean_decoder.step(tokens_BW, self.state, self.ancestors_BWM[:, None])

    def select(self, sources_R: Int[Tensor, " R"]) -> None:
        """Keep the hypotheses of these sources."""
        self.state.select(sources_R)
        self.source = self.state.source
        self.ancestors_BWM, self.identity_BWW = self.ancestors_BWM[sources_R], self.identity_BWW[sources_R]


class SeparateCacheDecoder(HypothesisDecoder):
    """Decodes every hypothesis as a row with a KV cache of its own."""

    def __init__(self, lean_decoder: LeanDecoder, source: EncodedSource, beam: int) -> None:
        super().__init__(lean_decoder, repeat_rows(source, beam), beam)
        self.state = lean_decoder.start(self.source)

    def step(self, tokens_BW: Int[Tensor, "B W"], parents_BW: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W D"]:
        """Reorder the rows of the KV cache by the parents, and run the decoder on the tokens."""
        if parents_BW is not None:
            # The keys of the source are equal for all its hypotheses, so only those of self-attention are reordered.
            self.state.cache.select(flatten_parents(parents_BW))
        return self.lean_decoder.step(tokens_BW.reshape(-1, 1), self.state).view(*tokens_BW.shape, -1)

    def select(self, sources_R: Int[Tensor, " R"]) -> None:
        """Keep the hypotheses of these sources."""
        self.state.select(expand_rows(sources_R, self.beam))
        self.source = self.state.source


class UncachedDecoder(HypothesisDecoder):
    """Decodes every hypothesis as a row of its own, without a KV cache: each step reads it from its first token."""

    def __init__(self, lean_decoder: LeanDecoder, source: EncodedSource, beam: int) -> None:
        super().__init__(lean_decoder, repeat_rows(source, beam), beam)
        self.tokens_NS = torch.empty(len(self.source.states_BTD), 0, dtype=torch.long, device=source.states_BTD.device)

    def step(self, tokens_BW: Int[Tensor, "B W"], parents_BW: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W D"]:
        """Run the decoder on every text from its first token."""
        if parents_BW is not None:
            self.tokens_NS = self.tokens_NS[flatten_parents(parents_BW)]
        self.tokens_NS = torch.cat([self.tokens_NS, tokens_BW.reshape(-1, 1)], dim=1)
        states_NSD = self.lean_decoder.transformer.decode(TokenBatch(self.tokens_NS), self.source)
        return states_NSD[:, -1].view(*tokens_BW.shape, -1)

    def select(self, sources_R: Int[Tensor, " R"]) -> None:
        """Keep the hypotheses of these sources."""
        rows_N = expand_rows(sources_R, self.beam)
        self.source, self.tokens_NS = self.source.select(rows_N), self.tokens_NS[rows_N]


def make_hypothesis_decoder(lean_decoder: LeanDecoder, source: EncodedSource, beam: int) -> HypothesisDecoder:
    """Make the fastest ``HypothesisDecoder`` that the schemes of the decoder and of its cross-attention allow.

    ``source`` holds the encoder's states of B sources, and ``beam`` is W, the hypotheses of each.
    """
    if source.mask_BT is not None and not has_padding(source.mask_BT):
        source = replace(source, mask_BT=None)
    if must_reread_text(lean_decoder.stack):
        return UncachedDecoder(lean_decoder, source, beam)
    if beam > 1 and not can_share_cache(lean_decoder.stack):
        return SeparateCacheDecoder(lean_decoder, source, beam)
    return SharedCacheDecoder(lean_decoder, source, beam)


def can_share_cache(decoder: Stack) -> bool:
    """Return whether the hypotheses of a source can be the queries of one row, over one KV cache."""
    cross_schemes = decoder.cross_schemes.used if decoder.cross_schemes is not None else ()
    schemes = [*decoder.schemes.used, *cross_schemes]
    return not must_reread_text(decoder) and not any(scheme.active_hooks() & NON_PAIRWISE_HOOKS for scheme in schemes)


def must_reread_text(decoder: Stack) -> bool:
    """Return whether every step must read the whole text, because positions or schemes depend on the text's length.

    That is stricter than ``Stack.cache_limit``, the length up to which cached keys stay right: no text is begun with a
    cache that it may outgrow.
    """
    schemes = [*decoder.schemes.used, *(decoder.cross_schemes.used if decoder.cross_schemes is not None else ())]
    by_scheme = any(scheme.declares.depends_on_length for scheme in schemes)
    return by_scheme or (decoder.transform is not None and decoder.transform.depends_on_length)


def repeat_rows(source: EncodedSource, times: int) -> EncodedSource:
    """Repeat each row of the encoder's states ``times`` times, [B, T, D] to [B·times, T, D]; copies stand together."""
    if times == 1:
        return source
    rows_N = torch.arange(len(source.states_BTD), device=source.states_BTD.device).repeat_interleave(times)
    return source.select(rows_N)


def flatten_parents(parents_BW: Int[Tensor, "B W"]) -> Int[Tensor, " N"]:
    """Convert the numbers of hypotheses within their source, 0 to W - 1, to numbers of rows, 0 to B·W - 1."""
    batch, beam = parents_BW.shape
    first_B1 = torch.arange(batch, device=parents_BW.device)[:, None] * beam
    return (first_B1 + parents_BW).flatten()


def expand_rows(sources_R: Int[Tensor, " R"], beam: int) -> Int[Tensor, " N"]:
    """Convert the numbers of sources to the numbers of the rows of all their hypotheses, [R·W]."""
    return (sources_R[:, None] * beam + torch.arange(beam, device=sources_R.device)).flatten()
