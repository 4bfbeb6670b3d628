"""Does order matter to the next token? The loss of a language model in order and after permuted tokens."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from clockhands.findings import Finding, Light, Reference, Table
from clockhands.inspection.estimators.intervals import estimate_mean_interval
from clockhands.inspection.measures.measure import OUTPUT, WINDOWS, Measure
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.reading.interventions import CHANGED, draw_orders
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.subject.subject import Subject
from clockhands.shapes import Float, Tensor

MOST_TEXTS = 32


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
    group = OUTPUT
    rests_on = WINDOWS

    def run(self, reading: Reading) -> Finding:
        subject, capture = reading.subject, reading.capture
        if subject.reads_source or not reading.influence.causal:
            return self.skip("It is no language model that writes from left to right: it has no next token.")
        pair = token_losses(subject, capture)
        if pair is None:
            return self.skip("The model came without its output layer, so that it predicts no token.")
        ordered, permuted = pair
        difference_N = (permuted - ordered).mean(1)
        span = estimate_mean_interval(difference_N)
        verdict, light = _judge(ordered, permuted, *span)
        return self.finding(
            verdict,
            float(difference_N.mean()),
            unit="nats",
            interval=span,
            references=(Reference("order ignored", 0.0),),
            light=light,
            table=Table.of(
                ("tokens before it", "in order", "permuted"),
                list(zip(_ends(capture), ordered.mean(0), permuted.mean(0), strict=True)),
            ),
        )


def _judge(
    ordered_Ne: Float[Tensor, "N e"], permuted_Ne: Float[Tensor, "N e"], low: float, high: float
) -> tuple[str, Light]:
    """Say whether order helps: whether the interval of the difference lies above zero, below it or around it."""
    value = float((permuted_Ne - ordered_Ne).mean())
    if not float((permuted_Ne - ordered_Ne).abs().max()) > CHANGED:
        return "The next token is predicted alike in any order of the tokens before it: order is not used.", "bad"
    numbers = (
        f"The next token costs {float(ordered_Ne.mean()):.2f} nats, and {float(permuted_Ne.mean()):.2f} when the "
        f"tokens before it are permuted: {_signed(value)} nats (95 % interval {_signed(low)} to {_signed(high)})."
    )
    if low > 0:
        return f"{numbers} Order helps to predict it.", "good"
    if high < 0:
        return f"{numbers} It predicts better without their order.", "warn"
    return f"{numbers} Whether order helps is undecided.", "info"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _ends(capture: Capture) -> list[int]:
    """How many tokens stand before those that are predicted."""
    length = int(capture.ordinary_T.nonzero()[-1])
    return sorted({max(2, round(length * part)) for part in (0.25, 0.5, 0.75, 1.0)})


def token_losses(subject: Subject, capture: Capture) -> tuple[Float[Tensor, "N e"], Float[Tensor, "N e"]] | None:
    """Negative log-likelihood of the tokens at the ends of N texts, in order and after permuted tokens."""
    ids, generator = capture.ids_NT[:MOST_TEXTS], torch.Generator().manual_seed(0)
    columns: tuple[list[Tensor], list[Tensor]] = ([], [])
    for end in _ends(capture):
        kept = capture.ordinary_T[:end]
        permuted = ids[:, :end].clone()
        permuted[:, kept] = permuted[:, kept].gather(1, draw_orders(int(kept.sum()), len(ids), generator))
        for column, prefixes in zip(columns, (ids[:, :end], permuted), strict=True):
            parts = []
            for rows in torch.arange(len(ids)).split(8):
                logits = subject.next_logits(prefixes[rows])
                if logits is None:
                    return None
                parts.append(F.cross_entropy(logits.double().cpu(), ids[rows, end], reduction="none"))
            column.append(torch.cat(parts))
    return torch.stack(columns[0], dim=1), torch.stack(columns[1], dim=1)
