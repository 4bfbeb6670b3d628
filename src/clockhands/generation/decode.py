"""Greedy and beam search over a trained encoder-decoder: what ``generate`` of transformers finds, in less time.

A step is little more than its matrix products (``step.py``), and the W hypotheses of a beam share what they have in
common (``hypotheses.py``). Here: sentences leave the batch when they are finished, logits exist for some rows at a
time, and the best words are found in two levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from clockhands.generation.hypotheses import Hypotheses, hypotheses
from clockhands.generation.step import Step, linear
from clockhands.model import Text, Transformer
from clockhands.shapes import Bool, Float, Int, Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BLOCK = 64
ROWS = 64
"""Rows of logits that are made and used at a time, where a processor's cache holds no more."""
LEAVING = 8
"""Finished sentences leave once they are one in so many: each leaving copies what the others remember."""


@dataclass(frozen=True)
class Written:
    """``words``, their end included if it was reached, and the sum of their log-probabilities (natural)."""

    words: list[int]
    log_probability: float


class Decoder:
    """Writes with one model, a ``ClockhandsForSeq2SeqLM``; make it once and call it for every batch.

    It works with copies of matrices: make it again when the model has changed.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.core: Transformer = model.model
        self.start, self.ends = first_word(model), ends(model)
        self.step, self.vocabulary = Step(self.core), linear(self.core.output)

    def __call__(
        self,
        ids_BT: Int[Tensor, "B T"],
        mask_BT: Bool[Tensor, "B T"] | None,
        *,
        longest: int,
        beam: int = 1,
        length_penalty: float = 1.0,
    ) -> list[Written]:
        """What the model writes for each source, in at most ``longest`` words. ``beam`` 1 is greedy.

        A beam gives the text with the highest log-probability / words ** ``length_penalty``.
        """
        with torch.no_grad():
            texts = hypotheses(self.step, self.core.encode(Text(ids_BT, mask_BT)), beam)
        # It saves a twentieth of a small step; but schemes at work keep nothing there for the layers to come.
        with torch.inference_mode() if self.step.idle else torch.no_grad():
            if beam == 1:
                return self.greedy(texts, len(ids_BT), longest)
            return self.search(texts, len(ids_BT), longest, length_penalty)

    def logits(self, states_BWD: Float[Tensor, "B W D"]) -> Float[Tensor, "B W V"]:
        """Of what follows; in float32, as searches compare them."""
        ready_ND = self.core.output.prepare(states_BWD).flatten(0, 1)
        return self.vocabulary(ready_ND).unflatten(0, states_BWD.shape[:2]).float()

    def greedy(self, texts: Hypotheses, batch: int, longest: int) -> list[Written]:
        """The likeliest word each time."""
        drafts = [Draft() for _ in range(batch)]
        rows: list[Draft] = drafts
        word_B1 = torch.full((batch, 1), self.start, device=texts.source.states_BTD.device)
        for _ in range(longest):
            states_B1D = texts.read(word_B1, None)
            some = rows_at_once(states_B1D)
            if len(rows) <= some:
                word_B, chance_B = best(self.logits(states_B1D)[:, 0])
            else:
                chosen = [best(self.logits(part)[:, 0]) for part in states_B1D.split(some)]
                word_B, chance_B = map(torch.cat, zip(*chosen, strict=True))
            for draft, word, chance in zip(rows, word_B.tolist(), chance_B.tolist(), strict=True):
                draft.add(word, chance, self.ends)
            word_B1 = word_B[:, None]
            staying = stay(rows)
            if not staying:
                break
            if len(staying) < len(rows):
                rows = [rows[row] for row in staying]
                kept = torch.tensor(staying, device=word_B1.device)
                texts.keep(kept)
                word_B1 = word_B1[kept]
        return [Written(draft.words, draft.total) for draft in drafts]

    def search(self, texts: Hypotheses, batch: int, longest: int, length_penalty: float) -> list[Written]:
        """Beam search as transformers defines it with ``early_stopping=False``.

        At every step the likeliest continuations of a source's W hypotheses, two for each, are candidates. Those of
        the first W that end are found; the first W that do not end go on. A source is done when W texts were found
        and the likeliest hypothesis, scored as if it ended here, is no better than the worst of them.
        """
        width, device = texts.beams, texts.source.states_BTD.device
        finds = [Found(width, length_penalty) for _ in range(batch)]
        rows: list[Found] = finds
        beam = Beam.starting(len(rows), width, self.start, device)
        ends_E = torch.tensor(self.ends, dtype=torch.long, device=device)
        for length in range(1, longest + 1):
            states_BWD = texts.read(beam.words_BW, beam.parents_BW)
            candidates = self.candidates(states_BWD, beam.total_BW, max(2, 1 + len(self.ends)) * width)
            ending_BC = torch.isin(candidates[2], ends_E) | (length == longest)
            collect(rows, beam, candidates, ending_BC)
            if length == longest:
                break
            beam = beam.going_on(candidates, ending_BC)
            for found, total in zip(rows, beam.total_BW[:, 0].tolist(), strict=True):
                found.settle(total, length)
            staying = stay(rows)
            if not staying:
                break
            if len(staying) < len(rows):
                rows = [rows[row] for row in staying]
                kept = torch.tensor(staying, device=device)
                texts.keep(kept)
                beam = beam.rows(kept)
        return [found.best() for found in finds]

    def candidates(self, states_BWD: Float[Tensor, "B W D"], total_BW: Float[Tensor, "B W"], count: int) -> Candidates:
        """The ``count`` likeliest continuations of each source."""
        some = rows_at_once(states_BWD)
        parts = zip(states_BWD.split(some), total_BW.split(some), strict=True)
        found = [likeliest(self.logits(states), total, count) for states, total in parts]
        total_BC, parent_BC, word_BC = map(torch.cat, zip(*found, strict=True))
        return total_BC, parent_BC, word_BC


def ends(model: PreTrainedModel) -> list[int]:
    """The words that end a text."""
    found = model.config.eos_token_id
    return [] if found is None else [found] if isinstance(found, int) else list(found)


def first_word(model: PreTrainedModel) -> int:
    """The word that every text begins with, which is not written."""
    config = model.config
    start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
    assert start is not None, "a translator has a first word"
    return int(start)


def rows_at_once(states_BWD: Float[Tensor, "B W D"]) -> int:
    """The sources whose logits are made at a time: all of them, but on a CPU as many as stay near the processor."""
    batch, width, _ = states_BWD.shape
    return max(1, ROWS // width) if states_BWD.device.type == "cpu" else batch


def best(logits_NV: Float[Tensor, "N V"]) -> tuple[Int[Tensor, " N"], Float[Tensor, " N"]]:
    """The likeliest word of each row, the first among equals, and its log-probability. The logits are used up."""
    if logits_NV.shape[1] % BLOCK or len(logits_NV) == 1:
        top_N, word_N = logits_NV.max(-1)
    else:
        blocks_NGX = logits_NV.unflatten(-1, (-1, BLOCK))
        top_N, block_N = blocks_NGX.amax(-1).max(-1)
        inside_N1X = blocks_NGX.take_along_dim(block_N[:, None, None], dim=1)
        word_N = block_N * BLOCK + inside_N1X[:, 0].argmax(-1)
    return word_N, -logits_NV.sub_(top_N[:, None]).exp_().sum(-1).log()


def stay(rows: Sequence[Draft | Found]) -> list[int]:
    """The rows to go on with: those not done, but all as long as few are done, and none once all are."""
    going = [row for row, text in enumerate(rows) if not text.done]
    few = (len(rows) - len(going)) * LEAVING < len(rows)
    return list(range(len(rows))) if few else going


@dataclass
class Draft:
    """A text written word by word."""

    words: list[int] = field(default_factory=list)
    total: float = 0.0
    done: bool = False

    def add(self, word: int, chance: float, ends: list[int]) -> None:
        """One more word, unless the text has ended."""
        if not self.done:
            self.words.append(word)
            self.total += chance
            self.done = word in ends


@dataclass
class Found:
    """The W best texts found for a source: (score, words, log-probability), best first."""

    width: int
    length_penalty: float
    texts: list[tuple[float, list[int], float]] = field(default_factory=list)
    done: bool = False

    def score(self, total: float, length: int) -> float:
        return total / length**self.length_penalty

    def add(self, words: list[int], total: float) -> None:
        """A text that has ended."""
        self.texts.append((self.score(total, len(words)), words, total))
        self.texts.sort(key=lambda text: -text[0])
        del self.texts[self.width :]

    def settle(self, total: float, length: int) -> None:
        """Done, if the likeliest hypothesis cannot be better than what was found."""
        full = len(self.texts) == self.width
        self.done = self.done or (full and self.score(total, length) <= self.texts[-1][0])

    def best(self) -> Written:
        _, words, total = self.texts[0]
        return Written(words, total)


@dataclass(frozen=True)
class Beam:
    """The hypotheses of every source, likeliest first; ``parents_BW`` are those of the last step that they continue."""

    written_BWS: Int[Tensor, "B W S"]
    words_BW: Int[Tensor, "B W"]
    total_BW: Float[Tensor, "B W"]
    parents_BW: Int[Tensor, "B W"] | None

    @classmethod
    def starting(cls, batch: int, width: int, start: int, device: torch.device) -> Beam:
        """All alike, so that only the first may be continued."""
        total_BW = torch.full((batch, width), -torch.inf, device=device)
        total_BW[:, 0] = 0
        written = torch.empty(batch, width, 0, dtype=torch.long, device=device)
        return cls(written, torch.full((batch, width), start, device=device), total_BW, None)

    def going_on(self, candidates: Candidates, ending_BC: Bool[Tensor, "B C"]) -> Beam:
        """The likeliest candidates that do not end."""
        total_BC, parent_BC, word_BC = candidates
        total_BW, place_BW = total_BC.masked_fill(ending_BC, -torch.inf).topk(len(self.words_BW[0]))
        parents_BW, words_BW = parent_BC.gather(1, place_BW), word_BC.gather(1, place_BW)
        written_BWS = self.written_BWS.take_along_dim(parents_BW[..., None], dim=1)
        return Beam(torch.cat([written_BWS, words_BW[..., None]], dim=2), words_BW, total_BW, parents_BW)

    def rows(self, rows: Int[Tensor, " R"]) -> Beam:
        """The hypotheses of some sources."""
        parents_BW = None if self.parents_BW is None else self.parents_BW[rows]
        return Beam(self.written_BWS[rows], self.words_BW[rows], self.total_BW[rows], parents_BW)


Candidates = tuple[Tensor, Tensor, Tensor]
"""Log-probabilities, the hypotheses that are continued, and the words: each [B, C], likeliest first."""


def collect(rows: list[Found], beam: Beam, candidates: Candidates, ending_BC: Bool[Tensor, "B C"]) -> None:
    """Hand every text that ends among the first W candidates to its source."""
    total_BC, parent_BC, word_BC = candidates
    for row, place in ending_BC[:, : beam.words_BW.shape[1]].nonzero().tolist():
        if not rows[row].done:
            written = beam.written_BWS[row, parent_BC[row, place]].tolist()
            rows[row].add([*written, int(word_BC[row, place])], float(total_BC[row, place]))


def likeliest(logits_BWV: Float[Tensor, "B W V"], total_BW: Float[Tensor, "B W"], count: int) -> Candidates:
    """The ``count`` likeliest continuations of each source, by the log-probability of the whole text.

    The largest of W·V numbers lie in the blocks with the largest maxima, so that most are never sorted.
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
