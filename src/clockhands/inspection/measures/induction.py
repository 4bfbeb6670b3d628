"""Which heads look at what followed the same token before? Induction, told from position by another order.

In names of tensors ``N`` are texts, ``n`` the queries of each that are judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from clockhands.findings import Finding, Reference, Table
from clockhands.inspection.drawing import draw_head_grid
from clockhands.inspection.estimators.intervals import estimate_mean_interval
from clockhands.inspection.measures.measure import LAYERS_HEADING, MASKED_WINDOWS, Measure
from clockhands.inspection.number_format import format_percent
from clockhands.inspection.reading.capture import BATCH, Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.sinks import run_attention
from clockhands.shapes import Float, Int, Tensor

TEXTS = 24
"""Texts that are made."""
MOST_TOKENS, FEWEST_TOKENS = 32, 4
"""Tokens of a half: at most so many, and at least so many."""
LEAST_SCORE = 0.3
"""The least part of its attention that a head of induction gives to what followed the same token before."""
MOST_NAMED = 6
"""Heads whose names a verdict lists."""


@dataclass(frozen=True)
class InductionTexts:
    """Texts whose second half has the tokens of the first in another order, and the same after another first half.

    ``targets_Nn`` is, for each of the queries at ``queries_n``, where the token stands that followed the same token in
    the first half. In ``control_NT`` another token stands before it.
    """

    ids_NT: Int[Tensor, "N T"]
    control_NT: Int[Tensor, "N T"]
    queries_Nn: Int[Tensor, "N n"]
    targets_Nn: Int[Tensor, "N n"]


class Induction(Measure):
    """How much of its attention each head gives to what followed the same token before."""

    name = "heads.induction"
    question = "Which heads look at what followed the same token before?"
    references = ("first half in another order",)
    method = (
        f"{TEXTS} texts of two halves of the same tokens, drawn from those of the text and each once in a half, the "
        "second half in another order than the first. The score of a head is the attention of a token of the second "
        "half to the one that followed the same token in the first; no fixed offset leads there. First half in "
        "another order: the attention of the same queries to the same positions in a text whose first half has its "
        "tokens in another order, so that another token stands before. A head does induction (Olsson et al. 2022) if "
        f"its score is at least {LEAST_SCORE} and the 95 % interval of the difference from that control (Student's t "
        "over the texts) lies above zero. It needs a head in an earlier layer by which each token learns what stands "
        "before it; those that give half of their attention to the previous token are named."
    )
    source = "Elhage et al. 2021; Olsson et al. 2022"
    heading = LAYERS_HEADING
    rests_on = MASKED_WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Score every head; the value is the number of heads that do induction."""
        if not reading.influence.causal:
            return self.skip(
                "It does not read from left to right alone, so that no token has only earlier ones to see."
            )
        texts = draw_texts(reading.capture)
        if isinstance(texts, str):
            return self.skip(texts)
        scores_LHN = score_heads(reading, texts, texts.ids_NT)
        control_LHN = score_heads(reading, texts, texts.control_NT)
        score_LH, chance_LH = scores_LHN.mean(-1), control_LHN.mean(-1)
        lows = [[estimate_mean_interval(row)[0] for row in layer] for layer in scores_LHN - control_LHN]
        is_induction_LH = (score_LH >= LEAST_SCORE) & (torch.tensor(lows) > 0)
        best = divmod(int(score_LH.argmax()), score_LH.shape[1])
        return self.make_finding(
            _describe(reading, score_LH, chance_LH, is_induction_LH),
            float(is_induction_LH.sum()),
            unit="heads",
            references=(Reference("first half in another order", float(chance_LH[best])),),
            light="info",
            table=Table.of(
                ("layer", "head", "score", "first half in another order", "difference, low", "previous token"),
                [
                    (layer + 1, head + 1, score, chance_LH[layer, head], lows[layer][head],
                     reading.head_statistics[layer].get_attention_at(-1)[head])
                    for layer, row in enumerate(score_LH)
                    for head, score in enumerate(row)
                ],
            ),
            figure=draw_head_grid(score_LH, "Attention to what followed the same token before"),
        )  # fmt: skip


