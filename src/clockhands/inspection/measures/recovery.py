"""Does adding the position destroy the word?"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from clockhands.findings import Figure, Finding, Panel, Table
from clockhands.inspection.capture import Capture
from clockhands.inspection.drawing import level, mark, percent, skip
from clockhands.inspection.numbers import bootstrap
from clockhands.inspection.probes import nearest_row
from clockhands.inspection.subject import Subject, Tables
from clockhands.shapes import Float, Int, Tensor

QUESTION = "Does adding the position destroy the word?"
METHOD = (
    "For tokens of the text at their own places: is the token row nearest (by cosine, rows centred) to the sum of"
    " token row and centred position row still the token's own, among all words of the text and 4000 more? Null: "
    "a random vector as long as the position row is added instead, which is what adding would cost if positions "
    "took no care of the words. 'Neighbours kept' is the part of the ten nearest rows that is the same before and"
    " after."
)
MOST_TOKENS = 2000
MORE_WORDS = 4000


def recovery(subject: Subject, capture: Capture) -> Finding:
    """Token identity read from the bare sum, against a random addition of the same length."""
    tables = subject.tables()
    if tables is None:
        return skip("recovery", QUESTION, f"Nothing is added to the words. {subject.mechanism}")
    if subject.concatenates:
        return skip("recovery", QUESTION, "Positions stand beside the words here, so nothing is added to them.")
    rows, targets, places = _sample(tables, capture)
    offsets = tables.positions_PD[: capture.length] - tables.positions_PD[: capture.length].mean(0)
    added = offsets[places]
    generator = torch.Generator().manual_seed(0)
    noise = F.normalize(torch.randn(added.shape, generator=generator), dim=-1) * added.norm(dim=-1, keepdim=True)
    words = rows[targets]
    hits = (nearest_row(words + added, rows) == targets).float()
    chance = float((nearest_row(words + noise, rows) == targets).float().mean())
    kept, kept_chance = _neighbours(rows, words, added), _neighbours(rows, words, noise)
    found = float(hits.mean())
    low, high = bootstrap(hits, torch.ones_like(hits))
    return Finding(
        name="recovery",
        question=QUESTION,
        verdict=(
            f"{percent(found)} of the words are still nearest to themselves after their position is added "
            f"({percent(chance)} "
            f"with a random vector of that length); {percent(kept)} of their neighbours stay "
            f"({percent(kept_chance)})."
        ),
        value=found,
        interval=(low, high),
        null=chance,
        light="good" if found > 0.95 else "warn" if found > 0.5 else "bad",
        table=Table.of(
            ("added", "words recovered", "neighbours kept"),
            [("position row", found, kept), ("random vector of the same length", chance, kept_chance)],
        ),
        figure=_figure(hits, places, chance),
        method=METHOD,
        source="Yedidia 2023 for the question",
    )


def _sample(tables: Tables, capture: Capture) -> tuple[Tensor, Int[Tensor, " n"], Int[Tensor, " n"]]:
    """Candidate rows, and the sampled tokens as (row, place)."""
    generator = torch.Generator().manual_seed(0)
    ordinary = capture.ordinary_T.nonzero().flatten()
    ids = capture.ids_NT[:, ordinary]
    more = torch.randperm(len(tables.words_VD), generator=generator)[:MORE_WORDS]
    candidates = torch.cat([ids.flatten(), more]).unique()
    rows = tables.words_VD[candidates]
    picks = torch.randperm(ids.numel(), generator=generator)[:MOST_TOKENS]
    targets = torch.searchsorted(candidates, ids.flatten()[picks])
    return rows - rows.mean(0), targets, ordinary.repeat(len(ids))[picks]


def _neighbours(rows_VD: Tensor, words_nD: Tensor, added_nD: Tensor, count: int = 10, most: int = 300) -> float:
    unit = F.normalize(rows_VD, dim=-1)
    before = (words_nD[:most] @ unit.T).topk(count + 1).indices
    after = ((words_nD + added_nD)[:most] @ unit.T).topk(count + 1).indices
    shared = (before[:, :, None] == after[:, None, :]).any(-1).float().sum(-1)
    return float(((shared - 1).clamp_min(0) / count).mean())


def _figure(hits_n: Float[Tensor, " n"], places_n: Int[Tensor, " n"], chance: float) -> Figure:
    """Recovery by place, in at most 16 bins."""
    bins = (places_n * 16 // (int(places_n.max()) + 1)).long()
    x = [float(places_n[bins == b].float().mean()) for b in bins.unique()]
    y = [float(hits_n[bins == b].mean()) for b in bins.unique()]
    marks = (mark("line", x, y, label="words recovered", emphasis="main"), level(chance, "random vector added"))
    return Figure((Panel(marks, xlabel="position", ylabel="nearest to itself", ylim=(0.0, 1.02)),), height=0.4)
