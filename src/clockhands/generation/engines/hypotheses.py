"""The hypotheses of a search in the decoder: three ways to read their next tokens.

A search (``clockhands.py``) holds W hypotheses for each of B sources. It says which token each hypothesis takes and
which hypothesis it continues; a ``Hypotheses`` reads the new tokens and returns the decoder's states. The way is chosen
by what the decoder's schemes declare:

- ``SharedCache``: the W hypotheses of a source are W queries of one row. Their keys lie in the KV cache side by side
  and are never moved; a mask of ancestors says which keys belong to which hypothesis (tree attention). The source's
  keys are shared. It needs logits that depend on one query and one key alone.
- ``CachePerHypothesis``: each hypothesis is a row of its own, and the KV cache is reordered when hypotheses change
  places.
- ``Recompute``: nothing is cached and every text is read again at every step, because an encoding depends on the
  length of the text.

Axes beside those of ``shapes``: W hypotheses of a source, M cached tokens, N = B·W rows, R rows that are kept, C
candidates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import torch

from clockhands.model import Encoded, Text, Transformer
from clockhands.model.lean import LeanDecoder
from clockhands.model.masks import has_padding
from clockhands.schemes import Scheme
from clockhands.shapes import Float, Int, Tensor

NON_PAIRWISE_HOOKS = frozenset({"locate", "logits", "weigh"})
"""Hooks through which the logit of a query and a key may depend on other tokens too. With any of them in use the
hypotheses cannot share one KV cache."""


class Hypotheses(ABC):
    """W texts for each of B sources; ``step`` adds a token to each."""

    def __init__(self, decoder: LeanDecoder, source: Encoded, beams: int) -> None:
        self.decoder, self.source, self.beams = decoder, source, beams

    @abstractmethod
    def step(self, tokens_BW: Int[Tensor, "B W"], parents_BW: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W D"]:
        """Read a token for each hypothesis and return the states after them.

        Each is added to the hypothesis ``parents_BW`` of its source (None: to itself).
        """

    @abstractmethod
    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Continue with these sources alone."""


