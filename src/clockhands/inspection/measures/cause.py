"""Does place matter to what comes out? Interventions, not correlations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from clockhands.findings import Figure, Finding, Panel, Table
from clockhands.inspection.capture import Capture
from clockhands.inspection.drawing import level, mark, percent, skip
from clockhands.inspection.numbers import bootstrap
from clockhands.inspection.subject import Subject
from clockhands.shapes import Float, Int, Tensor

QUESTION = "Does place matter to what comes out?"
METHOD = (
    "The mean of the last hidden states over ordinary tokens, before and after an intervention; its squared "
    "change over the mean squared difference between two different texts: 0 is no change, 1 makes the text as "
    "different as another one. Shifted: every position k later. Mean row: every position row replaced by the mean"
    " of the rows in use, a neutral baseline (row 0 is not: it is an outlier in most trained models). Words "
    "permuted: the same tokens in another order. Interval: texts resampled."
)
SWAP = "Does it notice who bit whom?"
SWAP_METHOD = (
    "Sentences such as 'Tom saw Anna' against the same with the two nouns swapped, the change measured as above, "
    "one being the difference between two of the sentences. A model that does not know order gives exactly 0."
)
NOUNS = ("Tom", "a dog", "Anna", "the king", "my sister", "a wolf", "the doctor", "Peter")
VERBS = ("bit", "saw", "followed", "paid", "heard", "forgot")
STEPS = (1, 4, 16, 64)
MOST_TEXTS = 32


@dataclass(frozen=True)
class Effect:
    """One intervention: relative squared change of the output, per text, and the mean cosine to the original."""

    name: str
    change_N: Float[Tensor, " N"]
    cosine: float

    @property
    def mean(self) -> float:
        """The change over all texts."""
        return float(self.change_N.mean())


def pooled(subject: Subject, ids_NT: Int[Tensor, "N T"], kept_T: Tensor, **options: Tensor) -> Float[Tensor, "N D"]:
    """The mean of the last hidden states over the tokens that count."""
    batches = []
    for rows in ids_NT.split(8):
        extra = {name: value[: len(rows)] for name, value in options.items()}
        batches.append(subject.forward(rows, **extra)[-1][:, kept_T.to(subject.device)].mean(1).float().cpu())
    return torch.cat(batches)


def _effect(name: str, before_ND: Tensor, after_ND: Tensor) -> Effect:
    centred = before_ND - before_ND.mean(0)
    between = 2 * centred.square().sum(-1).mean() * len(before_ND) / (len(before_ND) - 1)
    change = (after_ND - before_ND).square().sum(-1) / between.clamp_min(1e-30)
    cosine = torch.nn.functional.cosine_similarity(before_ND, after_ND, dim=-1)
    return Effect(name, change, float(cosine.mean()))


def interventions(subject: Subject, capture: Capture) -> list[Effect]:
    """Every intervention that this model allows."""
    ids, kept = capture.ids_NT[:MOST_TEXTS], capture.ordinary_T
    before = pooled(subject, ids, kept)
    found = []
    for step in STEPS:
        after = _shifted(subject, ids, kept, step)
        if after is not None:
            found.append(_effect(f"shifted by {step}", before, after))
    tables = subject.tables()
    if tables is not None:
        mean = tables.positions_PD[: capture.length].mean(0)
        with subject.with_positions(mean.expand(capture.length, -1)):
            found.append(_effect("position rows replaced by their mean", before, pooled(subject, ids, kept)))
    generator = torch.Generator().manual_seed(0)
    permuted = ids.clone()
    for row in permuted:
        row[kept] = row[kept][torch.randperm(int(kept.sum()), generator=generator)]
    found.append(_effect("words permuted", before, pooled(subject, permuted, kept)))
    found.append(_effect("another text", before, before.roll(1, dims=0)))
    return found


def _shifted(subject: Subject, ids: Tensor, kept: Tensor, step: int) -> Tensor | None:
    """The output with every position ``step`` later; None where the model has none, or too few."""
    length = ids.shape[1]
    tables = subject.tables()
    if tables is not None:
        if length + step > len(tables.positions_PD):
            return None
        with subject.with_positions(tables.positions_PD[step : step + length]):
            return pooled(subject, ids, kept)
    if "rotary" in subject.mechanisms and subject.accepts("position_ids"):
        places = torch.arange(step, step + length, device=subject.device).expand(8, -1)
        return pooled(subject, ids, kept, position_ids=places)
    return None


def cause(subject: Subject, capture: Capture) -> Finding:
    """How much the output changes when positions or word order are changed."""
    effects = interventions(subject, capture)
    by_name = {effect.name: effect for effect in effects}
    order = by_name["words permuted"]
    one = by_name.get("shifted by 1")
    low, high = bootstrap(order.change_N, torch.ones_like(order.change_N))
    shift_text = _shift_text(one)
    mean = by_name.get("position rows replaced by their mean")
    mean_text = f" Without its position rows the output changes by {percent(mean.mean)}." if mean else ""
    return Finding(
        name="cause",
        question=QUESTION,
        verdict=(
            f"Permuting the words changes the output by {percent(order.mean)} of what another text would (95 % "
            f"interval "
            f"{percent(low)} to {percent(high)}).{shift_text}{mean_text}"
        ),
        value=order.mean,
        interval=(low, high),
        null=1.0,
        light="info" if order.mean > 1e-6 else "bad",
        table=Table.of(("intervention", "change", "cosine"), [(e.name, e.mean, e.cosine) for e in effects]),
        figure=_figure(effects),
        method=METHOD,
        source="shifted positions after Sinha et al. 2022",
    )


def _shift_text(one: Effect | None) -> str:
    if one is None:
        return " There are no absolute positions to shift: only distances enter."
    if one.mean < 1e-6:
        return " Shifting all positions changes nothing: only distances matter."
    return f" One step for all positions already changes it by {percent(one.mean)}."


def _figure(effects: list[Effect]) -> Figure:
    shown = [effect for effect in effects if effect.name != "another text"]
    names = [effect.name for effect in shown]
    intervals = [bootstrap(effect.change_N, torch.ones_like(effect.change_N)) for effect in shown]
    return Figure(
        (
            Panel(
                (
                    mark(
                        "bars",
                        names,
                        [effect.mean for effect in shown],
                        low=[low for low, _ in intervals],
                        high=[high for _, high in intervals],
                        emphasis="main",
                    ),
                    level(1.0, "another text"),
                ),
                ylabel="change of the output",
            ),
        )
    )


def swapped(subject: Subject, encode: Callable[[str], list[int]] | None) -> Finding:
    """Two nouns of a short sentence swapped."""
    if encode is None:
        return skip("cause.swap", SWAP, "Without a tokenizer there are no sentences to swap words in.")
    sentences = [
        (f"{a} {verb} {b}.", f"{b} {verb} {a}.")
        for verb in VERBS
        for a, b in zip(NOUNS[0::2], NOUNS[1::2], strict=True)
    ]
    before = torch.stack([_sentence(subject, encode(first)) for first, _ in sentences])
    after = torch.stack([_sentence(subject, encode(second)) for _, second in sentences])
    effect = _effect("swapped", before, after)
    low, high = bootstrap(effect.change_N, torch.ones_like(effect.change_N))
    notices = effect.mean > 1e-6
    return Finding(
        name="cause.swap",
        question=SWAP,
        verdict=(
            f"Swapping the two nouns changes the output by {percent(effect.mean)} of what another sentence would "
            f"(95 % interval {percent(low)} to {percent(high)}; 0 would mean that order is not seen)."
            if notices
            else "Swapping the two nouns changes nothing at all: this model does not see order."
        ),
        value=effect.mean,
        interval=(low, high),
        null=0.0,
        light="good" if notices else "bad",
        table=Table.of(
            ("sentence", "swapped", "change"),
            [(*pair, change) for pair, change in zip(sentences, effect.change_N, strict=True)],
        ),
        method=SWAP_METHOD,
        source="the question is Vaswani et al.'s own reason for positions (2017, section 3.5)",
    )


def _sentence(subject: Subject, ids: list[int]) -> Tensor:
    return subject.forward(torch.tensor([ids]))[-1][0].mean(0).float().cpu()
