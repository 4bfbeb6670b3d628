"""Results to Findings: the verdicts, the learning curves, longer texts, cost against quality, the inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from clockhands.comparison.asked import METRICS
from clockhands.comparison.inner import insides
from clockhands.comparison.judge import Judged, judge, matrix
from clockhands.comparison.losses import curves, lengths
from clockhands.comparison.statistics import MIN_SEEDS
from clockhands.comparison.store import Results
from clockhands.findings import Figure, Finding, Findings, Light, Mark, Panel, Table

METHOD = (
    "Every variant is trained from the same seeds, with the same batches and, where names and shapes agree, the same "
    "initial weights, and judged on the same test items. Differences are paired by seed and item; intervals resample "
    "both (pigeonhole bootstrap, Owen 2007), as bootstrap t intervals on the seeds' degrees of freedom (Hesterberg "
    "2015), simultaneous over all comparisons at 95 % (Bonferroni). In brackets what would have been seen with 80 % "
    "power. P: probability that a seed of the variant beats one of the baseline (Agarwal et al. 2021). p: Holm 1979."
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
    known = [one for one in judged if one.score is not None]
    shown = [one for one in known if one.interval is not None]
    marks: list[Mark] = [
        Mark(
            "points",
            "mean and 95 % interval",
            x=tuple(one.score for one in shown),
            y=tuple(one.name for one in shown),
            low=tuple(one.interval[0] for one in shown if one.interval),
            high=tuple(one.interval[1] for one in shown if one.interval),
            emphasis="main",
        ),
        Mark(
            "points",
            "one seed",
            x=tuple(v for one in known for v in _scores(results, one.name)),
            y=tuple(one.name for one in known for _ in _scores(results, one.name)),
        ),
    ]
    yield Finding(
        name="compare.verdict",
        question=f"Which is better than {plan.baseline}?",
        verdict="\n".join([f"{plan.baseline}: {_score(baseline)}.", *said]),
        value=baseline.score,
        unit=METRICS[plan.metric],
        interval=baseline.interval,
        light=_light(judged),
        table=verdict_table(judged, results),
        figure=Figure((Panel(tuple(mark for mark in marks if mark.x), xlabel=METRICS[plan.metric]),))
        if known
        else None,
        method=METHOD,
        source="Owen 2007; Hesterberg 2015; Agarwal et al. 2021; Holm 1979",
    )


def verdict_table(judged: list[Judged], results: Results) -> Table:
    """A row a variant."""
    columns = (
        "variant",
        METRICS[results.plan.metric],
        "from",
        "to",
        "interquartile mean",
        "difference",
        "low",
        "high",
        "P(better)",
        "p (Holm)",
        "finished",
        "diverged",
        "failed",
        "reached the target",
        "parameters",
        "verdict",
    )
    rows = []
    for one in judged:
        gap, cost = one.difference, results.costs[one.name]
        rows.append(
            (
                one.name,
                one.score,
                *(one.interval or (None, None)),
                one.interquartile,
                *((gap.value, gap.low, gap.high) if gap else (None, None, None)),
                one.probability,
                one.holm,
                f"{one.finished} of {one.planned}",
                one.diverged,
                one.failed,
                f"{one.reached} of {one.finished}" if results.plan.target is not None else None,
                cost["parameters"],
                one.verdict,
            )
        )
    return Table.of(columns, rows)


def costs(results: Results, judged: list[Judged]) -> Iterator[Finding]:
    """Quality against parameters, time and memory."""
    rows = []
    for one in judged:
        done = results.of(one.name)
        if done:
            cost = results.costs[one.name]
            median = {
                key: float(np.median([t[key] for t in done])) for key in ("seconds", "peak_mib", "tokens_per_second")
            }
            writing = [t["written_per_second"] for t in done if "written_per_second" in t]
            rows.append(
                (
                    one.name,
                    one.score,
                    cost["parameters"],
                    cost["steps"],
                    cost["flops"],
                    *median.values(),
                    float(np.median(writing)) if writing else None,
                )
            )
    if not rows:
        return
    smallest, largest = min(row[2] for row in rows), max(row[2] for row in rows)
    marks = tuple(Mark("points", str(row[0]), x=(row[5],), y=(row[1],)) for row in rows)
    yield Finding(
        name="compare.costs",
        question="What does each cost?",
        verdict=f"Between {smallest:,} and {largest:,} parameters; medians of time, memory and speed are in the table.",
        value=largest,
        unit="parameters of the largest",
        table=Table.of(
            (
                "variant",
                METRICS[results.plan.metric],
                "parameters",
                "steps",
                "operations a step",
                "seconds",
                "peak MiB",
                "target tokens/s in training",
                "tokens/s written",
            ),
            rows,
        ),
        figure=Figure((Panel(marks, xlabel="seconds of training (median)", ylabel=METRICS[results.plan.metric]),)),
        method="Medians over seeds on the machine that ran them; other work there makes seconds longer, not shorter.",
    )


def _scores(results: Results, name: str) -> list[float]:
    return [float(score) for score in matrix(results, name).mean(axis=1)] if results.of(name) else []


def _score(one: Judged) -> str:
    if one.score is None:
        return "no seed finished"
    interval = f" [{one.interval[0]:.1f}, {one.interval[1]:.1f}]" if one.interval else ""
    return f"{one.score:.1f}{interval}"


def _light(judged: list[Judged]) -> Light:
    lost = any(one.diverged or one.failed for one in judged)
    return "warn" if lost or all(one.finished < MIN_SEEDS for one in judged) else "info"
