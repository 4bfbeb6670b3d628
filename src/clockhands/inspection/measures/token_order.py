"""Does order matter to each token? An intervention, not a correlation."""

from __future__ import annotations

from clockhands.findings import Finding, Reference, Table
from clockhands.inspection.drawing import percent, percent_range
from clockhands.inspection.measures.intervention_figure import draw_changes, find_span
from clockhands.inspection.measures.measure import OUTPUT, TASK, Measure
from clockhands.inspection.reading.interventions import ANOTHER, INTERVENTIONS, OTHERS, PERMUTED
from clockhands.inspection.reading.reading import Reading


class TokenOrder(Measure):
    """How much the state of each token changes with the order of the tokens."""

    name = "cause.tokens"
    question = "Does order matter to the state of each token?"
    references = ("order ignored", "two random tokens")
    method = (
        "The last hidden state of every ordinary token before and after an intervention. A token that is moved is "
        "followed to its new place, so that a state is always compared with a state of the same token. The squared "
        "change over the mean squared distance of the states of two random tokens of the texts: 0 is no change, 1 "
        "makes each state as different as that of another token." + INTERVENTIONS
    )
    source = "shifted positions after Sinha et al. 2022"
    group = OUTPUT
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        found = reading.interventions
        permuted, others = found[PERMUTED], found[OTHERS]
        if found[ANOTHER].tokens == 0.0:
            return self.skip("Every token has the same last state, so there is no distance to measure by.")
        low, high = find_span(permuted.tokens_N)
        changes = (
            f"When the tokens of a text are permuted, the state of each token changes by {percent(permuted.tokens)} of "
            f"the squared distance between two random tokens (95 % interval {percent_range(low, high)}); where a token "
            f"stays in place and the others are permuted, by {percent(others.tokens)}."
        )
        drawn = [(effect.name, effect.tokens_N) for effect in found.effects if effect.name != ANOTHER]
        return self.finding(
            changes
            if found.order_matters
            else "No token's state changes when the tokens are permuted: order is not seen.",
            permuted.tokens,
            interval=(low, high),
            references=(Reference("order ignored", 0.0), Reference("two random tokens", 1.0)),
            light="info" if found.order_matters else "bad",
            table=Table.of(
                ("intervention", "change of a token's state"),
                [(effect.name, effect.tokens) for effect in found.effects],
            ),
            figure=draw_changes(drawn, "two random tokens", "a token's state"),
        )
