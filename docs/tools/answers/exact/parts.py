"""The four parts of an attention score, in a model of one head that must name who did it.

A sentence of *roles* goes in, such as "Tom bit a dog". The query is its verb, and the values are words without places,
so that nothing but the score can tell the order of the words::

    s_j = (Q(x + e))ᵀ(K(y_j + f_j)) / √d = (xMy_j + xMf_j + eMy_j + eMf_j) / √d        M = QᵀK

x is the verb's word and e its place, y_j and f_j are those of word j. A reader has all four parts, or some of them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from clockhands.data.corpora.roles import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    PLACES,
    PREPOSITIONS,
    VERBS,
    Grammar,
    Phrase,
    RoleSentence,
)
from clockhands.shapes import Float, Int, Tensor
from exact.added import make_rows

__all__ = ["PARTS", "TWINS", "Reader", "Sentences", "draw", "encode", "measure_right", "train_reader"]

PARTS = ("word–word", "word–position", "position–word", "position–position")
"""What a part knows of the query, and what of the key."""
TOM_BIT = RoleSentence(Phrase("Tom"), "bit", Phrase("dog", "a"))
TWINS = (TOM_BIT, TOM_BIT.swapped)
"""“Tom bit a dog” and “a dog bit Tom”."""
WIDTH, LONGEST, FURTHEST = 64, 16, 16
"""Channels; words of a sentence at most; places by which a sentence is moved at most."""
VOCABULARY = ("", "a", "an", "the", *ADJECTIVES, *NAMES, *NOUNS, *VERBS, *PREPOSITIONS, *PLACES)
"""The first is padding."""
IDS = {word: number for number, word in enumerate(VOCABULARY)}
GRAMMAR = Grammar(adjectives=0.3, places=0.3, clauses=0.0, depth=0)
TRAINED_ON, BATCH, STEPS, RATE = 20_000, 128, 1000, 2e-3


@dataclass(frozen=True)
class Sentences:
    """Sentences as ids, with the place in each of its verb, its first place in a text, and who did it."""

    ids_NT: Int[Tensor, "N T"]
    verb_N: Int[Tensor, " N"]
    start_N: Int[Tensor, " N"]
    agent_N: Int[Tensor, " N"]

    def __getitem__(self, rows: Int[Tensor, " n"]) -> Sentences:
        """Return some of the sentences."""
        return Sentences(self.ids_NT[rows], self.verb_N[rows], self.start_N[rows], self.agent_N[rows])


def encode(sentences: Sequence[RoleSentence], starts: Sequence[int] | None = None) -> Sentences:
    """Return sentences without clauses as ids, padded; each begins at its place in ``starts``, or at 0."""
    rows = [sentence.to_pair().source.split() for sentence in sentences]
    return Sentences(
        torch.tensor([[IDS[word] for word in row] + [0] * (LONGEST - len(row)) for row in rows]),
        torch.tensor([row.index(sentence.verb) for row, sentence in zip(rows, sentences, strict=True)]),
        torch.tensor([0] * len(rows) if starts is None else list(starts)),
        torch.tensor([IDS[sentence.agent.head] for sentence in sentences]),
    )


def draw(count: int, seed: str, *, moved: bool) -> Sentences:
    """Draw sentences, each beside its twin of swapped roles; ``moved``: each begins at a random place of a text."""
    rng = random.Random(seed)
    drawn = [GRAMMAR.draw(rng) for _ in range(count // 2)]
    starts = [rng.randrange(FURTHEST) if moved else 0 for _ in drawn]
    twins = [twin for sentence in drawn for twin in (sentence, sentence.swapped)]
    return encode(twins, [start for start in starts for _ in range(2)])


class Reader(nn.Module):
    """One attention head whose query is the verb and whose values are words; it names a word.

    ``parts``: those of the score that it has. ``rows_PD``: what its places have, the sinusoid's rows if not given.
    """

    rows_PD: Tensor

    def __init__(self, parts: Collection[str], rows_PD: Tensor | None = None) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.words = nn.Embedding(len(VOCABULARY), WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.name = nn.Linear(WIDTH, len(VOCABULARY))
        self.register_buffer("rows_PD", make_rows(WIDTH, LONGEST + FURTHEST).float() if rows_PD is None else rows_PD)

    def score(self, sentences: Sentences) -> dict[str, Float[Tensor, "N T"]]:
        """Return each of the four parts of the score of the verb with every word, whether this reader has it or not."""
        words_NTD = self.words(sentences.ids_NT)
        places_NTD = self.rows_PD[sentences.start_N[:, None] + torch.arange(LONGEST)]
        verb = torch.arange(len(words_NTD)), sentences.verb_N
        queries = [self.query(rows[verb]) for rows in (words_NTD, places_NTD)]
        keys = [self.key(rows) for rows in (words_NTD, places_NTD)]
        terms = [(key @ query[:, :, None])[..., 0] / WIDTH**0.5 for query in queries for key in keys]
        return dict(zip(PARTS, terms, strict=True))

    def forward(self, sentences: Sentences) -> Float[Tensor, "N V"]:
        """Return for every word the logit of being who did it."""
        terms = self.score(sentences)
        scores_NT = torch.stack([terms[part] for part in self.parts]).sum(0)
        weights_NT = scores_NT.masked_fill(sentences.ids_NT == 0, float("-inf")).softmax(-1)
        return self.name((weights_NT[:, None] @ self.value(self.words(sentences.ids_NT)))[:, 0])


def train_reader(
    parts: Collection[str],
    seed: int,
    *,
    moved: bool = False,
    steps: int = STEPS,
    count: int = TRAINED_ON,
    rows_PD: Tensor | None = None,
) -> Reader:
    """Return a reader trained on ``count`` sentences at the start of a text, or ``moved`` to a random place of it."""
    torch.manual_seed(seed)
    reader, drawn = Reader(parts, rows_PD), draw(count, f"parts:{seed}", moved=moved)
    optimizer = torch.optim.Adam(reader.parameters(), lr=RATE)
    for _ in range(steps):
        batch = drawn[torch.randint(count, (BATCH,))]
        loss = F.cross_entropy(reader(batch), batch.agent_N)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return reader.eval()


@torch.no_grad()
def measure_right(reader: Reader, *, moved: bool = False, count: int = 2000) -> float:
    """Return the percentage of new sentences of which the reader names who did it; guessing between two gives 50."""
    sentences = draw(count, "parts:test", moved=moved)
    return 100 * float((reader(sentences).argmax(-1) == sentences.agent_N).float().mean())
