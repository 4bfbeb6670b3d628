"""Findings of what was measured inside the models of a comparison, before and after training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from clockhands.comparison.judge import Judged
from clockhands.comparison.store import Results
from clockhands.findings import Figure, Finding, Mark, Panel, Table


def insides(results: Results, judged: list[Judged]) -> Iterator[Finding]:
    """What was measured inside, before and after training."""
    names = list(dict.fromkeys(key for one in results.trials for key in one.get("inside", {}).get("after", {})))
    for name in names:
        rows: list[tuple[Any, ...]] = [
            (one.name, *_inside(results, one.name, "before", name), *_inside(results, one.name, "after", name))
            for one in judged
        ]
        rows = [row for row in rows if row[1] is not None]
        if rows:
            yield Finding(
                name=f"inside.{name}",
                question=f"Inside: {name}",
                verdict=f"{rows[0][0]}: {rows[0][1]:.3g} before training, {rows[0][4]:.3g} after "
                f"[{rows[0][5]:.3g}, {rows[0][6]:.3g}].",
                value=rows[0][4],
                interval=(rows[0][5], rows[0][6]),
                table=Table.of(("variant", "before", "low", "high", "after", "low", "high"), rows),
                figure=_inside_figure(rows, name),
                method="Means over seeds with the lowest and the highest seed, as `clockhands inspect` measures them.",
            )


def _inside(results: Results, variant: str, when: str, name: str) -> tuple[float | None, ...]:
    found = [one["inside"][when][name] for one in results.of(variant) if name in one.get("inside", {}).get(when, {})]
    return (float(np.mean(found)), min(found), max(found)) if found else (None, None, None)


def _inside_figure(rows: list[Any], name: str) -> Figure:
    names = tuple(row[0] for row in rows)
    marks = tuple(
        Mark(
            "points",
            label,
            x=tuple(r[i] for r in rows),
            y=names,
            low=tuple(r[i + 1] for r in rows),
            high=tuple(r[i + 2] for r in rows),
        )
        for label, i in (("before training", 1), ("after training", 4))
    )
    return Figure((Panel(marks, xlabel=name),))
