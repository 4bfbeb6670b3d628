"""How does it attend in your sentence, and what does swapping two of its words change?

In names of tensors ``t`` are ``SENTENCE_TERMS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice
from typing import TypeAlias

import torch

from clockhands.findings import SHARE, Figure, Finding, Panel, Reference, Table, draw_heatmap, make_mark, put_together
from clockhands.inspection.estimators.intervals import compute_central_range
from clockhands.inspection.measures.measure import MASKED_WINDOWS, OUTPUT_HEADING, SENTENCES_HEADING, TASK, Measure
from clockhands.inspection.measures.order import bootstrap_change
from clockhands.inspection.number_format import format_estimate, format_percent, format_percent_range
from clockhands.inspection.reading.capture import BATCH
from clockhands.inspection.reading.interventions import LEAST_CHANGE, divide_by_distance, measure_squared_distance
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.sentences import (
    MOST_LOOKED_AT,
    MOST_WORDS,
    POSITION_ALONE,
    SENTENCE_TERMS,
    TOKENS_ALONE,
    Sentence,
    SentenceLayer,
    Swap,
    list_words,
    make_comparison_rows,
    make_english_swaps,
    make_text_swaps,
    split_sentence,
    swap_words,
)
from clockhands.inspection.reading.windows import encode_text
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
        "where a text was given or the training text is known, sentences of that text, in which the two longest words "
        "are swapped (in those of fewer than four words the first and the last token). Squared change of the mean of "
        "the last hidden states (special tokens left out) over the mean squared distance of two of the sentences: 1 is "
        "as different as another sentence. A model that ignores order gives exactly 0. For a decoder the source stays "
        "as it was. Interval: sentences resampled, the distance kept fixed."
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


MOST_DRAWN = 40_000
"""Values of attention in one panel; where all heads have more, every second layer is drawn, or fewer."""
LEAST_TOLD = 0.0005
"""A share of tokens and distances together that is smaller than this is not told."""


class SentenceAttention(Measure):
    """The attention of every head in the sentences that a reader asked about, and what its logits are made of."""

    name = "sentence"
    question = "How does it attend in your sentence?"
    references = ("other texts",)
    method = (
        "The sentence is read beside other texts cut to its length. The input of every attention layer is the mean of "
        "those texts at each position (position) and what the sentence adds to it (token); queries and keys are split "
        "accordingly, and the logits become four terms, token or position of the query with token or position of the "
        "key, exactly; where layers add what a token and a distance give together, that is a fifth. What a layer adds "
        "by distance (a bias) and what a rotation does to the means belong to position alone. Terms are centred over "
        "the keys of each query, for softmax cannot see more. The value is the share of position alone in the variance "
        "of the logits at ordinary tokens, the heads of a layer pooled, the mean over layers; with several sentences, "
        "their mean. Other texts: the same share in each of them, with the range of the middle 95 %. One sentence is "
        "measured whole and has no interval."
    )
    source = "Ke et al. 2021 (TUPE), eq. 6; made exact by replay"
    heading = SENTENCES_HEADING
    rests_on = MASKED_WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Measure every sentence; the value is the share of position alone."""
        layers_by_sentence = [
            split_sentence(reading.subject, sentence, reading.windows) for sentence in reading.sentences
        ]
        values = [_pool(layers)[POSITION_ALONE] for layers in layers_by_sentence]
        others_by_sentence = [
            torch.stack([layer.positional_N for layer in layers]).mean(0) for layers in layers_by_sentence
        ]
        other_texts = float(torch.stack([others_N.mean() for others_N in others_by_sentence]).mean())
        sentences = [
            _describe(sentence, layers) for sentence, layers in zip(reading.sentences, layers_by_sentence, strict=True)
        ]
        low, high = compute_central_range(torch.cat(others_by_sentence))
        return self.make_finding(
            "\n".join(sentences)
            + f"\nIn other texts, cut to the same length, positions alone account for {format_percent(other_texts)} "
            f"(the middle 95 % of them: {format_percent_range(low, high)}).",
            float(sum(values) / len(values)),
            unit=SHARE,
            references=(Reference("other texts", other_texts, (low, high)),),
            # The fifth share is zero unless layers add tokens × distance.
            table=Table.of(
                ("sentence", "layer", "head", *SENTENCE_TERMS),
                [
                    (sentence.text, index + 1, head, *row)
                    for sentence, layers in zip(reading.sentences, layers_by_sentence, strict=True)
                    for index, layer in enumerate(layers)
                    for head, row in enumerate(layer.shares_Ht, 1)
                ],
            ),
            figure=_draw_figure(reading.sentences, layers_by_sentence),
        )


