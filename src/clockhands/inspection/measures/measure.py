"""The base class of the measures: one question about position, with what answers it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from clockhands.findings import Finding, Number, Reference, join_words
from clockhands.inspection.reading.reading import Reading

SENTENCES_HEADING, TEXT_HEADING, INPUT_HEADING, ATTENTION_HEADING, LAYERS_HEADING, OUTPUT_HEADING = (
    "Your sentences",
    "The text",
    "At the input",
    "What attention is made of",
    "Through the layers",
    "What comes of it",
)
"""Headings of the page, in their order; each measure stands under one of them (``Measure.heading``)."""
WINDOWS = ("text", "tokenizer", "length of the windows")
"""What a value depends on, besides the model, if it is computed from the tokens of the text and from the positions at
which they stand. Two findings are comparable where what they depend on is equal; ``comparability`` says how each is
compared."""
MASKED_WINDOWS = (*WINDOWS, "what attention may see")
"""What a value depends on if it also depends on the attention mask."""
TASK = (*MASKED_WINDOWS, "task")
"""What a value depends on if it also depends on the kind of stack: language model, encoder, or a side of an
encoder-decoder. (Saved findings call that the task.)"""


class Measure(ABC):
    """One question about position. A subclass answers it in ``run``, from everything that was read of a model.

    Attributes:
        name: stable identifier of its finding, such as ``logits.layers``.
        question: its title on the page, in a person's words.
        references: what its value is compared with, each by its name (``untrained``, ``chance``).
        method: how it is measured, in a few sentences, with what its interval means.
        source: paper and equation.
        heading: the part of the page in which it stands.
        rests_on: what its value depends on besides the model, such as ``WINDOWS``: some of the keys of
            ``Finding.basis``.
        by_hand: files of ``tests/inspection/by_hand`` that compute its figures again, in a few lines of plain PyTorch.
        reads_attention: whether it needs the attention layers; it is left out, with the reason, where none can be read.
        makes_texts: whether it measures on texts that it makes itself.
    """

    name: ClassVar[str]
    question: ClassVar[str]
    references: ClassVar[tuple[str, ...]]
    method: ClassVar[str]
    source: ClassVar[str]
    heading: ClassVar[str]
    rests_on: ClassVar[tuple[str, ...]] = ()
    by_hand: ClassVar[tuple[str, ...]] = ()
    reads_attention: ClassVar[bool] = False
    makes_texts: ClassVar[bool] = False

    @abstractmethod
    def run(self, reading: Reading) -> Finding:
        """Measure the model of a reading, and its untrained control where there is one."""

    def answer(self, reading: Reading) -> Iterable[Finding]:
        """Yield the finding of this measure; none where the question does not arise for such a model."""
        if self.heading == SENTENCES_HEADING and not reading.sentences:
            return
        if self.reads_attention and not reading.capture.layers:
            yield self.skip(f"Not measured: {reading.capture.unread_reason or 'no self-attention was seen'}.")
            return
        finding, capture = self.run(reading), reading.capture
        if finding.light == "skip":
            yield finding
            return
        note, layers, blocks = "", len(capture.layers), len(capture.hidden) - 1
        if self.reads_attention and layers < blocks:
            reason = f" ({capture.unread_reason})" if capture.unread_reason else ""
            note = f" Layers are numbered here among the {layers} of {blocks} blocks whose attention could be read"
            note += f"{reason}."
        measures_windows = self.heading in (ATTENTION_HEADING, LAYERS_HEADING) and not self.makes_texts
        if measures_windows and bool((capture.ids_NT == capture.ids_NT[:1]).all()):
            note += " All windows have the same tokens: what tokens do cannot be told here from what positions do."
            finding = replace(finding, light="info" if finding.light == "good" else finding.light)
        yield replace(finding, verdict=finding.verdict + note)

    def make_finding(
        self, verdict: str, value: Number | None, *, untrained: Number | None = None, **fields: Any
    ) -> Finding:
        """Return a finding with this measure's name; question, method and source too, unless ``fields`` hold others.

        ``untrained`` is the value of the untrained control, which becomes the last reference; None without a control.
        """
        declared = {"question": self.question, "method": self.method, "source": self.source}
        if untrained is not None:
            fields["references"] = (*fields.get("references", ()), Reference("untrained", untrained))
        files = join_words(f"tests/inspection/by_hand/{name}.py" for name in self.by_hand)
        details = {**fields.pop("details", {}), **({"by hand": files} if files else {})}
        return Finding(name=self.name, verdict=verdict, value=value, details=details, **{**declared, **fields})

    def skip(self, reason: str) -> Finding:
        """Return the finding of a measure that does not apply to this model; the verdict is the reason."""
        return Finding(name=self.name, question=self.question, verdict=reason, light="skip")
