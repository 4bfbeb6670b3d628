"""Does adding the position destroy the token?

In names of tensors ``n`` are the tokens of the sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch.nn import functional as F

from clockhands.findings import SHARE, Finding, Reference, Table, draw_columns
from clockhands.inspection.estimators.intervals import bootstrap_hit_share
from clockhands.inspection.estimators.probes import find_nearest_row
from clockhands.inspection.measures.measure import INPUT_HEADING, WINDOWS, Measure
from clockhands.inspection.number_format import format_estimate, format_percent
from clockhands.inspection.reading.capture import FIRST_POSITION_NOTE, Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.models.input_table import find_power_of_two_above
from clockhands.models.subject import Subject
from clockhands.shapes import Float, Int, Tensor

MOST_TOKENS = 2000
"""Tokens of the text that are tried."""
MORE_ROWS = 4000
"""Token rows, besides those of the text, that a sum may be nearest to."""
FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""What the position rows are multiplied by, one after the other."""
NEIGHBOURS = 10
"""Other token rows, the nearest to one, that are compared before and after; fewer where there are fewer."""
MOST_COMPARED = 300
"""Tokens whose neighbours are compared."""
HARMLESS = 0.95
"""Adding positions counts as harmless if a larger share of the tokens than this is recovered."""

Sweep: TypeAlias = list[tuple[float, Tensor, Tensor]]
"""For each factor: which tokens are recovered from the sum with their position (1 or 0), and with a random vector."""


class Recovery(Measure):
    """Tokens recovered from the sum with their position, against a random vector of the same length."""

    name = "recovery"
    question = "Does adding the position destroy the token?"
    references = ("random vectors",)
    method = (
        "For tokens of the text at their own positions: is the token row nearest (by cosine, rows centred) to the sum "
        "of token row and centred position row still the token's own, among all tokens of the text and up to 4000 "
        "more? Random vectors: one as long as the position row is added instead, which is what adding would cost if "
        "position rows pointed in random directions. Both are then multiplied by 2, 4, 8, 16 and 32. 'Neighbours "
        f"kept' is the part of the {NEIGHBOURS} nearest other rows that is the same before and after. Interval: texts "
        "resampled; where all tokens are recovered, or none, the exact bound of Clopper & Pearson over the texts."
        + FIRST_POSITION_NOTE
    )
    source = "Yedidia 2023 for the question"
    heading = INPUT_HEADING
    rests_on = WINDOWS

    def run(self, reading: Reading) -> Finding:
        """Measure the tables at the input; the value is the share of tokens that are recovered."""
        sample = draw_sample(reading.subject, reading.capture)
        if isinstance(sample, str):
            return self.skip(sample)
        sweep = [
            (factor, sample.find_hits(factor * sample.position), sample.find_hits(factor * sample.noise))
            for factor in FACTORS
        ]
        _, hits, noise_hits = sweep[0]
        value, chance = float(hits.mean()), float(noise_hits.mean())
        kept, kept_by_chance = sample.compare_neighbours(sample.position), sample.compare_neighbours(sample.noise)
        neighbours = f"{sample.num_neighbours} rows" if sample.num_neighbours > 1 else "one row"
        interval = bootstrap_hit_share(hits, sample.texts)
        share, numbers = format_estimate(value, *interval)
        return self.make_finding(
            f"{share} of the tokens are still nearest to their own row after their position is added ({numbers}; "
            f"{format_percent(chance)} with a random vector of that length), and {format_percent(kept)} of the "
            f"{neighbours} nearest to each are the same as before ({format_percent(kept_by_chance)} with a random "
            f"vector). {_describe_limit(sweep)}",
            value,
            unit=SHARE,
            interval=interval,
            references=(Reference("random vectors", chance),),
            light="good" if value > HARMLESS else "warn" if value > 0.5 else "bad",
            table=Table.of(  # saved tables keep these names, in which a token is a word
                ("position multiplied by", "words recovered", "with a random vector"),
                [(factor, hits.mean(), noise_hits.mean()) for factor, hits, noise_hits in sweep],
            ),
            figure=draw_columns(
                "line",
                [f"{factor:g}" for factor in FACTORS],
                {
                    "position added": [float(with_position.mean()) for _, with_position, _ in sweep],
                    "random vector added": [float(with_noise.mean()) for _, _, with_noise in sweep],
                },
                title="Tokens recognised after a position was added",
                main="position added",
                reference=("random vector added",),
                height=0.4,
                xlabel="position multiplied by",
                ylabel="share nearest to itself",
                ylim=(0, 1.02),
            ),
            details={"neighbours_kept": kept, "neighbours_kept_by_chance": kept_by_chance},
        )


