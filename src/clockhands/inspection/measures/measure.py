"""The shape of a measure: one question about position, what its answer is compared with, and how it is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from clockhands.findings import Finding, Number
from clockhands.inspection.reading.reading import Reading

INPUT, ATTENTION, LAYERS, OUTPUT = (
    "At the input",
    "What attention is made of",
    "Through the layers",
    "What comes of it",
)
"""Headings of the page, under which the measures stand."""
TEXT = ("text", "tokenizer")
WINDOWS = (*TEXT, "length of the windows")
SIGHT = (*WINDOWS, "what attention may see")
TASK = (*SIGHT, "task")
"""What numbers can rest on besides the model; two findings are comparable where that is alike (``comparability``)."""


class Measure(ABC):
    """One question about position. A subclass answers it in ``run``, from everything that was read of a model.

    Attributes:
        name: stable identifier of its finding, such as ``logits.layers``.
        question: heading on the page, in a person's words.
        references: what its value is compared with, each by its name (``untrained``, ``chance``).
        method: how it is measured, in a few sentences, with what its interval means.
        source: paper and equation.
        group: heading of the page under which it stands.
        rests_on: what its value depends on besides the model: some of ``comparability.read_basis``'s keys.
        reads_attention: whether it needs the attention layers; it is left out, with the reason, where none can be read.
    """

    name: ClassVar[str]
    question: ClassVar[str]
    references: ClassVar[tuple[str, ...]]
    method: ClassVar[str]
    source: ClassVar[str]
    group: ClassVar[str]
    rests_on: ClassVar[tuple[str, ...]] = ()
    reads_attention: ClassVar[bool] = False

    @abstractmethod
    def run(self, reading: Reading) -> Finding:
        """Measure one model that was read, and its control where there is one."""

    def answer(self, reading: Reading) -> Iterable[Finding]:
        """Yield the finding of this measure; none where the question does not arise for such a model."""
        if self.reads_attention and not reading.capture.layers:
            yield self.skip(f"Not measured: {reading.capture.unread_reason}.")
        else:
            finding = self.run(reading)
            left_out = _explain_numbers(reading) if self.reads_attention and finding.light != "skip" else ""
            yield replace(finding, verdict=finding.verdict + left_out)

    def finding(self, verdict: str, value: Number | None, **rest: Any) -> Finding:
        """Return a finding with this measure's name, question, method and source; ``rest`` are its other fields."""
        known = {"question": self.question, "method": self.method, "source": self.source}
        return Finding(name=self.name, verdict=verdict, value=value, **{**known, **rest})

    def skip(self, why: str) -> Finding:
        """Return the finding of a measure that does not apply, with the reason."""
        return Finding(name=self.name, question=self.question, verdict=why, light="skip")


def _explain_numbers(reading: Reading) -> str:
    """Say how layers are numbered where the attention of some blocks could not be read; empty where all could."""
    layers, blocks = len(reading.capture.layers), len(reading.capture.hidden) - 1
    if layers >= blocks:
        return ""
    why = f" ({reading.capture.unread_reason})" if reading.capture.unread_reason else ""
    return f" Layers are numbered here among the {layers} of {blocks} blocks whose attention could be read{why}."