def _pool(layers: Sequence[SentenceLayer]) -> list[float]:
    """Return the shares of ``SENTENCE_TERMS`` in a sentence, the mean over layers."""
    return torch.stack([layer.pooled_t for layer in layers]).mean(0).tolist()


def _describe(sentence: Sentence, layers: Sequence[SentenceLayer]) -> str:
    """Say what the logits of a sentence are made of, and in which head position does most."""
    shares = dict(zip(SENTENCE_TERMS, _pool(layers), strict=True))
    tokens, position, added = shares["token alone"], shares["position alone"], shares["token × distance"]
    cross = shares["token–position"] + shares["position–token"]
    rest = f", what tokens and distances add together {format_percent(added)}" if abs(added) > LEAST_TOLD else ""
    grid_LH = torch.stack([layer.shares_Ht[:, POSITION_ALONE] for layer in layers])
    layer, head = divmod(int(grid_LH.argmax()), grid_LH.shape[1])
    return (
        f"“{sentence.text}”: tokens alone account for {format_percent(tokens)} of the logits' variance, tokens with "
        f"positions {format_percent(cross)}, positions alone {format_percent(position)}{rest}; positions do most in "
        f"layer {layer + 1} head {head + 1} ({format_percent(float(grid_LH.max()))})."
    )


