"""Which heads look at what followed the same token before, and do they need the heads that look one token back?

In names of tensors ``N`` are texts, ``n`` the queries of each that are judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn

from clockhands.findings import Figure, Finding, Reference, Table, draw_columns, join_words, put_together
from clockhands.inspection.estimators.intervals import estimate_mean_interval
from clockhands.inspection.measures.heads import draw_head_grid
from clockhands.inspection.measures.measure import LAYERS_HEADING, MASKED_WINDOWS, Measure
from clockhands.inspection.number_format import format_percent
from clockhands.inspection.reading.attention_hooks import ComputedAttention, listen
from clockhands.inspection.reading.capture import BATCH, Capture
from clockhands.inspection.reading.head_statistics import run_attention
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Int, Tensor

TEXTS = 24
"""Texts that are made."""
MOST_TOKENS, FEWEST_TOKENS = 32, 4
"""Tokens of a half: at most so many, and at least so many."""
LEAST_SCORE = 0.3
"""The least part of its attention that a head of induction gives to what followed the same token before."""
MOST_NAMED = 6
"""Heads whose names a verdict lists."""
PROBED = 4
"""The last tokens of a text after which the copied token's probability is read."""
DRAWS = 4
"""Random choices of as many other heads, whose mean is the control of an ablation."""
REMOVALS = ("whole", "removed", "others")
"""What is measured in an ablation: the model as it is, without some heads, and without as many others."""

Head: TypeAlias = tuple[int, int]
"""The indices of a layer and of a head in it."""
Ablation: TypeAlias = dict[str, Float[Tensor, "three N"]]
"""The mean ``score`` of the induction heads and the copied token's ``probability``, by ``REMOVALS`` and text. Numbers
without others are NaN where there are no others; a model without an output layer has no probabilities."""


@dataclass(frozen=True)
class _InductionTexts:
    """Texts whose second half has the tokens of the first in another order, and the same after another first half.

    ``targets_Nn`` is, for each of the queries at ``queries_n``, where the token stands that followed the same token in
    the first half. In ``control_NT`` another token stands before it.
    """

    ids_NT: Int[Tensor, "N T"]
    control_NT: Int[Tensor, "N T"]
    queries_Nn: Int[Tensor, "N n"]
    targets_Nn: Int[Tensor, "N n"]


