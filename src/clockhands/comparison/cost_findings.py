"""What each variant of a comparison costs, as a finding: parameters, time and memory, beside its score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from clockhands.comparison.plan_settings import METRICS
from clockhands.comparison.results import Comparison
from clockhands.comparison.verdicts import Verdict
from clockhands.findings import Figure, Finding, Mark, Panel, Table

COSTS = (
    "parameters", "steps", "operations a step", "seconds", "peak MiB", "target tokens/s in training",
    "tokens/s written",
)  # fmt: skip


def find_costs(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield quality against parameters, time and memory."""
    rows = [
        (verdict.variant, verdict.score, *_make_cost_row(comparison, verdict.variant))
        for verdict in verdicts
        if comparison.get_trials(verdict.variant)
    ]
    if not rows:
        return
    smallest, largest = min(row[2] for row in rows), max(row[2] for row in rows)
    sizes = f"All have {largest:,}" if smallest == largest else f"Between {smallest:,} and {largest:,}"
    metric = METRICS[comparison.plan.metric]
    marks = tuple(Mark("points", str(row[0]), x=(row[5],), y=(row[1],)) for row in rows)
    yield Finding(
        name="compare.costs",
        question="What does each cost?",
        verdict=f"{sizes} parameters; medians of time, memory and speed are in the table.",
        value=largest,
        unit="parameters of the largest",
        table=Table.of(("variant", metric, *COSTS), rows),
        figure=Figure(
            (Panel(marks, xlabel="seconds of training (median)", ylabel=metric),), title="Score by time of training"
        ),
        method=(
            f"Medians over seeds on {_describe_machines(comparison)}; other work there makes seconds longer, not "
            "shorter."
        ),
    )


def _describe_machines(comparison: Comparison) -> str:
    """Name the machines that the trials ran on."""
    names = dict.fromkeys(trial.machine for trial in comparison.trials if trial.machine is not None)
    return " and ".join(names) or "the machine that ran them"


def _make_cost_row(comparison: Comparison, variant: str) -> tuple[Any, ...]:
    """Return the costs of a variant, in the order of ``COSTS``."""
    cost, trials = comparison.costs[variant], comparison.get_trials(variant)
    medians = (
        _compute_median([trial.seconds for trial in trials]),
        _compute_median([trial.peak_mib for trial in trials]),
        _compute_median([trial.tokens_per_second for trial in trials]),
        _compute_median([trial.written_per_second for trial in trials]),
    )
    return (cost.parameters, cost.steps, cost.flops, *medians)


def _compute_median(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
