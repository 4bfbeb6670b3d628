"""What does swapping two words of your sentence change? The output for every pair of its words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TypeAlias

import torch

from clockhands.findings import SHARE, Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import make_heatmap
from clockhands.inspection.measures.measure import MASKED_WINDOWS, SENTENCES_HEADING, Measure
from clockhands.inspection.measures.swapped_words import compute_mean_state
from clockhands.inspection.number_format import format_percent
from clockhands.inspection.reading.interventions import LEAST_CHANGE, measure_squared_distance
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.sentences import (
    Sentence,
    list_words,
    make_comparison_rows,
    swap_words,
)
from clockhands.inspection.reading.token_ids import encode_text
from clockhands.models.subject import Subject
from clockhands.shapes import Tensor

MOST_WORDS = 12
"""Words of a sentence of which every pair is swapped; later words are left as they are."""
MOST_OTHERS = 24
"""Other texts whose distance from each other is the measure of a change."""

Changes: TypeAlias = dict[tuple[int, int], float]
"""How far swapping two words of a sentence moves the output, by the indices of the words."""


class SentenceSwap(Measure):
    """Every two words of a sentence swapped, and how far that moves the output."""

    name = "sentence.swap"
    question = "What does swapping two words of your sentence change?"
    references = ("order ignored", "another text")
    method = (
        f"Every two different words among the first {MOST_WORDS} of the sentence are swapped, one pair at a time. "
        "Squared change of the mean of the last hidden states (special tokens left out) over the mean squared "
        "distance of two other texts cut to the length of the sentence: 1 is as different as another text. A model "
        "that ignores order gives exactly 0. For a decoder the source stays as it was. The value is the largest "
        "change over all pairs and sentences; one sentence is measured whole and has no interval."
    )
    source = "the question is Vaswani et al.'s own reason for positions (2017, section 3.5)"
    heading = SENTENCES_HEADING
    rests_on = MASKED_WINDOWS

    def answer(self, reading: Reading) -> Iterable[Finding]:
        """Yield the finding where sentences were asked about."""
        return super().answer(reading) if reading.sentences else ()

    def run(self, reading: Reading) -> Finding:
        """Run the model on every version of every sentence; the value is the largest change."""
        measured = [(sentence, _measure(reading, sentence)) for sentence in reading.sentences]
        changes = [(sentence, pairs) for sentence, pairs in measured if not isinstance(pairs, str)]
        if not changes:
            return self.skip("\n".join(_describe(*pair) for pair in measured))
        value = max(change for _, pairs in changes for change in pairs.values())
        return self.make_finding(
            "\n".join(_describe(*pair) for pair in measured),
            value,
            unit=SHARE,
            references=(Reference("order ignored", 0.0), Reference("another text", 1.0)),
            light="good" if value > LEAST_CHANGE else "bad",
            table=Table.of(
                ("sentence", "swapped", "change"),
                [(s.text, swap_words(s.text, *pair), change) for s, pairs in changes for pair, change in pairs.items()],
            ),
            figure=_draw_figure(changes),
        )


def _measure(reading: Reading, sentence: Sentence) -> Changes | str:
    """Return the changes, or the reason why there is none.

    Pairs whose swap makes the sentence longer than the model reads are left out.
    """
    subject = reading.subject
    pairs = _list_pairs(sentence)
    if not pairs:
        return "not measured: it has no two different words"
    rows_NT, source_NS = make_comparison_rows(sentence, reading.windows, MOST_OTHERS)
    others_ND = torch.stack(
        [
            compute_mean_state(subject, row.tolist(), None if source_NS is None else _unpad(source_NS[index]))
            for index, row in enumerate(rows_NT)
            if index > 1
        ]
    )
    distance = measure_squared_distance(others_ND)
    if distance == 0.0:
        return "not measured: all other texts have the same mean output, so there is no distance to measure by"
    before_D = compute_mean_state(subject, sentence.ids, sentence.source)
    changes = {pair: _measure_change(subject, sentence, pair, before_D) for pair in pairs}
    fitting = {pair: change / distance for pair, change in changes.items() if change is not None}
    return fitting or "not measured: every swap makes it longer than the model reads"


def _list_pairs(sentence: Sentence) -> list[tuple[int, int]]:
    """Return the indices of every two different words among the first ``MOST_WORDS`` of a sentence."""
    words = list_words(sentence.text)[:MOST_WORDS]
    return [(i, j) for i, j in combinations(range(len(words)), 2) if words[i] != words[j]]


def _measure_change(subject: Subject, sentence: Sentence, pair: tuple[int, int], before_D: Tensor) -> float | None:
    """Return the squared change of the mean state when two words are swapped: 0 where the token ids stay the same.

    It is None where the swapped text has more tokens than the model reads, so that nothing can be measured.
    """
    ids, _ = encode_text(subject, swap_words(sentence.text, *pair))
    if subject.max_length is not None and len(ids) > subject.max_length:
        return None
    if ids == sentence.ids:
        return 0.0
    return float((compute_mean_state(subject, ids, sentence.source or sentence.ids) - before_D).square().sum())


def _unpad(source_S: Tensor) -> list[int]:
    """Return the ids of a source without its padding."""
    return list(source_S[source_S >= 0].tolist())


def _describe(sentence: Sentence, changes: Changes | str) -> str:
    """Say which of the measured swaps changes the output most and which least, and what was not measured."""
    if isinstance(changes, str):
        return f"“{sentence.text}”: {changes}."
    words = list_words(sentence.text)
    left_out = len(_list_pairs(sentence)) - len(changes)
    swaps = "one swap that makes" if left_out == 1 else f"{left_out} swaps that make"
    note = f" Not measured: {swaps} it longer than the model reads." if left_out else ""
    if len(words) > MOST_WORDS:
        note += f" Words after the first {MOST_WORDS} were left where they are."
    most, least = max(changes, key=lambda pair: changes[pair]), min(changes, key=lambda pair: changes[pair])
    if changes[most] <= LEAST_CHANGE:
        return f"“{sentence.text}”: swapping two words does not change the mean of the output.{note}"

    def name(pair: tuple[int, int]) -> str:
        return f"“{words[pair[0]]}” and “{words[pair[1]]}”"

    clause = (
        f"“{sentence.text}”: swapping {name(most)} changes the mean of the output by {format_percent(changes[most])} "
        "of the squared distance between two other texts"
    )
    if most == least:
        return f"{clause}.{note}"
    pairs = "the measured pairs" if note else "all pairs"
    return (
        f"{clause}, the most of {pairs}; swapping {name(least)} changes it least ({format_percent(changes[least])})."
        f"{note}"
    )


def _draw_figure(changes_by_sentence: Sequence[tuple[Sentence, Changes]]) -> Figure:
    """Draw the changes of all pairs of words as one map a sentence."""
    panels = []
    for sentence, changes in changes_by_sentence:
        words = list_words(sentence.text)[:MOST_WORDS]
        names = [f"{index} {word}" for index, word in enumerate(words, 1)]
        z = [[changes.get((min(i, j), max(i, j))) for j in range(len(words))] for i in range(len(words))]
        marks = (make_heatmap(z, x=tuple(names), y=tuple(names), label="share by which the output changes"),)
        panels.append(Panel(marks, title=f"“{sentence.text}”", xlabel="word", ylabel="swapped with"))
    return Figure(
        tuple(panels),
        caption="100 % is the mean squared distance between two other texts of that length.",
        height=0.5,
        title="How much swapping two words changes the output",
    )
