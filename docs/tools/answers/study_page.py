"""Write the page of a study from its committed results: what ``generate.py`` keeps in docs/studies/NAME.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from answer_page import write_table
from kept import Measured
from measurement_notes import describe_earlier_plan, describe_missing, describe_order_blind

from clockhands.comparison import Comparison, Plan, conclude
from clockhands.comparison.findings import write_markdown
from clockhands.comparison.plan import METRICS
from clockhands.findings import Finding
from clockhands.studies import Study, answer_question
from clockhands.studies.scaling import SIZES
from clockhands.studies.soundness import INSIDE, check_ordering, list_tried


def select_sizes(name: str, sized: Measured) -> dict[str, Comparison]:
    """Return the results of a study by their size, in the order of `SIZES`; ``sized``: of all, as ``scale.long``."""
    return {size: sized[f"{name}.{size}"] for size in SIZES if f"{name}.{size}" in sized}


def write_study(study: Study, comparison: Comparison, sized: Mapping[str, Comparison]) -> str:
    """Return a study's page: question, claims, design, result, verdict, what would change it, the other sizes, and the
    command.
    """
    items = conclude(comparison).items
    claims = [f"- “{claim}”" for claim in study.claims]
    plan = comparison.plan
    notes = [note for note in (describe_earlier_plan(study, comparison), describe_missing(comparison)) if note]
    text = f" --text FOLDER\n\nThe text: {study.text.source}." if study.text.files else ""
    body = [
        f"# {study.question}", "", *(part for note in notes for part in (f"*{note}*", "")),
        "## What people answer", "", *claims, "", "## Design", "", f"{study.design} {_describe_setting(plan)}.", "",
        f"**Can the task be done without order?** {describe_order_blind(study, plan)}", "",
        items[0].method, "", "## Result", "", f"![{study.question}](figures/{study.name}.svg)", "",
        *_write_tables(study, comparison, items), "## Verdict", "", answer_question(study, comparison), "",
        "## What would change it", "", study.change, "",
        *(["## The other sizes", "", *_write_sizes(study, sized)] if sized else []), "## The command", "",
        f"    clockhands study {study.name}{text}", "",
    ]  # fmt: skip
    return "\n".join(body)


def _describe_setting(plan: Plan) -> str:
    """Return how many trainings of which length a plan has, on which task and at which width."""
    kind, amount = plan.budget
    return (
        f"{len(plan.variants)} variants × {len(plan.seeds)} seeds, {amount:,g} {kind} each, equal {plan.match}; corpus "
        f"*{plan.recipe.corpus}*, d_model {plan.recipe.model.d_model}"
    )


def _write_sizes(study: Study, sized: Mapping[str, Comparison]) -> Iterable[str]:
    """Yield the lines that tell each other size in which the study was run: what it is, its command, its verdicts."""
    for size, comparison in sized.items():
        yield from (
            f"### {size}", "", f"{SIZES[size].says[0].upper()}{SIZES[size].says[1:]}.", "",
            f"{_describe_setting(comparison.plan)}: `clockhands study {study.name} --scale {size}`.", "",
            write_markdown(comparison),
        )  # fmt: skip
        yield from map(write_markdown, map(comparison.scored_by, comparison.other_metrics))
        yield from _write_orderings(study, comparison, level=4)
        items = conclude(comparison).items
        yield from _write_other_tables(
            (item for item in items if item.name == "compare.lengths" or item.name.startswith("inside.")), level=4
        )


def _write_tables(study: Study, comparison: Comparison, items: Iterable[Finding]) -> list[str]:
    """Return the tables; without the score's where a study trains too little for it to say anything."""
    if study.unscored:
        return [
            f"`{comparison.signature}`",
            "",
            *_write_other_tables(item for item in items if item.name.startswith("inside.")),
        ]
    others = [write_markdown(comparison.scored_by(metric)) for metric in comparison.other_metrics]
    return [
        write_markdown(comparison),
        *others,
        *_write_single_trainings(comparison),
        *_write_orderings(study, comparison),
        *_write_other_tables(items),
    ]


def _write_single_trainings(comparison: Comparison) -> list[str]:
    """Return every training by itself, with intervals over test items alone; for a comparison that has not ended."""
    if not comparison.missing:
        return []
    scored = [comparison, *map(comparison.scored_by, comparison.other_metrics)]
    columns = ("variant", "seed", *(METRICS[by_metric.plan.metric] for by_metric in scored), "seconds")
    rows = [
        (*trials[0].key, *(_bound_items(trial.items_N) for trial in trials), f"{trials[0].seconds or 0:.0f}")
        for trials in zip(*(by_metric.trials for by_metric in scored), strict=True)
        if trials[0].finished
    ]
    note = (
        "Intervals are of the test items alone: they tell how another test set could move the score of this training, "
        "and nothing of what another seed would give."
    )
    return ["### Every training by itself", "", *write_table(columns, [map(str, row) for row in rows]), "", note, ""]


