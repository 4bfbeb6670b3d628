"""Does swapping two words change the output? Short sentences before and after two of their words are swapped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import torch

from clockhands.findings import SHARE, Finding, Reference, Table
from clockhands.inspection.measures.measure import OUTPUT_HEADING, TASK, Measure
from clockhands.inspection.measures.order import bootstrap_change
from clockhands.inspection.number_format import format_estimate
from clockhands.inspection.reading.capture import BATCH
from clockhands.inspection.reading.interventions import LEAST_CHANGE, divide_by_distance, measure_squared_distance
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.sentences import (
    MOST_LOOKED_AT,
    MOST_WORDS,
    Swap,
    make_english_swaps,
    make_text_swaps,
)
from clockhands.models.subject import Subject
from clockhands.pretrained import encode_bare, find_special_tokens
from clockhands.shapes import Float, Tensor

MOST_SENTENCES, FEWEST_SENTENCES = 24, 6
"""The most sentences that are taken from a given text or the training text, and the fewest that are needed."""
MOST_UNKNOWN = 0.2
"""The part of tokens that a tokenizer may not know; beyond it, English sentences say nothing."""


class SwappedWords(Measure):
    """Two words swapped in sentences of a given text, else of the training text, else in built-in English ones."""

    name = "cause.swap"
    question = "Does swapping two words change the output?"
    references = ("order ignored", "another sentence")
    method = (
        "Short sentences against the same with two words swapped: built-in English ones such as 'Tom bit a dog', or, "
        "where a text was given or the training text is known, sentences of that text, in which the two longest words"
        " are swapped (in those of fewer than four words the first and the last token). Squared change of the mean of "
        "the last "
        "hidden states (special tokens left out) over the mean squared distance of two of the sentences: 1 is as "
        "different as another sentence. A model that ignores order gives exactly 0. For a decoder the source "
        "stays as it was. Interval: sentences resampled, the distance kept fixed."
    )
    source = "the question is Vaswani et al.'s own reason for positions (2017, section 3.5)"
    heading = OUTPUT_HEADING
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        """Run the model on both versions of every sentence; the value is the change of the mean of the output."""
        subject = reading.subject
        if subject.tokenizer is None:
            return self.skip("Without a tokenizer there are no sentences to swap words in.")
        own = make_text_swaps(subject, reading.texts)
        swaps = list(make_english_swaps(subject)) if own is None else list(islice(own, MOST_SENTENCES))
        reason = _find_fault(subject, swaps, is_english=own is None)
        if reason:
            return self.skip(reason)
        sentences = "sentences of the given text"
        if reading.texts is None:
            sentences = "English sentences" if own is None else "sentences of its training text"
        before_ND = compute_mean_states(subject, [(swap.before, swap.source) for swap in swaps])
        after_ND = compute_mean_states(subject, [(swap.after, swap.source or swap.before) for swap in swaps])
        distance = measure_squared_distance(before_ND)
        if distance == 0.0:
            return self.skip("All sentences have the same output, so there is no distance to measure by.")
        change_N = divide_by_distance((after_ND - before_ND).square().sum(-1), distance)
        value, interval = float(change_N.mean()), bootstrap_change(change_N)
        share, numbers = format_estimate(value, *interval)
        changes, of_tokens, units = value > LEAST_CHANGE, sum(swap.unit == "token" for swap in swaps), "two words"
        if of_tokens:
            units = f"two words (in {of_tokens} of them the first and the last token)"
        if of_tokens == len(swaps):
            units = "the first and the last token"
        verdict = (
            f"In {len(swaps)} {sentences}, swapping {units} changes the mean of the output by {share} of the squared "
            f"distance between two sentences ({numbers}; 0 for a model that ignores order)."
        )
        return self.make_finding(
            verdict if changes else f"Swapping {units} does not change the mean of the output.",
            value,
            unit=SHARE,
            interval=interval,
            references=(Reference("order ignored", 0.0), Reference("another sentence", 1.0)),
            light="good" if changes else "bad",
            table=Table.of(
                ("sentence", "swapped", "change"),
                [(swap.text, swap.swapped, change) for swap, change in zip(swaps, change_N, strict=True)],
            ),
        )


def _find_fault(subject: Subject, swaps: list[Swap], *, is_english: bool) -> str:
    """Say why these sentences cannot be measured; empty where they can."""
    known = [token for swap in swaps for token in encode_bare(subject.tokenizer, swap.text)]
    unknown_id = getattr(subject.tokenizer, "unk_token_id", None)
    unknown = sum(token == unknown_id for token in known)
    # A tokenizer that makes no token at all of them knows them no better.
    if is_english and swaps and (not known or unknown > MOST_UNKNOWN * len(known)):
        return (
            "Its tokenizer does not know the words of the built-in English sentences; give a text of its own "
            "(--text, texts=...)."
        )
    largest = max((token for swap in swaps for token in (*swap.before, *swap.after)), default=-1)
    if subject.vocabulary_size is not None and largest >= subject.vocabulary_size:
        return (
            f"Its tokenizer gives the id {largest} in such sentences, and the model has {subject.vocabulary_size} rows "
            "of tokens: the tokenizer belongs to another model."
        )
    if len(swaps) < FEWEST_SENTENCES:
        lines = f"lines of at most {MOST_WORDS} words, among the first {MOST_LOOKED_AT:,} of the text,"
        sentences = "built-in English sentences" if is_english else lines
        return (
            f"At least {FEWEST_SENTENCES} {sentences} are needed in which two words can be swapped and that are not "
            f"longer than the model reads; there are {len(swaps)}."
        )
    return ""


def compute_mean_states(
    subject: Subject, texts: Sequence[tuple[Sequence[int], Sequence[int] | None]]
) -> Float[Tensor, "N D"]:
    """Return the mean last state of the tokens between the special ones that the tokenizer puts around each text.

    With its token ids a text has those that the encoder reads for a decoder, by default (None) the same ones; other
    models read none. Texts of one length are run at once.
    """
    before, after = find_special_tokens(subject.tokenizer, subject.start_token)
    groups: dict[tuple[int, int], list[int]] = {}
    for index, (ids, source) in enumerate(texts):
        groups.setdefault((len(ids), -1 if source is None else len(source)), []).append(index)
    means: dict[int, Tensor] = {}
    for (length, source_length), indices in groups.items():
        for some in torch.tensor(indices).split(BATCH):
            options = {}
            if subject.reads_source and source_length >= 0:
                options["source_BS"] = torch.tensor([texts[index][1] for index in some.tolist()])
            states_BTD = subject.forward(torch.tensor([texts[index][0] for index in some.tolist()]), **options)[-1]
            mean_BD = states_BTD[:, len(before) : length - len(after)].mean(1).float().cpu()
            means.update(zip(some.tolist(), mean_BD, strict=True))
    return torch.stack([means[index] for index in range(len(texts))])
