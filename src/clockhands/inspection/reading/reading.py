"""What the measures share of one model: hidden states, split logits and statistics of its heads, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from clockhands.findings import Finding
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.head_statistics import HeadStatistics, HeadSums, Sink, find_sinks
from clockhands.inspection.reading.interventions import Interventions, intervene
from clockhands.inspection.reading.logit_split import LogitSplit, split_logits
from clockhands.inspection.reading.sentences import Sentence
from clockhands.inspection.reading.windows import Windows
from clockhands.models.influence import Influence, find_influence
from clockhands.models.subject import Subject
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float, Tensor


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

    @cached_property
    def influence(self) -> Influence:
        """Which tokens influence which others."""
        recorded, subject = self.capture, self.subject
        return find_influence(
            subject.forward, recorded.ids_NT, recorded.ordinary_T, recorded.source_NS, subject.vocabulary_size
        )

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