def _bound_items(items_N: Any) -> str:
    """Return the mean of a training's items with its 95 % interval over items."""
    mean, reach = items_N.mean(), 1.96 * items_N.std(ddof=1) / len(items_N) ** 0.5
    return f"{mean:.1f} [{mean - reach:.1f}, {mean + reach:.1f}]"


def _write_orderings(study: Study, comparison: Comparison, level: int = 3) -> list[str]:
    """Return what the literature reports of two variants, beside what was measured here; ``level``: of the heading."""
    columns = ("claim", "source", "measured", "verdict")
    tried = list_tried(study, comparison)
    checked = [check_ordering(own, comparison, len(tried)) for own in tried if _has_measured(comparison, own.on)]
    rows = [[getattr(ordering, name) for name in columns] for ordering in checked]
    if not rows:
        return []
    lines = [_write_row(cells, range(4)) for cells in (columns, ["---"] * 4, *rows)]
    title = f"{'#' * level} What the literature reports, and what was measured here"
    method = (
        "Differences are paired by seed, with simultaneous 95 % intervals (two-way clustering, Bonferroni). They hold "
        "together for these orderings alone, as those of the first table do for its variants: the same pair can be "
        "decided here and not there."
    )
    return [title, "", *lines, "", method, ""]


def _has_measured(comparison: Comparison, on: str) -> bool:
    """Return whether a comparison has what an ordering is about: a size may have other lengths, or no measures."""
    finished = [trial for trial in comparison.trials if trial.finished]
    if on.startswith(INSIDE):
        when, _, name = on.partition(": ")
        return all(name in getattr(trial.measured, when) for trial in finished)
    return on == "score" or all(on.removesuffix(", growth") in trial.longer for trial in finished)


def _write_other_tables(items: Iterable[Finding], level: int = 3) -> list[str]:
    """Return the tables of findings other than verdicts, without their empty columns; ``level``: of their headings."""
    lines = []
    for item in items:
        if not item.name.startswith("compare.verdict") and item.table.rows:
            columns, rows = _pivot_lengths(item) if item.name == "compare.lengths" else _merge_ranges(item)
            shown = [i for i in range(len(columns)) if any(row[i] for row in rows)]
            lines += [
                f"{'#' * level} {item.question}",
                "",
                _write_row(columns, shown),
                _write_row(["---"] * len(columns), shown),
            ]
            lines += [_write_row(row, shown) for row in rows]
            lines += ["", item.method, ""]
    return lines


def _merge_ranges(item: Finding) -> tuple[list[str], list[list[str]]]:
    """Return the table as text, in which a value and the two columns of its range are one cell: 4.2 [4.15, 4.25]."""
    columns = list(item.table.columns)
    firsts = [i for i in range(len(columns)) if columns[i] not in RANGE]

    def cell(row: tuple[Any, ...], i: int) -> str:
        if columns[i + 1 : i + 3] in RANGES and row[i] is not None:
            return _format_range(*row[i : i + 3])
        return _format_cell(row[i])

    return [columns[i] for i in firsts], [[cell(row, i) for i in firsts] for row in item.table.rows]


def _pivot_lengths(item: Finding) -> tuple[list[str], list[list[str]]]:
    """Return the losses on longer text: a row for each variant, a column for each split."""
    splits = list(dict.fromkeys(str(row[1]) for row in item.table.rows))
    cells: dict[str, dict[str, str]] = {}
    for variant, split, loss, low, high, _, refused in item.table.rows:
        cells.setdefault(variant, {})[split] = "refused" if refused else _format_range(loss, low, high)
    rows = [[variant, *(own.get(split, "") for split in splits)] for variant, own in cells.items()]
    exact = [row[5] for row in item.table.rows if row[5] is not None]
    beside = [f"{split}, loss" for split in splits]
    if exact and max(exact) == 0:
        beside[-1] += " (exact match: 0 % everywhere)"
    return ["variant", *beside], rows


RANGES = (["low", "high"], ["lowest seed", "highest seed"])
RANGE = {name for pair in RANGES for name in pair}


def _format_range(value: Any, low: Any, high: Any) -> str:
    if value is None or _format_cell(low) == _format_cell(high):
        return _format_cell(value)
    return f"{_format_cell(value)} [{_format_cell(low)}, {_format_cell(high)}]"


def _write_row(cells: Any, shown: Iterable[int]) -> str:
    return "| " + " | ".join(str(cells[column]) for column in shown) + " |"


def _format_cell(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return "" if value is None else str(value)
