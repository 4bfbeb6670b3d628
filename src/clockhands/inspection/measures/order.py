"""Does order matter to the mean of the output, to each token's state, and to the next token? Interventions on order.

In names of tensors ``N`` are texts, ``e`` the tokens of each that are predicted.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional as F

from clockhands.findings import SHARE, Figure, Finding, Light, Reference, Table, choose_digits, draw_columns, join_words
from clockhands.inspection.estimators.intervals import bootstrap_ratio, estimate_mean_interval
from clockhands.inspection.measures.distance_curve import DistanceCurve
from clockhands.inspection.measures.measure import OUTPUT_HEADING, TASK, WINDOWS, Measure
from clockhands.inspection.number_format import format_decimal, format_estimate, format_percent
from clockhands.inspection.reading.capture import BATCH, Capture
from clockhands.inspection.reading.interventions import (
    ANOTHER_TEXT,
    INTERVENTIONS_NOTE,
    LEAST_CHANGE,
    MEAN_ROW,
    OTHERS_PERMUTED,
    PERMUTED,
    Interventions,
    draw_orders,
)
from clockhands.inspection.reading.reading import Reading
from clockhands.models.subject import Subject
from clockhands.shapes import Float, Tensor


def bootstrap_change(change_N: Float[Tensor, " N"]) -> tuple[float, float]:
    """Return the 95 % interval of the mean change over N texts, texts resampled."""
    return bootstrap_ratio(change_N, torch.ones_like(change_N))


def _draw_changes(changes: Mapping[str, Tensor], full_change: str, quantity: str) -> Figure:
    """Draw the mean change of every intervention as a bar with its interval.

    Args:
        changes: in each text, by the name of the intervention.
        full_change: what a change of 1 is, such as "another text".
        quantity: what changes, such as "a token's state".
    """
    low, high = zip(*(bootstrap_change(change_N) for change_N in changes.values()), strict=True)
    return draw_columns(
        "bars",
        tuple(changes),
        {"": [float(change_N.mean()) for change_N in changes.values()]},
        title=f"Change of {quantity} when positions or order are changed",
        intervals={"": (low, high)},
        levels={full_change: 1.0},
        ylabel=f"share by which {quantity} changes",
    )


class MeanOrder(Measure):
    """How much the mean of the output changes when positions or the order of tokens are changed."""

    name = "cause"
    question = "Does order matter to the mean of the output?"
    references = ("order ignored", "another text")
    method = (
        "The mean of the last hidden states over ordinary tokens, before and after an intervention; its squared "
        "change over the mean squared distance of two different texts: 0 is no change, 1 makes the text as different "
        "as another one. A mean hides what happens to single tokens: a model that copies each token's neighbour "
        "changes all of its states and hardly their mean." + INTERVENTIONS_NOTE
    )
    source = "shifted positions after Sinha et al. 2022"
    heading = OUTPUT_HEADING
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        """Intervene on order and positions; the value is the change of the mean when the tokens are permuted."""
        interventions = reading.interventions
        if interventions.text_distance == 0.0:
            return self.skip("All texts have the same mean output, so there is no distance to measure by.")
        changes = {
            effect.name: effect.mean_state_change_N
            for effect in interventions.effects
            if effect.mean_state_change_N is not None
        }
        change_N = changes[PERMUTED]
        change = float(change_N.mean())
        changes_drawn = {name: change for name, change in changes.items() if name != ANOTHER_TEXT}
        distance_curve = reading.findings.get(DistanceCurve.name)
        attends_by_distance = distance_curve is not None and bool(distance_curve.details.get("beyond"))
        mean_row = ""
        if MEAN_ROW in changes:
            mean_change = _describe_change(changes[MEAN_ROW])
            mean_row = f" With every position row replaced by their mean, the mean of the output {mean_change}."
        return self.make_finding(
            f"When the tokens are permuted, the mean of the output {_describe_change(change_N)}.{mean_row}"
            + _describe_shifts(reading, interventions, attends_by_distance),
            change,
            unit=SHARE,
            interval=bootstrap_change(change_N),
            references=(Reference("order ignored", 0.0), Reference("another text", 1.0)),
            light="info" if change > LEAST_CHANGE else "bad",
            table=Table.of(
                ("intervention", "change of the mean", "cosine"),
                [
                    (effect.name, effect.mean_state_change, effect.cosine)
                    for effect in interventions.effects
                    if effect.name in changes
                ],
            ),
            figure=_draw_changes(changes_drawn, "another text", "the mean of the output"),
        )


def _describe_change(change_N: Float[Tensor, " N"]) -> str:
    """Say by how much the mean of the output changes, with the interval; or that it does not."""
    change = float(change_N.mean())
    if change <= LEAST_CHANGE:
        return "does not change"
    share, interval = format_estimate(change, *bootstrap_change(change_N))
    return f"changes by {share} of the squared distance between two texts ({interval})"


def _describe_shifts(reading: Reading, interventions: Interventions, attends_by_distance: bool) -> str:
    """Say what a shift of all positions does.

    That only distances matter is said where no shift changes anything, order does, and attention depends on distance
    more than on shuffled distances.
    """
    subject, shifts = reading.subject, interventions.shifts
    if not shifts and subject.has_unlisted_architecture:
        return " Its positions were not shifted, for where it keeps them is not recorded here."
    ending = "."
    if interventions.order_matters and attends_by_distance:
        mask = ", and how many tokens the mask shows each" if reading.reads_left_to_right else ""
        ending = f": only distances matter{mask}."
    if not shifts and subject.has_no_absolute_positions:
        return f" There are no absolute positions to shift{ending}"
    if not shifts:
        capture = reading.capture
        half_1T = capture.ids_NT[:1, : capture.length // 2]
        shifted = subject.run_shifted(half_1T, 1, **capture.make_forward_options(slice(1)))
        return (
            f" Its positions cannot be shifted from outside{'' if shifted is None else ' in windows of this length'}."
        )
    for step, effect in shifts.items():
        change_N = effect.mean_state_change_N
        if change_N is not None and max(effect.token_change, float(change_N.mean())) >= LEAST_CHANGE:
            return f" With all positions shifted by {step}, the mean of the output {_describe_change(change_N)}."
    return f" Shifting all positions by {join_words(map(str, shifts))} changes nothing{ending}"


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
    by_hand = ("permutation",)
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        """Intervene on the order of the tokens; the value is the change of a state when they are permuted."""
        interventions = reading.interventions
        permuted, others = interventions[PERMUTED], interventions[OTHERS_PERMUTED]
        if interventions.token_distance == 0.0:
            return self.skip("Every token has the same last state, so there is no distance to measure by.")
        interval = bootstrap_change(permuted.token_change_N)
        share, numbers = format_estimate(permuted.token_change, *interval)
        verdict = "The state of no token changes when the tokens are permuted: the model ignores order."
        if interventions.order_matters:
            verdict = (
                f"When the tokens of a text are permuted, the state of each token changes by {share} of the squared "
                f"distance between two random tokens ({numbers}); where a token stays at its position and the others "
                f"are permuted, by {format_percent(others.token_change)}."
            )
        changes = {
            effect.name: effect.token_change_N for effect in interventions.effects if effect.name != ANOTHER_TEXT
        }
        return self.make_finding(
            verdict,
            permuted.token_change,
            unit=SHARE,
            interval=interval,
            references=(Reference("order ignored", 0.0), Reference("two random tokens", 1.0)),
            light="info" if interventions.order_matters else "bad",
            table=Table.of(
                ("intervention", "change of a token's state"),
                [(effect.name, effect.token_change) for effect in interventions.effects],
            ),
            figure=_draw_changes(changes, "two random tokens", "a token's state"),
        )


MOST_TEXTS = 32
"""Texts whose next tokens are predicted."""
ROUNDING = 1e-4
"""Nats by which a loss in float32 may differ for no reason but rounding."""
PARTS = (0.25, 0.5, 0.75, 1.0)
"""Parts of a window after which the next token is predicted."""


class NextToken(Measure):
    """How much worse the next token is predicted when the tokens before it are permuted."""

    name = "cause.loss"
    question = "Does order matter to the next token?"
    references = ("order ignored",)
    method = (
        "The same token is predicted twice: after the tokens before it in their order, and after the same tokens "
        "permuted. At a quarter, a half and three quarters of each window and at its end; natural logarithms. "
        "Interval: the mean of the difference over texts, Student's t."
    )
    source = "word order by permutation after Sinha et al. 2021; natural logarithms"
    heading = OUTPUT_HEADING
    rests_on = WINDOWS

    def run(self, reading: Reading) -> Finding:
        """Predict single tokens; the value is how much the loss rises when the tokens before them are permuted."""
        subject, capture = reading.subject, reading.capture
        if subject.reads_source:
            return self.skip(
                "It is the decoder of an encoder-decoder: only the next tokens of language models are predicted."
            )
        if not reading.reads_left_to_right:
            return self.skip("It is not a language model that writes from left to right: it has no next token.")
        prefixes_NT = capture.ids_NT[:MOST_TEXTS, capture.ordinary_T]
        if bool((prefixes_NT == prefixes_NT[:, :1]).all()):
            return self.skip("The tokens of each text are all the same, so that they have only one order.")
        losses = _compute_losses(subject, capture)
        if losses is None:
            return self.skip("The model came without its output layer, so that it predicts no token.")
        ordered_Ne, permuted_Ne = losses
        difference_N = (permuted_Ne - ordered_Ne).mean(1)
        low, high = estimate_mean_interval(difference_N)
        verdict, light = _judge(ordered_Ne, permuted_Ne, low, high)
        return self.make_finding(
            verdict,
            float(difference_N.mean()),
            unit="nats",
            interval=(low, high),
            references=(Reference("order ignored", 0.0),),
            light=light,
            table=Table.of(
                ("tokens before it", "in order", "permuted"),
                list(zip(_find_prefix_lengths(capture), ordered_Ne.mean(0), permuted_Ne.mean(0), strict=True)),
            ),
        )


def _judge(
    ordered_Ne: Float[Tensor, "N e"], permuted_Ne: Float[Tensor, "N e"], low: float, high: float
) -> tuple[str, Light]:
    """Say whether order helps: whether the interval of the difference lies above zero, below it or around it."""
    difference_Ne = permuted_Ne - ordered_Ne
    if not float(difference_Ne.abs().max()) > ROUNDING:
        return "The next token is predicted alike in any order of the tokens before it: the model ignores order.", "bad"
    digits = choose_digits(low, high, 2)
    difference, *ends = (
        format_decimal(value, plus=True, digits=digits) for value in (float(difference_Ne.mean()), low, high)
    )
    numbers = (
        f"The loss of the next token is {float(ordered_Ne.mean()):.2f} nats, and {float(permuted_Ne.mean()):.2f} when "
        f"the tokens before it are permuted: {difference} nats (95 % interval {' to '.join(ends)})."
    )
    if low > 0:
        return f"{numbers} Order helps to predict it.", "good"
    if high < 0:
        return f"{numbers} It is predicted better without their order.", "warn"
    return f"{numbers} Whether order helps is undecided.", "info"


def _find_prefix_lengths(capture: Capture) -> list[int]:
    """Return how many tokens stand before each of those that are predicted."""
    length = int(capture.ordinary_T.nonzero()[-1])
    return sorted({max(2, round(length * part)) for part in PARTS})


def _compute_losses(subject: Subject, capture: Capture) -> tuple[Float[Tensor, "N e"], Float[Tensor, "N e"]] | None:
    """Compute the negative log-likelihood, in nats, of e tokens of each of N texts, in order and permuted.

    Returns:
        The loss of each token after the tokens before it in their order, and its loss after the same tokens permuted,
        in float64; None for a model that came without its output layer.
    """
    ids, generator = capture.ids_NT[:MOST_TEXTS], torch.Generator().manual_seed(0)
    both: tuple[list[Tensor], list[Tensor]] = ([], [])
    for length in _find_prefix_lengths(capture):
        ordinary = capture.ordinary_T[:length]
        shuffled = ids[:, :length].clone()
        orders = draw_orders(int(ordinary.sum()), len(ids), generator)
        shuffled[:, ordinary] = shuffled[:, ordinary].gather(1, orders)
        for collected, prefixes in zip(both, (ids[:, :length], shuffled), strict=True):
            losses = []
            for rows in torch.arange(len(prefixes)).split(BATCH):
                logits = subject.compute_next_logits(prefixes[rows])
                if logits is None:
                    return None
                losses.append(F.cross_entropy(logits.double().cpu(), ids[rows, length], reduction="none"))
            collected.append(torch.cat(losses))
    return torch.stack(both[0], dim=1), torch.stack(both[1], dim=1)
