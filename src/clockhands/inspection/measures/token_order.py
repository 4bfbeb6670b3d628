"""Does order matter to the state of each token? An intervention, not a correlation."""

from __future__ import annotations

from clockhands.findings import SHARE, Finding, Reference, Table
from clockhands.inspection.measures.intervention_figure import bootstrap_change, draw_changes
from clockhands.inspection.measures.measure import OUTPUT_HEADING, TASK, Measure
from clockhands.inspection.number_format import format_percent, format_percent_range
from clockhands.inspection.reading.interventions import ANOTHER_TEXT, INTERVENTIONS_NOTE, OTHERS_PERMUTED, PERMUTED
from clockhands.inspection.reading.reading import Reading


class TokenOrder(Measure):
    """How much the last state of each token changes with the order of the tokens."""

    name = "cause.tokens"
    question = "Does order matter to the state of each token?"
    references = ("order ignored", "two random tokens")
    method = (
        "The last hidden state of every ordinary token before and after an intervention. A token that is moved is "
        "followed to its new position, so that a state is always compared with a state of the same token. The squared "
        "change over the mean squared distance of the states of two random tokens of the texts: 0 is no change, 1 "
        "makes each state as different as that of another token." + INTERVENTIONS_NOTE
    )
    source = "shifted positions after Sinha et al. 2022"
    heading = OUTPUT_HEADING
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        """Intervene on the order of the tokens; the value is the change of a state when they are permuted."""
        interventions = reading.interventions
        permuted, others = interventions[PERMUTED], interventions[OTHERS_PERMUTED]
        if interventions.token_distance == 0.0:
            return self.skip("Every token has the same last state, so there is no distance to measure by.")
        low, high = bootstrap_change(permuted.token_change_N)
        change = (
            "When the tokens of a text are permuted, the state of each token changes by "
            f"{format_percent(permuted.token_change)} of the squared distance between two random tokens (95 % interval "
            f"{format_percent_range(low, high)}); where a token stays at its position and the others are permuted, by "
            f"{format_percent(others.token_change)}."
        )
        changes = [
            (effect.name, effect.token_change_N) for effect in interventions.effects if effect.name != ANOTHER_TEXT
        ]
        return self.make_finding(
            change
            if interventions.order_matters
            else "The state of no token changes when the tokens are permuted: the model ignores order.",
            permuted.token_change,
            unit=SHARE,
            interval=(low, high),
            references=(Reference("order ignored", 0.0), Reference("two random tokens", 1.0)),
            light="info" if interventions.order_matters else "bad",
            table=Table.of(
                ("intervention", "change of a token's state"),
                [(effect.name, effect.token_change) for effect in interventions.effects],
            ),
            figure=draw_changes(changes, "two random tokens", "a token's state"),
        )
