"""How does it attend in your sentence? Its attention head by head, and its logits in terms.

In names of tensors ``t`` are ``SENTENCE_TERMS``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from clockhands.findings import SHARE, Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import make_mark
from clockhands.inspection.estimators.intervals import compute_central_range
from clockhands.inspection.measures.measure import MASKED_WINDOWS, SENTENCES_HEADING, Measure
from clockhands.inspection.measures.sentence_view import make_attention_view
from clockhands.inspection.number_format import format_percent, format_percent_range
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.sentence_split import POSITION_ALONE, SENTENCE_TERMS, TOKENS_ALONE, SentenceLayer
from clockhands.inspection.reading.sentences import Sentence
from clockhands.shapes import Float, Tensor

MOST_DRAWN = 40_000
"""Values of attention in one panel; where all heads have more, every second layer is drawn, or fewer."""
LEAST_TOLD = 0.0005
"""A share of tokens and distances together that is smaller than this is not told: it would be 0.0 %."""


class SentenceAttention(Measure):
    """The attention of every head in the sentences that a reader asked about, and what its logits are made of."""

    name = "sentence"
    question = "How does it attend in your sentence?"
    references = ("other texts",)
    method = (
        "The sentence is read beside other texts cut to its length. The input of every attention layer is the mean of "
        "those texts at each position (position) and what the sentence adds to it (token); queries and keys are split "
        "accordingly, and the logits become four terms, token or position of the query with token or position of the "
        "key, exactly; where layers add what a token and a distance give together, that is a fifth. "
        "What a layer adds by distance (a bias) and what a rotation does to the "
        "means belong to position alone. Terms are centred over the keys of each query, for softmax cannot see "
        "more. The value is the share of position alone in the variance of the logits at ordinary tokens, the "
        "heads of a layer pooled, the mean over layers; with several sentences, their mean. Other texts: the same "
        "share in each of them, with the range of the middle 95 %. One sentence is measured whole and has no interval."
    )
    source = "Ke et al. 2021 (TUPE), eq. 6; made exact by replay"
    heading = SENTENCES_HEADING
    rests_on = MASKED_WINDOWS
    reads_attention = True

    def answer(self, reading: Reading) -> Iterable[Finding]:
        """Yield the finding where sentences were asked about."""
        return super().answer(reading) if reading.sentences else ()

    def run(self, reading: Reading) -> Finding:
        """Measure every sentence; the value is the share of position alone."""
        layers_by_sentence = [reading.split_sentence(sentence) for sentence in reading.sentences]
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
            light="info",
            table=_make_table(reading.sentences, layers_by_sentence),
            figure=_draw_figure(reading.sentences, layers_by_sentence),
            details={"view": make_attention_view(reading.sentences, layers_by_sentence)},
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


def _make_table(sentences: Sequence[Sentence], layers_by_sentence: Sequence[Sequence[SentenceLayer]]) -> Table:
    """List the shares of ``SENTENCE_TERMS`` of every head; the fifth is zero unless layers add tokens × distance."""
    return Table.of(
        ("sentence", "layer", "head", *SENTENCE_TERMS),
        [
            (sentence.text, index + 1, head, *row)
            for sentence, layers in zip(sentences, layers_by_sentence, strict=True)
            for index, layer in enumerate(layers)
            for head, row in enumerate(layer.shares_Ht, 1)
        ],
    )


def _draw_figure(sentences: Sequence[Sentence], layers_by_sentence: Sequence[Sequence[SentenceLayer]]) -> Figure:
    """Draw the attention of all heads as a grid of small maps, layers downwards and heads across."""
    panels = tuple(_draw_panel(*pair) for pair in zip(sentences, layers_by_sentence, strict=True))
    rows, columns = len(layers_by_sentence[0]), layers_by_sentence[0][0].weights_HST.shape[0]
    return Figure(
        panels,
        title="Attention of every head in your sentence",
        caption="One small map a head: queries downwards, keys across, from the first token to the last.",
        height=min(max(rows / columns, 0.3), 1.6),
    )


def _draw_panel(sentence: Sentence, layers: Sequence[SentenceLayer]) -> Panel:
    """Draw the maps of one sentence."""
    step = -(-sum(layer.weights_HST.numel() for layer in layers) // MOST_DRAWN)
    drawn = [*enumerate(layers, 1)][::step]
    heads = range(layers[0].weights_HST.shape[0])
    names = tuple(
        f"layer {index} head {head + 1}\npositions alone "
        f"{format_percent(float(layer.shares_Ht[head, POSITION_ALONE]))}, "
        f"tokens alone {format_percent(float(layer.shares_Ht[head, TOKENS_ALONE]))}"
        for index, layer in drawn
        for head in heads
    )
    tiles = make_mark(
        "tiles",
        [str(head + 1) for head in heads],
        [str(index) for index, _ in drawn],
        label="attention",
        z=_round(torch.cat([torch.cat(tuple(layer.weights_HST), dim=1) for _, layer in drawn])),
        names=names,
    )
    return Panel((tiles,), title=f"“{sentence.text}”", xlabel="head", ylabel="layer")


def _round(values: Float[Tensor, "S T"]) -> tuple[tuple[float, ...], ...]:
    """Return values with three decimals: a picture shows no more, and every digit makes the page larger."""
    return tuple(tuple(round(value, 3) for value in row) for row in values.tolist())
