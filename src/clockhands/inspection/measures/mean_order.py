"""Does order matter to the mean of the output? An intervention, not a correlation."""

from __future__ import annotations

from clockhands.findings import Finding, Light, Reference, Table
from clockhands.inspection.drawing import percent, percent_range
from clockhands.inspection.measures.intervention_figure import draw_changes, find_span
from clockhands.inspection.measures.measure import OUTPUT, TASK, Measure
from clockhands.inspection.reading.interventions import (
    ANOTHER,
    CHANGED,
    INTERVENTIONS,
    MEAN_ROW,
    PERMUTED,
    Interventions,
)
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.subject.subject import Subject


class MeanOrder(Measure):
    """How much the mean of the output changes when positions or the order of tokens are changed."""

    name = "cause"
    question = "Does order matter to the mean of the output?"
    references = ("order ignored", "another text")
    method = (
        "The mean of the last hidden states over ordinary tokens, before and after an intervention; its squared "
        "change over the mean squared distance of two different texts: 0 is no change, 1 makes the text as different "
        "as another one. A mean hides what happens to single tokens: a model that copies each token's neighbour "
        "changes all of its states and hardly their mean." + INTERVENTIONS
    )
    source = "shifted positions after Sinha et al. 2022"
    group = OUTPUT
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        found = reading.interventions
        order = found[PERMUTED]
        assert order.pooled_N is not None and order.pooled is not None
        if found[ANOTHER].pooled == 0.0:
            return self.skip("All texts have the same mean output, so there is no distance to measure by.")
        light: Light = "info" if order.pooled > CHANGED else "bad"
        drawn = [(e.name, e.pooled_N) for e in found.effects if e.pooled_N is not None and e.name != ANOTHER]
        kernel = reading.findings.get("kernel")
        by_distance = kernel is not None and bool(kernel.details.get("beyond"))
        return self.finding(
            _order_text(found) + _shift_text(reading.subject, found, by_distance),
            order.pooled,
            interval=find_span(order.pooled_N),
            references=(Reference("order ignored", 0.0), Reference("another text", 1.0)),
            light=light,
            table=Table.of(
                ("intervention", "change of the mean", "cosine"),
                [(effect.name, effect.pooled, effect.cosine) for effect in found.effects if effect.pooled is not None],
            ),
            figure=draw_changes(drawn, "another text", "the mean of the output"),
        )


def _order_text(found: Interventions) -> str:
    """Say what permuting the tokens does to the mean of the output, and what the position rows do to it."""
    order, mean = found[PERMUTED], found.get(MEAN_ROW)
    assert order.pooled_N is not None and order.pooled is not None
    verdict = "Permuting the tokens does not change the mean of the output."
    if order.pooled > CHANGED:
        verdict = (
            f"Permuting the tokens changes the mean of the output by {percent(order.pooled)} of the squared distance "
            f"between two texts (95 % interval {percent_range(*find_span(order.pooled_N))})."
        )
    if mean is not None and mean.pooled is not None:
        verdict += f" Without its position rows the mean of the output changes by {percent(mean.pooled)}."
    return verdict


def _shift_text(subject: Subject, found: Interventions, by_distance: bool) -> str:
    """Say what a shift of all positions does; that only distances matter is said where order and distance both do."""
    shifts = found.shifts
    if not shifts and subject.unlisted:
        return " Its positions were not shifted, for where it keeps them is not recorded here."
    only = ": only distances matter." if found.order_matters and by_distance else "."
    if not shifts and subject.relative_only:
        return f" There are no absolute positions to shift{only}"
    if not shifts:
        return " Its positions cannot be shifted from outside in windows of this length."
    changing = [step for step, effect in shifts.items() if max(effect.tokens, effect.pooled or 0.0) >= CHANGED]
    if not changing:
        return f" Shifting all positions, by up to {max(shifts)}, changes nothing{only}"
    by = "one" if changing[0] == 1 else f"{changing[0]}"
    return f" Shifting all positions by {by} changes it by {percent(shifts[changing[0]].pooled or 0.0)}."
