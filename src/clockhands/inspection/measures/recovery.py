"""Does adding the position destroy the word?"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import mark, percent, skip
from clockhands.inspection.estimators.intervals import bootstrap
from clockhands.inspection.estimators.probes import nearest_row
from clockhands.inspection.reading.capture import WITHOUT_FIRST, Capture
from clockhands.inspection.subject.subject import Subject, Tables
from clockhands.shapes import Float, Int, Tensor

QUESTION = "Does adding the position destroy the word?"
METHOD = (
    "For tokens of the text at their own places: is the token row nearest (by cosine, rows centred) to the sum of"
    " token row and centred position row still the token's own, among all words of the text and 4000 more? Random "
    "vectors: one as long as the position row is added instead, which is what adding would cost if positions "
    "took no care of the words. Both are then multiplied until the words are lost. 'Neighbours kept' is the part "
    "of the ten nearest rows that is the same before and after. Interval: tokens resampled." + WITHOUT_FIRST
)
MOST_TOKENS = 2000
MORE_WORDS = 4000
LOUDER = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def recovery(subject: Subject, capture: Capture) -> Finding:
    """Token identity read from the bare sum, against a random addition of the same length."""
    tables = subject.tables()
    if tables is None:
        return skip("recovery", QUESTION, subject.absent("Nothing is added to the words."))
    if subject.concatenates:
        return skip("recovery", QUESTION, "Positions stand beside the words here, so nothing is added to them.")
    rows, targets, places = _sample(tables, capture)
    rows_TD = tables.positions_PD[: capture.length]
    offsets = rows_TD - rows_TD[capture.counted_T].mean(0)
    if float(offsets[capture.counted_T].abs().max()) <= 1e-6 * float(rows_TD.abs().max()):
        return skip("recovery", QUESTION, "All position rows are equal: adding them moves every word by one vector.")
    added = offsets[places]
    generator = torch.Generator().manual_seed(0)
    noise = F.normalize(torch.randn(added.shape, generator=generator), dim=-1) * added.norm(dim=-1, keepdim=True)
    words = rows[targets]
    sweep = [(f, _hits(rows, targets, f * added), _hits(rows, targets, f * noise)) for f in LOUDER]
    hits, chance = sweep[0][1], float(sweep[0][2].mean())
    kept, kept_chance = _neighbours(rows, words, added), _neighbours(rows, words, noise)
    found = float(hits.mean())
    return Finding(
        name="recovery",
        question=QUESTION,
        verdict=(
            f"{percent(found)} of the words are still nearest to themselves after their position is added "
            f"({percent(chance)} with a random vector of that length), and {percent(kept)} of their neighbours stay "
            f"({percent(kept_chance)}). {_limit(sweep)}"
        ),
        value=found,
        interval=bootstrap(hits, torch.ones_like(hits)),
        references=(Reference("random vectors", chance),),
        light="good" if found > 0.95 else "warn" if found > 0.5 else "bad",
        table=Table.of(
            ("position multiplied by", "words recovered", "with a random vector"),
            [(factor, mine.mean(), other.mean()) for factor, mine, other in sweep],
        ),
        figure=_figure(sweep),
        method=METHOD,
        source="Yedidia 2023 for the question",
        details={"neighbours_kept": kept, "neighbours_kept_by_chance": kept_chance},
    )


def _hits(rows_VD: Tensor, targets_n: Int[Tensor, " n"], added_nD: Tensor) -> Float[Tensor, " n"]:
    return (nearest_row(rows_VD[targets_n] + added_nD, rows_VD) == targets_n).float()


Sweep = list[tuple[float, Tensor, Tensor]]


def _limit(sweep: Sweep) -> str:
    """How much louder positions could be before words are lost."""
    safe = [factor for factor, hits, _ in sweep if float(hits.mean()) > 0.95]
    if not safe:
        return "They are too loud as they are."
    return f"They could be {safe[-1]:g} times as long before one word in twenty is lost."


def _sample(tables: Tables, capture: Capture) -> tuple[Tensor, Int[Tensor, " n"], Int[Tensor, " n"]]:
    """Candidate rows, and the sampled tokens as (row, place)."""
    generator = torch.Generator().manual_seed(0)
    counted = capture.counted_T.nonzero().flatten()
    ids = capture.ids_NT[:, counted]
    more = torch.randperm(len(tables.words_VD), generator=generator)[:MORE_WORDS]
    candidates = torch.cat([ids.flatten(), more]).unique()
    rows = tables.words_VD[candidates]
    picks = torch.randperm(ids.numel(), generator=generator)[:MOST_TOKENS]
    targets = torch.searchsorted(candidates, ids.flatten()[picks])
    return rows - rows.mean(0), targets, counted.repeat(len(ids))[picks]


def _neighbours(rows_VD: Tensor, words_nD: Tensor, added_nD: Tensor, count: int = 10, most: int = 300) -> float:
    count = min(count, len(rows_VD) - 1)
    unit = F.normalize(rows_VD, dim=-1)
    before = (words_nD[:most] @ unit.T).topk(count + 1).indices
    after = ((words_nD + added_nD)[:most] @ unit.T).topk(count + 1).indices
    shared = (before[:, :, None] == after[:, None, :]).any(-1).float().sum(-1)
    return float(((shared - 1).clamp_min(0) / count).mean())


def _figure(sweep: Sweep) -> Figure:
    factors = [factor for factor, _, _ in sweep]
    marks = (
        mark("line", factors, [float(hits.mean()) for _, hits, _ in sweep], label="position added", emphasis="main"),
        mark("line", factors, [float(x.mean()) for *_, x in sweep], label="random vector added", emphasis="null"),
    )
    panel = Panel(marks, xlabel="position multiplied by", ylabel="nearest to itself", xscale="log", ylim=(0.0, 1.02))
    return Figure((panel,), height=0.4)