class SharedCache(Hypotheses):
    """The hypotheses of a source as queries of one row over a common KV cache."""

    def __init__(self, decoder: LeanDecoder, source: Encoded, beams: int) -> None:
        super().__init__(decoder, source, beams)
        self.caches = decoder.make_caches(source)
        batch, device = len(source.states_BTD), source.states_BTD.device
        # Row w of the mask says which cached tokens hypothesis w is made of. When a hypothesis continues another, it
        # takes over that one's row: nothing is copied in the cache, where tokens of dead hypotheses stay, masked.
        self.ancestors_BWM = torch.zeros(batch, beams, 0, dtype=torch.bool, device=device)
        self.itself_BWW = torch.eye(beams, dtype=torch.bool, device=device).expand(batch, -1, -1)

    def step(self, tokens_BW: Int[Tensor, "B W"], parents_BW: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W D"]:
        """Read the tokens as queries of one row, each of which attends to its ancestors and itself."""
        if self.beams == 1:  # its only parent is itself
            return self.decoder.step(tokens_BW, self.caches)
        if parents_BW is not None:
            self.ancestors_BWM = self.ancestors_BWM.take_along_dim(parents_BW[..., None], dim=1)
        self.ancestors_BWM = torch.cat([self.ancestors_BWM, self.itself_BWW], dim=2)
        return self.decoder.step(tokens_BW, self.caches, self.ancestors_BWM[:, None])

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Continue with these sources alone."""
        self.caches.select(rows)
        self.source = self.caches.source
        self.ancestors_BWM, self.itself_BWW = self.ancestors_BWM[rows], self.itself_BWW[rows]


class CachePerHypothesis(Hypotheses):
    """Every hypothesis as a row with a KV cache of its own."""

    def __init__(self, decoder: LeanDecoder, source: Encoded, beams: int) -> None:
        super().__init__(decoder, repeat_rows(source, beams), beams)
        self.caches = decoder.make_caches(self.source)

    def step(self, tokens_BW: Int[Tensor, "B W"], parents_BW: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W D"]:
        """Reorder the KV cache by the parents, and read the tokens."""
        if parents_BW is not None:
            # The source's keys are equal for all hypotheses of a source, and stay where they are.
            self.caches.self_attention.select(number_rows(parents_BW, self.beams))
        return self.decoder.step(tokens_BW.reshape(-1, 1), self.caches).view(*tokens_BW.shape, -1)

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Continue with all hypotheses of these sources alone."""
        self.caches.select(expand_rows(rows, self.beams))
        self.source = self.caches.source


class Recompute(Hypotheses):
    """Every hypothesis as a row that is read from its first token at every step."""

    def __init__(self, decoder: LeanDecoder, source: Encoded, beams: int) -> None:
        super().__init__(decoder, repeat_rows(source, beams), beams)
        self.tokens_NS = torch.empty(len(self.source.states_BTD), 0, dtype=torch.long, device=source.states_BTD.device)

    def step(self, tokens_BW: Int[Tensor, "B W"], parents_BW: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W D"]:
        """Read every text from its first token."""
        if parents_BW is not None:
            self.tokens_NS = self.tokens_NS[number_rows(parents_BW, self.beams)]
        self.tokens_NS = torch.cat([self.tokens_NS, tokens_BW.reshape(-1, 1)], dim=1)
        states_NSD = self.decoder.core.decode(Text(self.tokens_NS), self.source)
        return states_NSD[:, -1].view(*tokens_BW.shape, -1)

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Continue with all hypotheses of these sources alone."""
        rows = expand_rows(rows, self.beams)
        self.source, self.tokens_NS = self.source.select(rows), self.tokens_NS[rows]


def make_hypotheses(decoder: LeanDecoder, source: Encoded, beams: int) -> Hypotheses:
    """Make hypotheses of the fastest kind that the schemes of the decoder and of its cross-attention allow."""
    if source.mask_BT is not None and not has_padding(source.mask_BT):
        source = replace(source, mask_BT=None)
    if depends_on_length(decoder.core):
        return Recompute(decoder, source, beams)
    own = [scheme for scheme in decoder.stack.schemes if isinstance(scheme, Scheme)]
    if beams > 1 and any(scheme.active_hooks() & NON_PAIRWISE_HOOKS for scheme in [*own, *decoder.cross_schemes]):
        return CachePerHypothesis(decoder, source, beams)
    return SharedCache(decoder, source, beams)


def depends_on_length(core: Transformer) -> bool:
    """Return whether an encoding of the decoder depends on the length of the text, so that no keys can be cached."""
    assert core.decoder is not None, "an encoder alone writes nothing"
    transform = core.decoder.transform
    schemes = [scheme for scheme in core.decoder.schemes if isinstance(scheme, Scheme)]
    by_scheme = any(scheme.declares.depends_on_length for scheme in schemes)
    return by_scheme or (transform is not None and transform.depends_on_length)


def repeat_rows(source: Encoded, times: int) -> Encoded:
    """Repeat each row of a source ``times`` times; its copies follow one another."""
    if times == 1:
        return source
    rows_N = torch.arange(len(source.states_BTD), device=source.states_BTD.device).repeat_interleave(times)
    return source.select(rows_N)


def number_rows(parents_BW: Int[Tensor, "B W"], beams: int) -> Int[Tensor, " N"]:
    """Convert hypotheses that are numbered within their source, [B, W], to numbers of rows, [B·W]."""
    first_B1 = torch.arange(len(parents_BW), device=parents_BW.device)[:, None] * beams
    return (first_B1 + parents_BW).flatten()


def expand_rows(rows: Int[Tensor, " R"], beams: int) -> Int[Tensor, " N"]:
    """Return the rows of all hypotheses of these sources."""
    return (rows[:, None] * beams + torch.arange(beams, device=rows.device)).flatten()