class Induction(Measure):
    """How much of its attention each head gives to what followed the same token before, and what that needs."""

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
        "over the texts) lies above zero. It needs heads in earlier layers by which each token learns what stands "
        "before it. Those that give half of their attention to the previous token are removed, all at once: the "
        "output of each becomes its mean over tokens and texts. What the induction heads' mean score loses by that is "
        f"compared with what it loses where as many other heads of the same layers are removed (the mean of {DRAWS} "
        "random choices, without heads of induction): that they need them is said where the 95 % interval of the "
        "difference (Student's t over the texts) lies above zero, and else that it is undecided. The copied token's "
        f"probability is what the model gives to the token that followed, after the last {PROBED} tokens."
    )
    source = "Elhage et al. 2021; Olsson et al. 2022; ablation by the mean after Wang et al. 2023"
    heading = LAYERS_HEADING
    rests_on = MASKED_WINDOWS
    reads_attention = True
    makes_texts = True

    def run(self, reading: Reading) -> Finding:
        """Score every head; the value is the number of heads that do induction."""
        if not reading.reads_left_to_right:
            return self.skip(
                "It does not read from left to right alone, so that no token has only earlier ones to see."
            )
        texts = _draw_halves(reading.capture)
        if isinstance(texts, str):
            return self.skip(texts)
        scores_LHN = _score_heads(reading, texts, texts.ids_NT)
        control_LHN = _score_heads(reading, texts, texts.control_NT)
        score_LH, chance_LH = scores_LHN.mean(-1), control_LHN.mean(-1)
        lows = torch.tensor([[estimate_mean_interval(row)[0] for row in layer] for layer in scores_LHN - control_LHN])
        induction = [(layer, head) for layer, head in ((score_LH >= LEAST_SCORE) & (lows > 0)).nonzero().tolist()]
        last = max((layer for layer, _ in induction), default=0)
        previous = [
            (layer, head)
            for layer, statistics in enumerate(reading.head_statistics[:last])
            for head in range(len(statistics.by_position_H))
            if statistics.name_head(head) == "previous token"
        ]
        ablation = _ablate(reading, texts, induction, previous) if previous else None
        best = divmod(int(score_LH.argmax()), score_LH.shape[1])
        figure = draw_head_grid(score_LH, "Attention to what followed the same token before")
        details: dict[str, Any] = {}
        verdict = _describe(score_LH, chance_LH, induction, previous)
        if previous:
            verdict += _describe_ablation(ablation, len(previous))
        if ablation:
            figure = put_together((figure, _draw_ablation(ablation)), columns=2, title=figure.title)
            details = {
                name: dict(zip(REMOVALS, kept_3N.mean(-1).tolist(), strict=True)) for name, kept_3N in ablation.items()
            }
            details["ablated"] = join_words(map(_name, previous))
        return self.make_finding(
            verdict,
            float(len(induction)),
            unit="heads",
            references=(Reference("first half in another order", float(chance_LH[best])),),
            table=Table.of(
                ("layer", "head", "score", "first half in another order", "difference, low", "previous token"),
                [
                    (layer + 1, head + 1, score, chance_LH[layer, head], lows[layer, head],
                     reading.head_statistics[layer].get_attention_at(-1)[head])
                    for layer, row in enumerate(score_LH)
                    for head, score in enumerate(row)
                ],
            ),
            figure=figure,
            details=details,
        )  # fmt: skip


def _draw_halves(capture: Capture) -> _InductionTexts | str:
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
    return _InductionTexts(ids_NT, control_NT, torch.stack(queries), torch.stack(targets))


def _score_heads(reading: Reading, texts: _InductionTexts, ids_NT: Int[Tensor, "N T"]) -> Float[Tensor, "L H N"]:
    """Return the mean attention from the queries of each text to their targets, by layer and head."""
    capture, batches = reading.capture, []
    for rows in torch.arange(len(ids_NT)).split(BATCH):
        options = capture.make_forward_options(rows % capture.num_texts)
        read = partial(_average_pairs, queries_Bn=texts.queries_Nn[rows], targets_Bn=texts.targets_Nn[rows])
        batches.append(torch.stack(run_attention(reading.subject, capture, ids_NT[rows], read, **options)))
    return torch.cat(batches, dim=-1)


def _average_pairs(
    attention: ComputedAttention, queries_Bn: Int[Tensor, "B n"], targets_Bn: Int[Tensor, "B n"]
) -> Float[Tensor, "H B"]:
    """Return the mean attention from the queries of each text to their targets."""
    texts = torch.arange(len(queries_Bn))[:, None]
    return attention.weights_BHST.cpu()[texts, :, queries_Bn, targets_Bn].double().mean(1).T


@contextmanager
def _remove_heads(reading: Reading, heads: Sequence[Head]) -> Iterator[None]:
    """Inside the block, the output of each of these heads is its mean over the tokens and texts of a batch.

    The output of all heads, side by side, is the input of the projection that ends an attention module. There the
    channels of a head are replaced. Raises ValueError for a module without such a projection.
    """
    with ExitStack() as stack:
        for layer in {layer for layer, _ in heads}:
            projection = _find_output_projection(reading, layer)
            chosen = [head for at, head in heads if at == layer]
            count = reading.logit_splits[layer].var_NH.shape[1]
            average = partial(_average_heads, heads=chosen, count=count)
            stack.callback(projection.register_forward_pre_hook(average).remove)
        yield


