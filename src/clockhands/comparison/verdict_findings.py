"""Results to Findings: the verdicts, the learning curves, longer texts, cost against quality, the inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.comparison.asked import METRICS
from clockhands.comparison.folder import Result, Results
from clockhands.comparison.loss_findings import curves, lengths
from clockhands.comparison.measure_findings import insides
from clockhands.comparison.statistics import MIN_SEEDS
from clockhands.comparison.verdicts import Judged, judge, matrix, scored
from clockhands.findings import Figure, Finding, Findings, Light, Mark, Panel, Table

METHOD = (
    "Every variant is trained from the same seeds, with the same batches and, where names and shapes agree, the same "
    "initial weights, and judged on the same test items. Differences are paired by seed and item; intervals resample "
    "both (pigeonhole bootstrap, Owen 2007), as bootstrap t intervals on the seeds' degrees of freedom (Hesterberg "
    "2015), simultaneous over all comparisons at 95 % (Bonferroni). In brackets what would have been seen with 80 % "
    "power. P: probability that a seed of the variant beats one of the baseline (Agarwal et al. 2021). p: two-sided, "
    "times the number of comparisons (Dunn 1961)."
)


def conclude(results: Results, command: str = "") -> Findings:
    """The findings of a comparison, finished or not: what is missing is said."""
    judged = judge(results)
    makers = (verdicts, curves, lengths, costs, insides)
    items = tuple(replace(item, command=command) for make in makers for item in make(results, judged))
    plan = results.plan
    kind, amount = plan.budget
    return Findings(
        title=plan.title,
        items=items,
        facts={
            "variants": len(plan.variants),
            "seeds": ", ".join(map(str, plan.seeds)),
            "budget": f"{amount:g} {kind} each, equal {plan.match}",
            "corpus": plan.recipe.corpus,
            "trials": _count(results),
        },
        signature=results.signature,
        command=command,
    )


def _count(results: Results) -> str:
    statuses = [one["status"] for one in results.trials]
    parts = [f"{statuses.count(s)} {s}" for s in ("finished", "diverged", "failed") if s in statuses]
    missing = [f"{len(results.missing)} not run"] if results.missing else []
    return ", ".join([*parts, *missing]) or "none"


def verdicts(results: Results, judged: list[Judged]) -> Iterator[Finding]:
    """The table that everybody looks at first."""
    plan, (baseline, *others) = results.plan, judged
    said = [f"{one.name}: {one.verdict}." for one in others]
    marks = _marks(results, judged)
    yield Finding(
        name="compare.verdict",
        question=f"Which is better than {plan.baseline}?",
        verdict="\n".join([f"{plan.baseline}: {scored(baseline, plan.digits)}.", *said]),
        value=baseline.score,
        unit=METRICS[plan.metric],
        interval=baseline.interval,
        light=_light(judged),
        table=verdict_table(judged, results),
        figure=Figure((Panel(marks, xlabel=METRICS[plan.metric]),)) if marks else None,
        method=METHOD,
        source="Owen 2007; Hesterberg 2015; Agarwal et al. 2021; Dunn 1961",
    )


def _marks(results: Results, judged: list[Judged]) -> tuple[Mark, ...]:
    """Means with their intervals, and every seed as a point."""
    shown = [(one, one.score, one.interval) for one in judged if one.interval is not None]
    seeds = [(value, one.name) for one in judged for value in _scores(results, one.name)]
    means = Mark(
        "points",
        "mean and 95 % interval",
        x=tuple(score for _, score, _ in shown),
        y=tuple(one.name for one, *_ in shown),
        low=tuple(interval[0] for *_, interval in shown),
        high=tuple(interval[1] for *_, interval in shown),
        emphasis="main",
    )
    single = Mark("points", "one seed", x=tuple(value for value, _ in seeds), y=tuple(name for _, name in seeds))
    return tuple(mark for mark in (means, single) if mark.x)


def verdict_table(judged: list[Judged], results: Results) -> Table:
    """A row a variant."""
    columns = (
        "variant", METRICS[results.plan.metric], "from", "to", "interquartile mean", "difference", "low", "high",
        "P(better)", "p (Bonferroni)", "finished", "diverged", "failed", "reached the target", "parameters", "verdict",
    )  # fmt: skip
    return Table.of(columns, [_judgement(one, results) for one in judged])


def _judgement(one: Judged, results: Results) -> tuple[Any, ...]:
    gap = one.difference
    return (
        one.name,
        one.score,
        *(one.interval or (None, None)),
        one.interquartile,
        *((gap.value, gap.low, gap.high) if gap else (None, None, None)),
        one.probability,
        gap.adjusted if gap else None,
        f"{one.finished} of {one.planned}",
        one.diverged,
        one.failed,
        f"{one.reached} of {one.finished}" if results.plan.target is not None else None,
        results.costs[one.name]["parameters"],
        one.verdict,
    )


COSTS = (
    "parameters", "steps", "operations a step", "seconds", "peak MiB", "target tokens/s in training",
    "tokens/s written",
)  # fmt: skip


def costs(results: Results, judged: list[Judged]) -> Iterator[Finding]:
    """Quality against parameters, time and memory."""
    rows = [(one.name, one.score, *_spent(results, one.name)) for one in judged if results.of(one.name)]
    if not rows:
        return
    smallest, largest = min(row[2] for row in rows), max(row[2] for row in rows)
    metric = METRICS[results.plan.metric]
    marks = tuple(Mark("points", str(row[0]), x=(row[5],), y=(row[1],)) for row in rows)
    yield Finding(
        name="compare.costs",
        question="What does each cost?",
        verdict=f"Between {smallest:,} and {largest:,} parameters; medians of time, memory and speed are in the table.",
        value=largest,
        unit="parameters of the largest",
        table=Table.of(("variant", metric, *COSTS), rows),
        figure=Figure((Panel(marks, xlabel="seconds of training (median)", ylabel=metric),)),
        method=f"Medians over seeds on {_machines(results)}; other work there makes seconds longer, not shorter.",
    )


def _machines(results: Results) -> str:
    named = list(dict.fromkeys(one["machine"] for one in results.trials if "machine" in one))
    return " and ".join(named) or "the machine that ran them"


def _spent(results: Results, name: str) -> tuple[Any, ...]:
    """What ``COSTS`` names."""
    cost, done = results.costs[name], results.of(name)
    medians = [_median(done, key) for key in ("seconds", "peak_mib", "tokens_per_second", "written_per_second")]
    return (cost["parameters"], cost["steps"], cost["flops"], *medians)


def _median(trials: list[Result], key: str) -> float | None:
    found = [one[key] for one in trials if key in one]
    return float(np.median(found)) if found else None


def _scores(results: Results, name: str) -> list[float]:
    return [float(score) for score in matrix(results, name).mean(axis=1)] if results.of(name) else []


def _light(judged: list[Judged]) -> Light:
    lost = any(one.diverged or one.failed for one in judged)
    return "warn" if lost or all(one.finished < MIN_SEEDS for one in judged) else "info"
