"""The texts that are being written, and what the decoder remembers of them.

A search (``decode.py``) holds W hypotheses for each of B sources. It says which word each hypothesis takes and which
hypothesis it continues; what is here reads the new words and gives the decoder's states. There are three ways, chosen
by what the decoder's schemes declare:

- ``Tree``: the W hypotheses of a source are W queries of one row. Their keys lie in memory side by side and are never
  moved; a mask of ancestors says which are whose. The source's keys are shared. It needs logits that depend on one
  query and one key alone.
- ``Rows``: each hypothesis is a row of its own, and memory is reordered when hypotheses change places.
- ``Reread``: nothing is remembered and every text is read again at every step, because an encoding depends on the
  length of the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import torch

from clockhands.generation.step import Step
from clockhands.model import Encoded, Text
from clockhands.model.masks import hides_any
from clockhands.model.transformer import Stack
from clockhands.schemes import Scheme
from clockhands.shapes import Bool, Float, Int, Tensor

ROOM = 16
WHOLE_ROWS = frozenset({"locate", "logits", "weigh"})
"""Hooks by which a logit depends on keys, or on words, between its own two."""


class Memory:
    """Keys and values of one layer, in buffers with room for more."""

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def keys(self) -> Float[Tensor, "B H T Kp"]:
        assert self._keys is not None, "nothing was remembered yet"
        return self._keys[:, :, : self.length]

    @property
    def values(self) -> Float[Tensor, "B H T K"]:
        assert self._values is not None, "nothing was remembered yet"
        return self._values[:, :, : self.length]

    def append(self, keys: Float[Tensor, "B H N Kp"], values: Float[Tensor, "B H N K"]) -> tuple[Tensor, Tensor]:
        """Write behind what is there, and give all."""
        start, end = self.length, self.length + keys.shape[2]
        if self._keys is None or self._values is None or end > self._keys.shape[2]:
            self._keys, self._values = roomy(keys, self._keys, start), roomy(values, self._values, start)
        self._keys[:, :, start:end] = keys
        self._values[:, :, start:end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Keep these rows, in this order."""
        if self.length:
            self._keys, self._values = self.keys[rows], self.values[rows]


def roomy(
    new_BHNK: Float[Tensor, "B H N K"], old_BHTK: Float[Tensor, "B H T K"] | None, length: int
) -> Float[Tensor, "B H T2 K"]:
    """A buffer with room for what is new and as much again, filled with the first ``length`` of the old one.

    Heads lie apart in it, not words: the kernels read a head's keys in one sweep.
    """
    batch, heads, more, width = new_BHNK.shape
    buffer = new_BHNK.new_empty(batch, heads, max(ROOM, 2 * (length + more)), width)
    if old_BHTK is not None:
        buffer[:, :, :length] = old_BHTK[:, :, :length]
    return buffer