def draw_texts(capture: Capture) -> InductionTexts | str:
    """Draw the texts from the tokens of the captured one; or the reason why that cannot be done."""
    places, pool = capture.ordinary_T.nonzero().flatten(), capture.ids_NT[:, capture.ordinary_T].unique()
    size = min(MOST_TOKENS, len(places) // 2, len(pool)) // 2 * 2
    if size < FEWEST_TOKENS:
        return f"A window of {2 * FEWEST_TOKENS} tokens, and {FEWEST_TOKENS} different ones, are needed to repeat some."
    generator = torch.Generator().manual_seed(0)
    length, first, second = int(places[2 * size - 1]) + 1, places[:size], places[size : 2 * size]
    ids_NT = capture.ids_NT[:1, :length].repeat(TEXTS, 1)
    control_NT, queries, targets = ids_NT.clone(), [], []
    for text in range(TEXTS):
        tokens = pool[torch.randperm(len(pool), generator=generator)[:size]]
        order = torch.randperm(size, generator=generator)
        ids_NT[text, first], ids_NT[text, second] = tokens, tokens[order]
        # Backwards, an even number of tokens has none at its own place.
        control_NT[text, first], control_NT[text, second] = tokens.flip(0), tokens[order]
        followed = order < size - 1
        queries.append(second[followed])
        targets.append(first[order[followed] + 1])
    return InductionTexts(ids_NT, control_NT, torch.stack(queries), torch.stack(targets))


def score_heads(reading: Reading, texts: InductionTexts, ids_NT: Int[Tensor, "N T"]) -> Float[Tensor, "L H N"]:
    """Return the mean attention from the queries of each text to their targets, by layer and head."""
    return torch.cat([*_score_batches(reading, texts, ids_NT)], dim=-1)


def _score_batches(reading: Reading, texts: InductionTexts, ids_NT: Tensor) -> Iterator[Float[Tensor, "L H n"]]:
    capture = reading.capture
    for rows in torch.arange(len(ids_NT)).split(BATCH):
        options = capture.make_forward_options(rows % capture.num_texts)
        layers = run_attention(reading.subject, capture, ids_NT[rows], **options)
        queries, targets, text = texts.queries_Nn[rows], texts.targets_Nn[rows], torch.arange(len(rows))[:, None]
        weights = [layer.weights_BHST.cpu()[text, :, queries, targets] for layer in layers]
        yield torch.stack([weights_nnH.double().mean(1).T for weights_nnH in weights])


def _describe(reading: Reading, score_LH: Tensor, chance_LH: Tensor, found_LH: Tensor) -> str:
    """Name the heads that do induction and the previous-token heads before them; or the head that comes nearest."""
    heads = found_LH.nonzero().tolist() or [list(divmod(int(score_LH.argmax()), score_LH.shape[1]))]
    named = [
        f"layer {layer + 1} head {head + 1} ({format_percent(float(score_LH[layer, head]))} of its attention; "
        f"{format_percent(float(chance_LH[layer, head]))} with the first half in another order)"
        for layer, head in heads
    ]
    if not bool(found_LH.any()):
        return f"No head was found that looks at what followed the same token before; the nearest is {named[0]}."
    more = f"; and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    count = f"{len(named)} heads look" if len(named) > 1 else "One head looks"
    last = max(layer for layer, _ in heads)
    previous = [
        f"layer {layer + 1} head {head + 1}"
        for layer, statistics in enumerate(reading.head_statistics[:last])
        for head in range(len(statistics.by_position_H))
        if statistics.name_head(head) == "previous token"
    ]
    below = (
        f"Of earlier layers these look at the previous token, which induction needs: {'; '.join(previous)}."
        if previous
        else "No head of an earlier layer gives half of its attention to the previous token."
    )
    return f"{count} at what followed the same token before: {'; '.join(named[:MOST_NAMED])}{more}. {below}"
