"""The parts of a scheme's page that say when to take it and when not: what was measured of it, and what it declares.

Imported by ``make_schemes.py``. The results are those in docs/studies/results and benchmarks/results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.extending_orderings import ORDERINGS
from kept import Measured, list_kept, read_kept
from scheme_orderings import SchemeOrdering, collect_orderings
from scheme_results import (
    MOST_ORDERINGS,
    MOST_TOLD,
    Result,
    choose_results,
    collect_results,
    describe_result,
    list_largest,
    list_users,
)

from clockhands.findings import join_words
from clockhands.scheme_pages.page import Page

ROOT = Path(__file__).resolve().parent.parent
EXTENDED = ROOT / "benchmarks" / "results" / "extending_pairs.json"
"""Of models that were made to read further than they were trained: ``python benchmarks/extending_pairs.py FOLDER``."""
ONLY_WORSE = "What was measured of it here is worse than its reference, and stands below."
UNMEASURED = "It was not measured here: no study has it among its variants."
RULE_AT = "README.md#which-results-are-told"


def write_advice(page: Page) -> list[str]:
    """Return the lines of both parts: what is worse than its reference stands under *When not to take it*."""
    results, orderings = list_largest(collect_measured().get(page.name, [])), collect_checked().get(page.name, [])
    ordered = orderings[:MOST_ORDERINGS]
    told = choose_results(results, MOST_TOLD - len(ordered))
    lines_told = [(f"- {order.sentence}. {write_link(order.study)}", order.worse) for order in ordered]
    lines_told += [(write_result(result, page.name), result.worse) for result in told]
    worse, others = ([line for line, is_worse in lines_told if is_worse == part] for part in (True, False))
    lines = ["## When to take it", "", *(others or ([ONLY_WORSE] if worse else write_unmeasured(page)))]
    number, total = len(told) + len(ordered), len(results) + len(orderings)
    if number < total:
        lines += ["", f"Here and below {number} of {total} results are told, [by this rule]({RULE_AT})."]
    lines += ["", "## When not to take it", "", *worse, *(f"- {limit[0].upper()}{limit[1:]}." for limit in page.limits)]
    nothing = "Nothing that it declares, and nothing that was measured, speaks against it."
    return lines + ([] if worse or page.limits else [nothing])


def write_result(result: Result, scheme: str) -> str:
    """Return the line of a result."""
    return f"- {describe_result(result, scheme)}. {write_link(result.name)}"


def write_link(name: str) -> str:
    """Return a link to the page of a study, which does not have the results of other sizes: the size is told."""
    study, _, size = name.partition(".")
    return f"[{study}{f', size {size}' if size else ''}](../studies/{study}.md)"


def write_unmeasured(page: Page) -> list[str]:
    """Return what there is to say of a scheme of which no study has a result."""
    if studies := find_users().get(page.name):
        names = join_words(f"*{study}*" for study in studies)
        return [f"It stands among the variants of {names}, and no result there compares it with other positions."]
    axes = page.declares["axes"]
    pictures = (
        f" It reads {axes} coordinates, as pictures have, and the studies train on text." if (axes or 1) > 1 else ""
    )
    lines = write_extension(page, json.loads(EXTENDED.read_text("utf8"))["results"])
    return [
        UNMEASURED + pictures,
        *(["", "As a change of models that were trained with rotary embedding:", ""] if lines else []),
        *lines,
    ]


def write_extension(page: Page, measured: Mapping[str, Any]) -> list[str]:
    """Return what is known of a scheme as a change of trained models: the published orderings, and how often chosen."""
    orderings = {ordering.claim: (ordering.better, ordering.worse) for ordering in ORDERINGS}
    rows = [row for row in measured["orderings"] if page.name in orderings[row["ordering"]]]
    if not rows:
        return []
    forms = [variant.name for variant in page.variants]
    itself = f"it or a form of it ({join_words(forms)})" if forms else "it"
    chosen, best = (
        sum(pair[key] in (page.name, *forms) for pair in measured["pairs"]) for key in ("chosen", "best of all")
    )
    return [
        *(f"- {write_ordering(row)}" for row in rows),
        f"- Of {len(measured['pairs'])} pairs of a small model and a length, `clockhands extend` chose {itself} in "
        f"{chosen}; in {best} it was the best of all that were measured. [Benchmarks](../../benchmarks/README.md)",
    ]


def write_ordering(row: Mapping[str, Any]) -> str:
    """Return a published ordering with what was found of it in the reference models."""
    claim = f"{row['ordering'][0].upper()}{row['ordering'][1:]} ({row['source']}): {row['verdict']}"
    if "nats" not in row:
        return f"{claim}."
    numbers = [f"{row[key]:.2f}".replace("-", "−") for key in ("nats", "low", "high")]
    return (
        f"{claim}. It is shown in {len(row['comes out in'])} of {row['models']} small models and its reverse in "
        f"{len(row['contradicted in'])}; the mean difference is {numbers[0]} nats [{numbers[1]}, {numbers[2]}]."
    )


@cache
def read_measured() -> Measured:
    """Return the committed results of all studies and their sizes; what is planned comes before other sizes."""
    return {name: read_kept(name) for name in sorted(list_kept())}


@cache
def collect_measured() -> Mapping[str, list[Result]]:
    """Return the results of every scheme."""
    return collect_results(read_measured())


@cache
def collect_checked() -> Mapping[str, list[SchemeOrdering]]:
    """Return the published orderings that are about one scheme, by scheme."""
    return collect_orderings(read_measured())


@cache
def find_users() -> Mapping[str, list[str]]:
    """Return the studies that use a scheme, by scheme."""
    return list_users(read_measured())