def _draw_figure(sentences: Sequence[Sentence], layers_by_sentence: Sequence[Sequence[SentenceLayer]]) -> Figure:
    """Draw the attention of all heads as a grid of small maps, layers downwards and heads across."""
    panels = []
    for sentence, layers in zip(sentences, layers_by_sentence, strict=True):
        step = -(-sum(layer.weights_HST.numel() for layer in layers) // MOST_DRAWN)
        drawn = [*enumerate(layers, 1)][::step]
        num_heads = len(layers[0].weights_HST)
        names = tuple(
            f"layer {index} head {head + 1}\npositions alone "
            f"{format_percent(float(layer.shares_Ht[head, POSITION_ALONE]))}, "
            f"tokens alone {format_percent(float(layer.shares_Ht[head, TOKENS_ALONE]))}"
            for index, layer in drawn
            for head in range(num_heads)
        )
        weights = torch.cat([torch.cat(tuple(layer.weights_HST), dim=1) for _, layer in drawn])
        tiles = make_mark(
            "tiles",
            [str(head + 1) for head in range(num_heads)],
            [str(index) for index, _ in drawn],
            label="attention",
            z=tuple(tuple(round(value, 3) for value in row) for row in weights.tolist()),  # a picture shows no more
            names=names,
        )
        panels.append(Panel((tiles,), title=f"“{sentence.text}”", xlabel="head", ylabel="layer"))
    return Figure(
        tuple(panels),
        title="Attention of every head in your sentence",
        caption="One small map a head: queries downwards, keys across, from the first token to the last.",
        height=min(max(len(layers) / num_heads, 0.3), 1.6),
    )


MOST_SWAPPED = 12
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
        f"Every two different words among the first {MOST_SWAPPED} of the sentence are swapped, one pair at a time. "
        "Squared change of the mean of the last hidden states (special tokens left out) over the mean squared "
        "distance of two other texts cut to the length of the sentence: 1 is as different as another text. A model "
        "that ignores order gives exactly 0. For a decoder the source stays as it was. The value is the largest "
        "change over all pairs and sentences; one sentence is measured whole and has no interval."
    )
    source = "the question is Vaswani et al.'s own reason for positions (2017, section 3.5)"
    heading = SENTENCES_HEADING
    rests_on = MASKED_WINDOWS

    def run(self, reading: Reading) -> Finding:
        """Run the model on every version of every sentence; the value is the largest change."""
        measured = [(sentence, _measure(reading, sentence)) for sentence in reading.sentences]
        changes = [(sentence, pairs) for sentence, pairs in measured if not isinstance(pairs, str)]
        if not changes:
            return self.skip("\n".join(_describe_swap(*pair) for pair in measured))
        value = max(change for _, pairs in changes for change in pairs.values())
        figures = []
        for sentence, pairs in changes:
            words = list_words(sentence.text)[:MOST_SWAPPED]
            names = tuple(f"{index} {word}" for index, word in enumerate(words, 1))
            figures.append(
                draw_heatmap(
                    [[pairs.get((min(i, j), max(i, j))) for j in range(len(words))] for i in range(len(words))],
                    panel=f"“{sentence.text}”",
                    xlabel="word",
                    ylabel="swapped with",
                    x=names,
                    y=names,
                    label="share by which the output changes",
                )
            )
        return self.make_finding(
            "\n".join(_describe_swap(*pair) for pair in measured),
            value,
            unit=SHARE,
            references=(Reference("order ignored", 0.0), Reference("another text", 1.0)),
            light="good" if value > LEAST_CHANGE else "bad",
            table=Table.of(
                ("sentence", "swapped", "change"),
                [(s.text, swap_words(s.text, *pair), change) for s, pairs in changes for pair, change in pairs.items()],
            ),
            figure=put_together(
                figures,
                caption="100 % is the mean squared distance between two other texts of that length.",
                height=0.5,
                title="How much swapping two words changes the output",
            ),
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
    sources: list[list[int] | None] = [None] * len(rows_NT)
    if source_NS is not None:
        sources = [row_S[row_S >= 0].tolist() for row_S in source_NS]
    others_ND = compute_mean_states(subject, [*zip(rows_NT.tolist(), sources, strict=True)][1:])
    distance = measure_squared_distance(others_ND)
    if distance == 0.0:
        return "not measured: all other texts have the same mean output, so there is no distance to measure by"
    encoded = {pair: encode_text(subject, swap_words(sentence.text, *pair))[0] for pair in pairs}
    # A swapped text may have more tokens than the model reads.
    fitting = {
        pair: ids for pair, ids in encoded.items() if subject.max_length is None or len(ids) <= subject.max_length
    }
    if not fitting:
        return "not measured: every swap makes it longer than the model reads"
    texts = [(sentence.ids, sentence.source), *((ids, sentence.source or sentence.ids) for ids in fitting.values())]
    before_D, *after = compute_mean_states(subject, texts)
    changes = {}
    for (pair, ids), after_D in zip(fitting.items(), after, strict=True):
        changes[pair] = 0.0 if ids == sentence.ids else float((after_D - before_D).square().sum()) / distance
    return changes


def _list_pairs(sentence: Sentence) -> list[tuple[int, int]]:
    """Return the indices of every two different words among the first ``MOST_SWAPPED`` of a sentence."""
    words = list_words(sentence.text)[:MOST_SWAPPED]
    return [(i, j) for i, j in combinations(range(len(words)), 2) if words[i] != words[j]]


def _describe_swap(sentence: Sentence, changes: Changes | str) -> str:
    """Say which of the measured swaps changes the output most and which least, and what was not measured."""
    if isinstance(changes, str):
        return f"“{sentence.text}”: {changes}."
    words = list_words(sentence.text)
    left_out = len(_list_pairs(sentence)) - len(changes)
    swaps = "one swap that makes" if left_out == 1 else f"{left_out} swaps that make"
    note = f" Not measured: {swaps} it longer than the model reads." if left_out else ""
    if len(words) > MOST_SWAPPED:
        note += f" Words after the first {MOST_SWAPPED} were left where they are."
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