def _describe_limit(sweep: Sweep) -> str:
    """Say at which of the factors that were tried tokens are lost."""
    harmless = [factor for factor, hits, _ in sweep if float(hits.mean()) > HARMLESS]
    if not harmless:
        return "At their own length positions already lose one token in twenty or more."
    if harmless[-1] == FACTORS[-1]:
        return f"Even {harmless[-1]:g} times as long, positions lose less than one token in twenty."
    return f"At {2 * harmless[-1]:g} times their own length positions lose one token in twenty or more."


@dataclass(frozen=True)
class Sample:
    """Tokens of a text at their own positions.

    ``rows`` are the centred token rows that a sum may be nearest to, ``targets`` the row of each token among them and
    ``texts`` the text it comes from; ``position`` is its centred position row, ``noise`` a random vector as long.
    """

    rows: Float[Tensor, "V D"]
    targets: Int[Tensor, " n"]
    texts: Int[Tensor, " n"]
    position: Float[Tensor, "n D"]
    noise: Float[Tensor, "n D"]

    def find_hits(self, added_nD: Float[Tensor, "n D"]) -> Float[Tensor, " n"]:
        """Return 1 for each token whose own row is the nearest once ``added`` is added, 0 for the others."""
        return (find_nearest_row(self.rows[self.targets] + added_nD, self.rows) == self.targets).float()

    @property
    def num_neighbours(self) -> int:
        """How many other rows are called a row's neighbours: as many as there are, up to ``NEIGHBOURS``."""
        return min(NEIGHBOURS, len(self.rows) - 1)

    def compare_neighbours(self, added_nD: Float[Tensor, "n D"]) -> float:
        """Return the share of the ``num_neighbours`` nearest other rows that stay, over the first ``MOST_COMPARED``."""
        tokens_nD, unit_VD = self.rows[self.targets], F.normalize(self.rows, dim=-1)
        nearest = []
        for vectors_nD in (tokens_nD, tokens_nD + added_nD):
            cosines_nV = vectors_nD[:MOST_COMPARED] @ unit_VD.T
            cosines_nV.scatter_(1, self.targets[:MOST_COMPARED, None], -torch.inf)  # the row itself is no neighbour
            nearest.append(cosines_nV.topk(self.num_neighbours).indices)
        before, after = nearest
        return float((before[:, :, None] == after[:, None, :]).any(-1).float().mean())


def draw_sample(subject: Subject, capture: Capture) -> Sample | str:
    """Draw tokens of the text at their own positions, or return the reason why there is nothing to recover."""
    tables = subject.read_tables(capture.length)
    if tables is None:
        return subject.explain_missing_table("Nothing is added to the token rows.")
    if subject.concatenated:
        return "Positions are concatenated with the tokens here, so nothing is added to them."
    if len(tables.tokens_VD) < 2:
        return "The model knows one token only, which no other can be taken for."
    # Cosines stay as they are when all vectors shrink alike.
    scale = max(find_power_of_two_above(tables.tokens_VD), find_power_of_two_above(tables.positions_ND))
    rows_TD = tables.positions_ND[: capture.length] / scale
    centred_TD = rows_TD - rows_TD[capture.measured_T].mean(0)
    if float(centred_TD[capture.measured_T].abs().max()) <= 1e-6 * float(rows_TD.abs().max()):
        return "All position rows are equal: adding them moves every token by one vector."
    generator = torch.Generator().manual_seed(0)
    measured = capture.measured_T.nonzero().flatten()
    ids = capture.ids_NT[:, measured]
    more = torch.randperm(len(tables.tokens_VD), generator=generator)[:MORE_ROWS]
    candidates = torch.cat([ids.flatten(), more]).unique()
    rows = tables.tokens_VD[candidates] / scale
    drawn = torch.randperm(ids.numel(), generator=generator)[:MOST_TOKENS]
    targets = torch.searchsorted(candidates, ids.flatten()[drawn])
    position = centred_TD[measured.repeat(len(ids))[drawn]]
    noise = F.normalize(torch.randn(position.shape, generator=torch.Generator().manual_seed(0)), dim=-1)
    noise = noise * position.norm(dim=-1, keepdim=True)
    return Sample(rows - rows.mean(0), targets, drawn // len(measured), position, noise)
