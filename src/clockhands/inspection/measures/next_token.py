"""Does order matter to the next token? The loss of a language model in order and after permuted tokens.

In names of tensors ``N`` are texts, ``e`` the tokens of each that are predicted.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from clockhands.findings import Finding, Light, Reference, Table
from clockhands.inspection.estimators.intervals import estimate_mean_interval
from clockhands.inspection.measures.measure import OUTPUT_HEADING, WINDOWS, Measure
from clockhands.inspection.number_format import format_decimal
from clockhands.inspection.reading.capture import BATCH, Capture
from clockhands.inspection.reading.interventions import draw_orders
from clockhands.inspection.reading.reading import Reading
from clockhands.models.subject import Subject
from clockhands.shapes import Float, Tensor

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
        if not reading.influence.causal:
            return self.skip("It is not a language model that writes from left to right: it has no next token.")
        losses = compute_losses(subject, capture)
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
                list(zip(find_prefix_lengths(capture), ordered_Ne.mean(0), permuted_Ne.mean(0), strict=True)),
            ),
        )


def _judge(
    ordered_Ne: Float[Tensor, "N e"], permuted_Ne: Float[Tensor, "N e"], low: float, high: float
) -> tuple[str, Light]:
    """Say whether order helps: whether the interval of the difference lies above zero, below it or around it."""
    difference_Ne = permuted_Ne - ordered_Ne
    if not float(difference_Ne.abs().max()) > ROUNDING:
        return "The next token is predicted alike in any order of the tokens before it: the model ignores order.", "bad"
    numbers = (
        f"The loss of the next token is {float(ordered_Ne.mean()):.2f} nats, and {float(permuted_Ne.mean()):.2f} when "
        f"the tokens before it are permuted: {format_decimal(float(difference_Ne.mean()), plus=True)} nats (95 % "
        f"interval {format_decimal(low, plus=True)} to {format_decimal(high, plus=True)})."
    )
    if low > 0:
        return f"{numbers} Order helps to predict it.", "good"
    if high < 0:
        return f"{numbers} It is predicted better without their order.", "warn"
    return f"{numbers} Whether order helps is undecided.", "info"


def find_prefix_lengths(capture: Capture) -> list[int]:
    """Return how many tokens stand before each of those that are predicted."""
    length = int(capture.ordinary_T.nonzero()[-1])
    return sorted({max(2, round(length * part)) for part in PARTS})


def compute_losses(subject: Subject, capture: Capture) -> tuple[Float[Tensor, "N e"], Float[Tensor, "N e"]] | None:
    """Compute the negative log-likelihood, in nats, of e tokens of each of N texts, in order and permuted.

    Returns:
        The loss of each token after the tokens before it in their order, and its loss after the same tokens permuted;
        None for a model that came without its output layer.
    """
    ids, generator = capture.ids_NT[:MOST_TEXTS], torch.Generator().manual_seed(0)
    ordered: list[Tensor] = []
    permuted: list[Tensor] = []
    for length in find_prefix_lengths(capture):
        ordinary = capture.ordinary_T[:length]
        shuffled = ids[:, :length].clone()
        orders = draw_orders(int(ordinary.sum()), len(ids), generator)
        shuffled[:, ordinary] = shuffled[:, ordinary].gather(1, orders)
        for collected, prefixes in ((ordered, ids[:, :length]), (permuted, shuffled)):
            losses = _predict(subject, prefixes, ids[:, length])
            if losses is None:
                return None
            collected.append(losses)
    return torch.stack(ordered, dim=1), torch.stack(permuted, dim=1)


def _predict(subject: Subject, prefixes_NT: Tensor, targets_N: Tensor) -> Tensor | None:
    """Return the loss of each target after its prefix: [N], in float64; None without an output layer."""
    losses = []
    for rows in torch.arange(len(prefixes_NT)).split(BATCH):
        logits = subject.compute_next_logits(prefixes_NT[rows])
        if logits is None:
            return None
        losses.append(F.cross_entropy(logits.double().cpu(), targets_N[rows], reduction="none"))
    return torch.cat(losses)
