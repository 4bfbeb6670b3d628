"""Does place matter to what comes out? Interventions, not correlations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.capture import Capture
from clockhands.inspection.drawing import level, mark, percent, percent_range
from clockhands.inspection.numbers import bootstrap
from clockhands.inspection.subject import Subject
from clockhands.shapes import Float, Tensor

QUESTION = "Does place matter to what comes out?"
METHOD = (
    "The mean of the last hidden states over ordinary tokens, before and after an intervention; its squared "
    "change over the mean squared difference between two different texts: 0 is no change, 1 makes the text as "
    "different as another one. Shifted: every position k later (where the table ends before that, in windows cut by as "
    "much, at most by half). Mean row: every position row replaced by the mean"
    " of the rows in use, a neutral baseline (row 0 is not: it is an outlier in most trained models). Words "
    "permuted: the same tokens in another order. Interval: texts resampled."
)
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


Run = Callable[..., tuple[Tensor, ...] | None]


def pooled(run: Run, capture: Capture, ids_NT: Tensor) -> Float[Tensor, "N D"] | None:
    """The mean of the last hidden states over the tokens that count; None if ``run`` cannot. Windows may be cut."""
    batches, ordinary_T = [], capture.ordinary_T[: ids_NT.shape[1]]
    for rows in torch.arange(len(ids_NT)).split(8):
        states = run(ids_NT[rows], **capture.given(rows))
        if states is None:
            return None
        batches.append(states[-1].float().cpu()[:, ordinary_T].mean(1))
    return torch.cat(batches)


def effect(name: str, before_ND: Tensor, after_ND: Tensor) -> Effect:
    """How far the outputs moved, measured by how far those of two texts lie apart."""
    centred = before_ND - before_ND.mean(0)
    between = 2 * centred.square().sum(-1).mean() * len(before_ND) / (len(before_ND) - 1)
    change = (after_ND - before_ND).square().sum(-1) / between.clamp_min(1e-30)
    cosine = torch.nn.functional.cosine_similarity(before_ND, after_ND, dim=-1)
    return Effect(name, change, float(cosine.mean()))


def interventions(subject: Subject, capture: Capture) -> list[Effect]:
    """Every intervention that this model allows."""
    ids, kept = capture.ids_NT[:MOST_TEXTS], capture.ordinary_T
    before = pooled(subject.forward, capture, ids)
    assert before is not None
    shifts = [_shifted(subject, capture, ids, step, before) for step in STEPS]
    runs: list[tuple[str, Tensor | None]] = []
    if subject.tables() is not None:
        with subject.without_positions(capture.length):
            runs.append(("position rows replaced by their mean", pooled(subject.forward, capture, ids)))
    generator = torch.Generator().manual_seed(0)
    permuted = ids.clone()
    for row in permuted:
        row[kept] = row[kept][torch.randperm(int(kept.sum()), generator=generator)]
    runs += [("words permuted", pooled(subject.forward, capture, permuted)), ("another text", before.roll(1, dims=0))]
    return [
        *(one for one in shifts if one is not None),
        *(effect(name, before, after) for name, after in runs if after is not None),
    ]


def _shifted(subject: Subject, capture: Capture, ids_NT: Tensor, step: int, before_ND: Tensor) -> Effect | None:
    """All positions ``step`` later, in windows short enough for the rows that there are; None if that is too short."""
    length = ids_NT.shape[1]
    room = length if subject.longest is None else min(length, subject.longest - step)
    if room < length / 2:
        return None
    after_ND = pooled(partial(subject.shifted, step=step), capture, ids_NT[:, :room])
    if after_ND is None:
        return None
    unmoved = before_ND if room == length else pooled(subject.forward, capture, ids_NT[:, :room])
    assert unmoved is not None
    return effect(f"shifted by {step}", unmoved, after_ND)


def cause(subject: Subject, capture: Capture) -> Finding:
    """How much the output changes when positions or word order are changed."""
    effects = interventions(subject, capture)
    by_name = {one.name: one for one in effects}
    order = by_name["words permuted"]
    one = by_name.get("shifted by 1")
    low, high = bootstrap(order.change_N, torch.ones_like(order.change_N))
    shift_text = _shift_text(one, subject)
    mean = by_name.get("position rows replaced by their mean")
    mean_text = f" Without its position rows the output changes by {percent(mean.mean)}." if mean else ""
    return Finding(
        name="cause",
        question=QUESTION,
        verdict=(
            f"Permuting the words changes the output by {percent(order.mean)} of what another text would (95 % "
            f"interval "
            f"{percent_range(low, high)}).{shift_text}{mean_text}"
        ),
        value=order.mean,
        interval=(low, high),
        references=(Reference("another text", 1.0),),
        light="info" if order.mean > 1e-6 else "bad",
        table=Table.of(("intervention", "change", "cosine"), [(e.name, e.mean, e.cosine) for e in effects]),
        figure=_figure(effects),
        method=METHOD,
        source="shifted positions after Sinha et al. 2022",
    )


def _shift_text(one: Effect | None, subject: Subject) -> str:
    if one is None and subject.unknown:
        return " Its positions were not shifted, for where it keeps them is not recorded here."
    if one is None:
        return " There are no absolute positions to shift: only distances enter."
    if one.mean < 1e-6:
        return " Shifting all positions changes nothing: only distances matter."
    return f" One step for all positions already changes it by {percent(one.mean)}."


def _figure(effects: list[Effect]) -> Figure:
    shown = [one for one in effects if one.name != "another text"]
    names = [one.name for one in shown]
    intervals = [bootstrap(one.change_N, torch.ones_like(one.change_N)) for one in shown]
    return Figure(
        (
            Panel(
                (
                    mark(
                        "bars",
                        names,
                        [one.mean for one in shown],
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
