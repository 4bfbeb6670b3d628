"""Does place matter to what comes out? Interventions, not correlations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from clockhands.findings import Figure, Finding, Panel, Table
from clockhands.inspection.capture import Capture
from clockhands.inspection.drawing import level, mark, percent, skip
from clockhands.inspection.numbers import bootstrap
from clockhands.inspection.subject import Subject
from clockhands.shapes import Float, Tensor

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
MOST_TEXTS = 24


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


Run = Callable[[Tensor], tuple[Tensor, ...] | None]


def pooled(run: Run, ids_NT: Tensor, kept_T: Tensor) -> Float[Tensor, "N D"] | None:
    """The mean of the last hidden states over the tokens that count; None if ``run`` cannot."""
    batches = []
    for rows in ids_NT.split(8):
        states = run(rows)
        if states is None:
            return None
        batches.append(states[-1].float().cpu()[:, kept_T].mean(1))
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
    before = pooled(subject.forward, ids, kept)
    assert before is not None
    runs: list[tuple[str, Tensor | None]] = []
    for step in STEPS:
        runs.append((f"shifted by {step}", pooled(partial(subject.shifted, step=step), ids, kept)))
    if subject.tables() is not None:
        with subject.without_positions(capture.length):
            runs.append(("position rows replaced by their mean", pooled(subject.forward, ids, kept)))
    generator = torch.Generator().manual_seed(0)
    permuted = ids.clone()
    for row in permuted:
        row[kept] = row[kept][torch.randperm(int(kept.sum()), generator=generator)]
    runs += [("words permuted", pooled(subject.forward, permuted, kept)), ("another text", before.roll(1, dims=0))]
    return [_effect(name, before, after) for name, after in runs if after is not None]


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
