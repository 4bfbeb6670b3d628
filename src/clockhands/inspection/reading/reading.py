"""What the measures share of one model: hidden states, split logits and statistics of its heads, computed once.

Which tokens influence which others is found by changing one token: the states that change with it are influenced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import torch

from clockhands.findings import Finding
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.head_statistics import MAX_OFFSET, HeadStatistics, HeadSums, Sink, find_sinks
from clockhands.inspection.reading.interventions import Interventions, intervene
from clockhands.inspection.reading.logit_split import LogitSplit, split_logits
from clockhands.inspection.reading.sentences import Sentence
from clockhands.inspection.reading.windows import Windows
from clockhands.models.input_table import Forward
from clockhands.models.subject import Subject
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Bool, Float, Int, Tensor

Measured = TypeVar("Measured")
MOST_TEXTS = 4
"""Texts in which tokens are changed."""
LEAST_DIFFERENCE = 1e-6
"""Differences above this share of the size of a state are changes. A masked token changes nothing at all."""


@dataclass(frozen=True)
class Influence:
    """Where the tokens stand that influence a token's last state, through all layers together.

    ``before``: whether some token before it influences it; ``after``: whether some token after it does; ``complete``:
    whether all tokens on these sides do.
    """

    before: bool
    after: bool
    complete: bool

    @property
    def causal(self) -> bool:
        """Whether tokens are influenced by others before them, and by none after them."""
        return self.before and not self.after

    @property
    def sentence(self) -> str:
        """Which tokens influence each token, in a few words, in which a token sees those that influence it."""
        if not self.before and not self.after:
            return "no token sees another one"
        if self.before and self.after:
            return "every token sees all others" if self.complete else "tokens see some of those before and after them"
        side = "before" if self.before else "after"
        return f"each token sees {'those' if self.complete else 'some of those'} {side} it"


@torch.no_grad()
def _find_influence(
    forward: Forward,
    ids_NT: Int[Tensor, "N T"],
    ordinary_T: Bool[Tensor, " T"] | None = None,
    source_NS: Int[Tensor, "N S"] | None = None,
    vocabulary_size: int | None = None,
) -> Influence:
    """Change the first, the middle and the last ordinary token of a few texts, and see which last states change.

    ``forward`` returns the hidden states of token ids (``Subject.forward``), and reads ``source_NS`` as ``source_BS``.
    A token is replaced by the next larger id that occurs in the texts, the largest by the smallest; in texts that
    consist of one id alone, by an id beside it. Of a model that knows one id (``vocabulary_size``) nothing can be told:
    no token is then said to see another.
    """
    ids, vocabulary = ids_NT[:MOST_TEXTS], ids_NT.unique()
    if len(vocabulary) == 1 and vocabulary_size != 1:
        vocabulary = torch.cat([vocabulary - 1, vocabulary]) if int(vocabulary) else torch.tensor([0, 1])
    source = {} if source_NS is None else {"source_BS": source_NS[: len(ids)]}
    ordinary = torch.ones(ids.shape[1], dtype=torch.bool) if ordinary_T is None else ordinary_T
    positions = ordinary.nonzero().flatten().tolist()
    original = forward(ids, **source)[-1].float()
    size = float(original.square().mean().sqrt())
    # States at later positions than the changed token's have it before them, those at earlier positions after them.
    by_token_before, by_token_after = [], []
    for position in sorted({positions[0], positions[len(positions) // 2], positions[-1]}):
        changed_ids = ids.clone()
        next_larger = torch.searchsorted(vocabulary, ids[:, position].contiguous()) + 1
        changed_ids[:, position] = vocabulary[next_larger % len(vocabulary)]
        difference_T = (forward(changed_ids, **source)[-1].float() - original).abs().amax((0, 2))
        changes = difference_T > LEAST_DIFFERENCE * size
        by_token_before.append(changes[position + 1 :].cpu())
        by_token_after.append(changes[:position].cpu())
    before, after = torch.cat(by_token_before), torch.cat(by_token_after)
    sides = [side for side in (before, after) if bool(side.any())]
    return Influence(bool(before.any()), bool(after.any()), all(bool(side.all()) for side in sides))


@dataclass
class Reading:
    """One model, read on windows of text.

    ``logit_splits`` and ``head_statistics`` hold one entry for each attention layer. ``control`` is the same class with
    fresh weights, read on the first of the same windows; None if it was not built. ``texts`` are the strings that a
    caller gave, None for token ids and for text that was chosen; ``origin`` says in a few words where the text is from.
    ``sentences`` are those that a caller asked about.
    ``findings`` are those of the measures that ran before, by name.
    """

    subject: Subject
    capture: Capture
    logit_splits: list[LogitSplit] = field(default_factory=list)
    head_statistics: list[HeadStatistics] = field(default_factory=list)
    control: Reading | None = None
    texts: Sequence[str] | None = None
    origin: str = ""
    sentences: Sequence[Sentence] = ()
    findings: dict[str, Finding] = field(default_factory=dict)

    @classmethod
    def without_text(cls, subject: Subject) -> Reading:
        """Return a reading for measures of the tables at the input, which need no text and no run of the model."""
        return cls(subject, Capture(torch.zeros(0, 1, dtype=torch.long), [], [], torch.ones(1, dtype=torch.bool)))

    @property
    def text_sentence(self) -> str:
        """What was read, in a few words: how many windows of which text."""
        return f"{self.capture.num_texts:,} windows of {self.capture.length:,} tokens{self.origin}"

    @property
    def windows(self) -> Windows:
        """The windows of text that were read."""
        return Windows(self.capture.ids_NT, self.capture.ordinary_T, self.capture.source_NS)

    def with_control(self, measure: Callable[[Reading], Measured]) -> tuple[Measured, Measured | None]:
        """Return what ``measure`` gives of the model, and of its untrained control; None where there is none."""
        return measure(self), None if self.control is None else measure(self.control)

    @cached_property
    def influence(self) -> Influence:
        """Which tokens influence which others."""
        recorded, subject = self.capture, self.subject
        return _find_influence(
            subject.forward, recorded.ids_NT, recorded.ordinary_T, recorded.source_NS, subject.vocabulary_size
        )

    @property
    def reads_left_to_right(self) -> bool:
        """Whether no token is influenced by a later one: where none is by any other, whether masks hide later ones."""
        if self.influence.before or self.influence.after:
            return self.influence.causal
        later = [layer.uniform_by_offset_J[MAX_OFFSET + 1 :] for layer in self.head_statistics]
        return bool(later) and not any(bool(attention.any()) for attention in later)

    @cached_property
    def sinks(self) -> dict[tuple[int, int], Sink]:
        """The heads that look at one position, by the indices of layer and head, and what each follows."""
        return find_sinks(self.subject, self.capture, self.head_statistics)

    def count_by_position(self, shares_LH: Float[Tensor, "L H"], least: float, *, undecided: bool = False) -> int:
        """Count the heads whose share is ``least`` or more, but for those that follow a token at one position.

        ``undecided``: whether those count of which it is undecided what they follow.
        """
        counted = shares_LH >= least
        for (layer, head), sink in self.sinks.items():
            if sink.follows != "position" and not (undecided and sink.follows == "undecided"):
                counted[layer, head] = False
        return int(counted.sum())

    @cached_property
    def interventions(self) -> Interventions:
        """What the output does when positions, or the order of the tokens, are changed."""
        return intervene(self.subject, self.capture)


def read_model(subject: Subject, windows: Windows, progress: CountProgress = ignore_count) -> Reading:
    """Run a model over windows, split the logits of every layer and count what its heads attend to."""
    count = len(windows.ids_NT)
    recorded = capture(
        subject.model,
        subject.forward,
        windows.ids_NT,
        ordinary_T=windows.ordinary_T,
        source_NS=windows.source_NS,
        progress=lambda done: progress(f"reading {subject.name}", done, count),
    )
    reading = Reading(subject, recorded)
    for layer in recorded.layers:
        progress(f"splitting the logits of {subject.name}", layer.index, len(recorded.layers))
        sums = HeadSums(windows.ordinary_T)
        reading.logit_splits.append(split_logits(layer, windows.ordinary_T, sums.add))
        reading.head_statistics.append(sums.summarise())
    return reading
