"""Does adding the position destroy the word?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import mark, percent
from clockhands.inspection.estimators.intervals import bootstrap_hit_share
from clockhands.inspection.estimators.probes import find_nearest_row
from clockhands.inspection.measures.measure import INPUT, TEXT, Measure
from clockhands.inspection.reading.capture import WITHOUT_FIRST, Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.subject.input_table import round_to_power_of_two
from clockhands.inspection.subject.tables import Tables
from clockhands.shapes import Float, Int, Tensor

MOST_TOKENS = 2000
MORE_WORDS = 4000
LOUDER = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


class Recovery(Measure):
    """Token identity read from the bare sum, against a random addition of the same length."""

    name = "recovery"
    question = "Does adding the position destroy the word?"
    references = ("random vectors",)
    method = (
        "For tokens of the text at their own places: is the token row nearest (by cosine, rows centred) to the sum of "
        "token row and centred position row still the token's own, among all words of the text and 4000 more? Random "
        "vectors: one as long as the position row is added instead, which is what adding would cost if positions took "
        "no care of the words. Both are then multiplied until the words are lost. 'Neighbours kept' is the part of "
        "the ten nearest rows that is the same before and after. Interval: texts resampled; where all words are "
        "recovered, or none, the exact bound of Clopper & Pearson over the texts." + WITHOUT_FIRST
    )
    source = "Yedidia 2023 for the question"
    group = INPUT
    rests_on = TEXT

    def run(self, reading: Reading) -> Finding:
        subject, capture = reading.subject, reading.capture
        tables = subject.read_tables()
        if tables is None:
            return self.skip(subject.explain_absence("Nothing is added to the words."))
        if subject.concatenates:
            return self.skip("Positions stand beside the words here, so nothing is added to them.")
        sample = _sample(tables, capture)
        if sample is None:
            return self.skip("All position rows are equal: adding them moves every word by one vector.")
        sweep = [(f, sample.hits(f * sample.added), sample.hits(f * sample.noise)) for f in LOUDER]
        hits, chance = sweep[0][1], float(sweep[0][2].mean())
        kept, kept_chance = sample.neighbours(sample.added), sample.neighbours(sample.noise)
        value = float(hits.mean())
        return self.finding(
            f"{percent(value)} of the words are still nearest to themselves after their position is added "
            f"({percent(chance)} with a random vector of that length), and {percent(kept)} of their neighbours stay "
            f"({percent(kept_chance)}). {_limit(sweep)}",
            value,
            interval=bootstrap_hit_share(hits, sample.texts),
            references=(Reference("random vectors", chance),),
            light="good" if value > 0.95 else "warn" if value > 0.5 else "bad",
            table=Table.of(
                ("position multiplied by", "words recovered", "with a random vector"),
                [(factor, mine.mean(), other.mean()) for factor, mine, other in sweep],
            ),
            figure=_figure(sweep),
            details={"neighbours_kept": kept, "neighbours_kept_by_chance": kept_chance},
        )


Sweep = list[tuple[float, Tensor, Tensor]]


def _limit(sweep: Sweep) -> str:
    """Say at which of the factors that were tried words are lost."""
    safe = [factor for factor, hits, _ in sweep if float(hits.mean()) > 0.95]
    if not safe:
        return "They are too loud as they are."
    if safe[-1] == LOUDER[-1]:
        return f"Even {safe[-1]:g} times as long they lose less than one word in twenty."
    return f"At {2 * safe[-1]:g} times that length they lose one word in twenty or more."


@dataclass(frozen=True)
class _Sample:
    """Sampled tokens: candidate token rows, the row and the text of each, what its position adds, and noise as long."""

    rows: Float[Tensor, "V D"]
    targets: Int[Tensor, " n"]
    texts: Int[Tensor, " n"]
    added: Float[Tensor, "n D"]
    noise: Float[Tensor, "n D"]

    def hits(self, added_nD: Float[Tensor, "n D"]) -> Float[Tensor, " n"]:
        """Tell for each token whether its own row is the nearest once ``added`` is added (1) or another (0)."""
        return (find_nearest_row(self.rows[self.targets] + added_nD, self.rows) == self.targets).float()

    def neighbours(self, added_nD: Float[Tensor, "n D"], count: int = 10, most: int = 300) -> float:
        """Return the share of the nearest other rows that stay the nearest, the mean over the first tokens."""
        count = min(count, len(self.rows) - 1)
        words_nD, unit = self.rows[self.targets], F.normalize(self.rows, dim=-1)
        own = self.targets[:most, None]
        before, after = (
            (x[:most] @ unit.T).scatter(1, own, -torch.inf).topk(count).indices for x in (words_nD, words_nD + added_nD)
        )
        return float((before[:, :, None] == after[:, None, :]).any(-1).float().mean())


def _sample(tables: Tables, capture: Capture) -> _Sample | None:
    """Draw tokens of the text at their own places; None where all position rows are equal."""
    # Cosines stay as they are when all vectors shrink alike.
    unit = max(round_to_power_of_two(tables.tokens_VD), round_to_power_of_two(tables.positions_ND))
    rows_TD = tables.positions_ND[: capture.length] / unit
    offsets = rows_TD - rows_TD[capture.counted_T].mean(0)
    if float(offsets[capture.counted_T].abs().max()) <= 1e-6 * float(rows_TD.abs().max()):
        return None
    generator = torch.Generator().manual_seed(0)
    counted = capture.counted_T.nonzero().flatten()
    ids = capture.ids_NT[:, counted]
    more = torch.randperm(len(tables.tokens_VD), generator=generator)[:MORE_WORDS]
    candidates = torch.cat([ids.flatten(), more]).unique()
    rows = tables.tokens_VD[candidates] / unit
    picks = torch.randperm(ids.numel(), generator=generator)[:MOST_TOKENS]
    targets = torch.searchsorted(candidates, ids.flatten()[picks])
    added = offsets[counted.repeat(len(ids))[picks]]
    noise = F.normalize(torch.randn(added.shape, generator=torch.Generator().manual_seed(0)), dim=-1)
    return _Sample(rows - rows.mean(0), targets, picks // len(counted), added, noise * added.norm(dim=-1, keepdim=True))


def _figure(sweep: Sweep) -> Figure:
    factors = [factor for factor, _, _ in sweep]
    marks = (
        mark("line", factors, [float(hits.mean()) for _, hits, _ in sweep], label="position added", emphasis="main"),
        mark("line", factors, [float(x.mean()) for *_, x in sweep], label="random vector added", emphasis="reference"),
    )
    panel = Panel(marks, xlabel="position multiplied by", ylabel="nearest to itself", xscale="log", ylim=(0.0, 1.02))
    return Figure((panel,), height=0.4)