class Memories:
    """The cache of a decoder (a ``KVCache``): one ``Memory`` for each layer."""

    def __init__(self, layers: int) -> None:
        self.layers = [Memory() for _ in range(layers)]

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        return self.layers[layer_idx].append(key_states, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.layers[layer_idx].length

    def select(self, rows: Int[Tensor, " N"]) -> None:
        for memory in self.layers:
            memory.select(rows)


class Hypotheses(ABC):
    """W texts for each of B sources, of ``length`` words each; ``read`` adds a word to each."""

    def __init__(self, step: Step, source: Encoded, beams: int) -> None:
        self.step, self.source, self.beams, self.length = step, source, beams, 0

    @abstractmethod
    def read(self, words_BW: Int[Tensor, "B W"], parents_BW: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W D"]:
        """States after these words, each added to the hypothesis ``parents_BW`` of its source (None: to itself)."""

    @abstractmethod
    def keep(self, rows: Int[Tensor, " R"]) -> None:
        """Go on with these sources alone."""


class Cached(Hypotheses):
    """Remembers keys: what ``Tree`` and ``Rows`` share."""

    def __init__(self, step: Step, source: Encoded, beams: int) -> None:
        super().__init__(step, source, beams)
        self.own = Memories(len(step.layers))
        self.crossed: list[tuple[Tensor, Tensor] | None] = [None] * len(step.layers)

    def states(self, words_NS: Int[Tensor, "N S"], visible: Bool[Tensor, "N 1 S M"] | None) -> Float[Tensor, "N S D"]:
        """Read one word at this step's position for every query."""
        states_NSD = self.step(words_NS, self, visible)
        self.length += 1
        return states_NSD

    def keep(self, rows: Int[Tensor, " R"]) -> None:
        self.source = chosen(self.source, rows)
        self.own.select(rows)
        self.crossed = [None if kept is None else (kept[0][rows], kept[1][rows]) for kept in self.crossed]


class Tree(Cached):
    """The hypotheses of a source as queries of one row over a common memory."""

    def __init__(self, step: Step, source: Encoded, beams: int) -> None:
        super().__init__(step, source, beams)
        batch, device = len(source.states_BTD), source.states_BTD.device
        self.ancestors_BWM = torch.zeros(batch, beams, 0, dtype=torch.bool, device=device)
        self.itself_BWW = torch.eye(beams, dtype=torch.bool, device=device).expand(batch, -1, -1)

    def read(self, words_BW: Int[Tensor, "B W"], parents_BW: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W D"]:
        if self.beams == 1:
            return self.states(words_BW, None)
        if parents_BW is not None:
            self.ancestors_BWM = self.ancestors_BWM.take_along_dim(parents_BW[..., None], dim=1)
        self.ancestors_BWM = torch.cat([self.ancestors_BWM, self.itself_BWW], dim=2)
        return self.states(words_BW, self.ancestors_BWM[:, None])

    def keep(self, rows: Int[Tensor, " R"]) -> None:
        super().keep(rows)
        self.ancestors_BWM, self.itself_BWW = self.ancestors_BWM[rows], self.itself_BWW[rows]


class Rows(Cached):
    """Every hypothesis as a row with a memory of its own."""

    def __init__(self, step: Step, source: Encoded, beams: int) -> None:
        super().__init__(step, repeated(source, beams), beams)

    def read(self, words_BW: Int[Tensor, "B W"], parents_BW: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W D"]:
        if parents_BW is not None:
            self.own.select(flat(parents_BW, self.beams))
        return self.states(words_BW.reshape(-1, 1), None).view(*words_BW.shape, -1)

    def keep(self, rows: Int[Tensor, " R"]) -> None:
        super().keep(all_of(rows, self.beams))


class Reread(Hypotheses):
    """Every hypothesis as a row that is read from its first word at every step."""

    def __init__(self, step: Step, source: Encoded, beams: int) -> None:
        super().__init__(step, repeated(source, beams), beams)
        self.words_NS = torch.empty(len(self.source.states_BTD), 0, dtype=torch.long, device=source.states_BTD.device)

    def read(self, words_BW: Int[Tensor, "B W"], parents_BW: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W D"]:
        if parents_BW is not None:
            self.words_NS = self.words_NS[flat(parents_BW, self.beams)]
        self.words_NS = torch.cat([self.words_NS, words_BW.reshape(-1, 1)], dim=1)
        states_NSD = self.step.core.decode(Text(self.words_NS), self.source)
        return states_NSD[:, -1].view(*words_BW.shape, -1)

    def keep(self, rows: Int[Tensor, " R"]) -> None:
        rows = all_of(rows, self.beams)
        self.source, self.words_NS = chosen(self.source, rows), self.words_NS[rows]


def hypotheses(step: Step, source: Encoded, beams: int) -> Hypotheses:
    """The fastest way that the schemes of the decoder and of its cross-attention allow."""
    if source.mask_BT is not None and not hides_any(source.mask_BT):
        source = replace(source, mask_BT=None)
    transform = step.stack.transform
    own = schemes_of(step.stack)
    if (transform is not None and transform.depends_on_length) or any(s.declares.depends_on_length for s in own):
        return Reread(step, source, beams)
    if beams > 1 and any(scheme.active_hooks() & WHOLE_ROWS for scheme in [*own, *step.cross_schemes]):
        return Rows(step, source, beams)
    return Tree(step, source, beams)


def schemes_of(stack: Stack) -> list[Scheme]:
    """The schemes of all layers of a stack."""
    return [scheme for scheme in stack.schemes if isinstance(scheme, Scheme)]


def chosen(source: Encoded, rows: Int[Tensor, " R"]) -> Encoded:
    """Some rows of a source, in a given order."""
    mask = None if source.mask_BT is None else source.mask_BT[rows]
    return Encoded(source.states_BTD[rows], source.positions_BT[rows], mask)


def repeated(source: Encoded, times: int) -> Encoded:
    """Every row of a source, several times in a row."""
    if times == 1:
        return source
    return chosen(
        source, torch.arange(len(source.states_BTD), device=source.states_BTD.device).repeat_interleave(times)
    )


def flat(parents_BW: Int[Tensor, "B W"], beams: int) -> Int[Tensor, " N"]:
    """Hypotheses numbered within their source, as rows."""
    first_B1 = torch.arange(len(parents_BW), device=parents_BW.device)[:, None] * beams
    return (first_B1 + parents_BW).flatten()


def all_of(rows: Int[Tensor, " R"], beams: int) -> Int[Tensor, " N"]:
    """The rows of all hypotheses of these sources."""
    return (rows[:, None] * beams + torch.arange(beams, device=rows.device)).flatten()