def _average_heads(module: nn.Module, args: tuple[Any, ...], heads: Sequence[int], count: int) -> tuple[Any, ...]:
    """Replace the channels of some of ``count`` heads in the input of a module by their mean."""
    by_head = args[0].unflatten(-1, (count, -1)).clone()
    rest = tuple(range(by_head.ndim - 2))
    by_head[..., heads, :] = by_head.mean(rest, keepdim=True)[..., heads, :]
    return (by_head.flatten(-2), *args[1:])


def _find_output_projection(reading: Reading, layer: int) -> nn.Module:
    """Return the last matrix that an attention module multiplies with after it has attended, if heads divide its input.

    Raises ValueError where there is none: the projection of BERT's heads lies outside of the module that attends.
    """
    attention, ran = reading.capture.layers[layer].module, list[tuple[nn.Module, int]]()

    def note(module: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            ran.append((module, args[0].shape[-1]))

    def forget(computed: ComputedAttention) -> None:
        if computed.module is attention:  # what ran before made queries, keys and values
            ran.clear()

    matrices = [part for part in attention.modules() if any(own.ndim == 2 for own in part.parameters(recurse=False))]
    with ExitStack() as stack:
        for part in matrices:
            stack.callback(part.register_forward_pre_hook(note).remove)
        stack.enter_context(listen(reading.subject.model, forget))
        reading.subject.forward(reading.capture.ids_NT[:1], **reading.capture.make_forward_options(slice(1)))
    if not ran or ran[-1][1] % reading.logit_splits[layer].var_NH.shape[1]:
        raise ValueError(f"{type(attention).__name__} ends with no projection of its heads")
    return ran[-1][0]


@torch.no_grad()
def _ablate(
    reading: Reading, texts: _InductionTexts, induction: Sequence[Head], previous: Sequence[Head]
) -> Ablation | None:
    """Remove the previous-token heads, then as many others of the same layers; None where a head cannot be removed.

    The others are neither heads of induction nor previous-token heads themselves.
    """
    layers = sorted({layer for layer, _ in previous})
    every = [(layer, head) for layer in layers for head in range(reading.logit_splits[layer].var_NH.shape[1])]
    others = [at for at in every if at not in previous and at not in induction]
    removals: list[Sequence[Head]] = [(), previous]
    generator = torch.Generator().manual_seed(0)
    for _ in range(DRAWS if len(others) >= len(previous) else 0):
        draw = torch.randperm(len(others), generator=generator)[: len(previous)]
        removals.append([others[index] for index in draw.tolist()])
    scores, probabilities = [], []
    try:
        for removed in removals:
            with _remove_heads(reading, removed) if removed else nullcontext():
                scores_LHN = _score_heads(reading, texts, texts.ids_NT)
                probabilities.append(_read_probability(reading, texts))
            scores.append(torch.stack([scores_LHN[layer, head] for layer, head in induction]).mean(0))
    except ValueError:
        return None
    kept = {}
    for name, runs in (("score", torch.stack(scores)), ("probability", torch.stack(probabilities))):
        if not bool(runs[0].isnan().any()):
            kept[name] = torch.cat([runs[:2], runs[2:].mean(0, keepdim=True)])
    return kept


def _read_probability(reading: Reading, texts: _InductionTexts) -> Float[Tensor, " N"]:
    """Return the probability of the token that followed the same one before, after the last tokens of each text.

    It is NaN for a model without an output layer.
    """
    sums_N, counts_N = torch.zeros(len(texts.ids_NT)).double(), torch.zeros(len(texts.ids_NT))
    for place in texts.queries_Nn.unique()[-PROBED:].tolist():
        # A text whose token here ended the first half has nothing that followed it, and is left out at this place.
        text, query = (texts.queries_Nn == place).nonzero().T
        for rows, index in zip(text.split(BATCH), query.split(BATCH), strict=True):
            if reading.subject.reads_source:  # the decoder of an encoder-decoder is asked for no token without a source
                return torch.full_like(sums_N, torch.nan)
            logits_BV = reading.subject.compute_next_logits(texts.ids_NT[rows, : place + 1])
            if logits_BV is None:
                return torch.full_like(sums_N, torch.nan)
            copied_B = texts.ids_NT[rows, texts.targets_Nn[rows, index]]
            sums_N[rows] += logits_BV.double().cpu().softmax(-1)[torch.arange(len(rows)), copied_B]
            counts_N[rows] += 1
    return sums_N / counts_N.clamp_min(1)


def _describe(score_LH: Tensor, chance_LH: Tensor, induction: Sequence[Head], previous: Sequence[Head]) -> str:
    """Name the heads that do induction and the previous-token heads before them; or the head that comes nearest."""
    heads = induction or [divmod(int(score_LH.argmax()), score_LH.shape[1])]
    named = [
        f"{_name(head)} ({format_percent(float(score_LH[head]))} of its attention; "
        f"{format_percent(float(chance_LH[head]))} with the first half in another order)"
        for head in heads
    ]
    if not induction:
        return f"No head was found that looks at what followed the same token before; the nearest is {named[0]}."
    more = f"; and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    count = f"{len(named)} heads look" if len(named) > 1 else "One head looks"
    below = (
        f"Of earlier layers these look at the previous token: {'; '.join(map(_name, previous))}."
        if previous
        else "No head of an earlier layer gives half of its attention to the previous token."
    )
    return f"{count} at what followed the same token before: {'; '.join(named[:MOST_NAMED])}{more}. {below}"


def _name(head: Head) -> str:
    return f"layer {head[0] + 1} head {head[1] + 1}"


def _describe_ablation(ablation: Ablation | None, count: int) -> str:
    """Say what removing so many heads does to the score, and whether that is more than other heads do."""
    if ablation is None:
        return " Whether it uses them was not measured: heads cannot be removed from this model."
    scores_3N = ablation["score"]
    whole, without, others = (format_percent(value) for value in scores_3N.mean(-1).tolist())
    heads, other = ("that head", "another head") if count == 1 else ("these heads", "as many others")
    start = f" With {heads} removed, the induction heads give {without} of their attention there in place of {whole}"
    if bool(scores_3N[2].isnan().any()):
        return (
            f"{start}; their layers have too few others to compare with, so it is undecided whether they use {heads}."
        )
    low, _ = estimate_mean_interval(scores_3N[2] - scores_3N[1])
    part = "" if float(scores_3N[1].mean()) < float(scores_3N[0].mean()) / 2 else " in part"
    conclusion = f"they use {heads}{part}" if low > 0 else f"whether they use {heads} is undecided"
    verdict = f"{start} ({others} with {other} of the same layers removed): {conclusion}."
    if "probability" in ablation:
        whole, without, others = (format_percent(value) for value in ablation["probability"].mean(-1).tolist())
        low, _ = estimate_mean_interval(ablation["probability"][2] - ablation["probability"][1])
        unsure = "" if low > 0 else "; whether it falls by more than with others is undecided"
        verdict += (
            f" The probability of the token that followed goes from {whole} to {without} ({others} with others "
            f"removed){unsure}."
        )
    return verdict


def _draw_ablation(ablation: Ablation) -> Figure:
    """Draw score and probability of the copied token as they are, and without heads."""
    names = ["as it is", "previous-token heads removed", "as many others removed"]
    if bool(ablation["score"][2].isnan().any()):
        names.pop()
    labels = {"score": "score of the induction heads", "probability": "probability of the copied token"}
    heights, ends = {}, {}
    for name, kept_3N in ablation.items():
        drawn = kept_3N[: len(names)]
        heights[labels[name]] = drawn.mean(-1)
        lows, highs = zip(*map(estimate_mean_interval, drawn), strict=True)
        ends[labels[name]] = (lows, highs)
    return draw_columns(
        "bars",
        names,
        heights,
        main=labels["score"],
        intervals=ends,
        panel="Without the heads that look one token back",
        ylabel="share",
    )
