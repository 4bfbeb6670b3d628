"""The findings of a comparison, the verdicts first: who is better than the baseline, and of whom that is not known.

Beside them stand the loss in training and on longer text, costs, and what was measured inside the models. Verdicts are
written as tables for a README (Markdown) and a paper (LaTeX) too, and all trials as CSV (``FORMATS``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.comparison.learning import score_matrix
from clockhands.comparison.plan import METRICS, Plan
from clockhands.comparison.results import Comparison, write_trials
from clockhands.comparison.statistics.paired import MIN_SEEDS
from clockhands.comparison.trial import STATUSES
from clockhands.comparison.verdicts import COLUMNS, Verdict, format_rows, format_score, judge
from clockhands.findings import (
    Figure,
    Finding,
    Findings,
    Panel,
    Table,
    draw_columns,
    draw_seeds,
    join_words,
    make_mark,
)

_METHOD = (
    "Every variant is trained from the same seeds, with the same batches and, where names and shapes agree, the same "
    "initial weights, and judged on the same test items; a seed decides {seed}. Differences are paired by seed and "
    "item; items that hang together (twins) count as one, and so do blocks of neighbours where sums of neighbouring "
    "items vary more than in random order (variance ratio, Lo & MacKinlay 1988; permutation test at 0.5 %, which does "
    "not always see a correlation of 0.2 among 28 items, where 88 % of the intervals of a score hold). Intervals "
    "count seeds and items as samples (two-way clustering, Cameron, Gelbach & Miller 2011), and hold for all "
    "comparisons together at 95 % (max-t, Dunnett 1955; variances over seeds moderated after Smyth 2004; variants "
    "with fewer than five paired seeds are widened by Bonferroni instead). Where fewer than ten groups of items tell "
    "two variants apart, the exact interval of a share over these groups (Clopper & Pearson 1934) is taken where it "
    "is wider. Equivalent: two one-sided tests at 5 % (Schuirmann 1987) show a difference below the plan's margin. In "
    "brackets the smallest difference that would have been detected with 80 % power. Learned: seeds that reached the "
    "score from which a seed counts as having learned, with the exact interval of their share, compared by Fisher's "
    "exact test (after Tarone 1990); scores are of the seeds that learned, where some did; if too few did for an "
    "interval, an exact rank test compares all seeds. P: probability that a seed of the variant beats one of the "
    "baseline (Agarwal et al. 2021). p: two-sided, for all comparisons together."
)
STEP_METHOD = (
    ". The best map of one row to the next in at most ten principal components, judged on a quarter of the rows that "
    "is held out at random (`clockhands inspect` holds out whole stretches, and compares with standing still)."
)
UNKNOWN_TO_TEX = {"√": r"$\surd$", "·": r"$\cdot$", "×": r"$\times$", "−": "$-$", "±": r"$\pm$", "χ": r"$\chi$"}
MOST_LINES = 8
"""Of more variants than a reader can tell apart in one picture, the baseline and those that end lowest are drawn."""
Courses = dict[str, dict[Any, list[float]]]
"""By variant and step (or split), the values of all seeds."""


def describe_method(plan: Plan) -> str:
    """Return how verdicts are reached; a seed decides what it decides in this plan."""
    seed = "batches, weights and what a scheme draws, while the training text is the same"
    if plan.redraw_text:
        seed = (
            "the training text (another draw of as much, with replacement where there is no more of it), batches, "
            "weights and what a scheme draws"
        )
    return _METHOD.format(seed=seed)


def conclude(comparison: Comparison, command: str = "") -> Findings:
    """Return the findings of a comparison; of one that has not ended, with the number of trials not run."""
    verdicts, plan = judge(comparison), comparison.plan
    items = [_find_verdicts(comparison, verdicts)]
    for metric in comparison.other_metrics:
        scored = comparison.scored_by(metric)
        question = f"Which is better than {plan.baseline}, by {METRICS[metric]}?"
        finding = _find_verdicts(scored, judge(scored))
        items.append(replace(finding, name=f"{finding.name}.{metric}", question=question))
    for find in (_find_curves, _find_longer_text, find_costs, _find_measurements):
        items += find(comparison, verdicts)
    statuses = [trial.status for trial in comparison.trials]
    trials = [f"{statuses.count(status)} {status}" for status in STATUSES if status in statuses]
    if comparison.missing:
        trials.append(f"{len(comparison.missing)} not run")
    if comparison.outside:
        trials.append(f"{len(comparison.outside)} more not counted, of seeds or variants that the plan does not have")
    kind, amount = plan.budget
    facts: dict[str, Any] = {
        "variants": len(plan.variants),
        "seeds": ", ".join(map(str, plan.seeds)),
        "budget": f"{amount:g} {kind} each, equal {plan.match}",
        "corpus": plan.recipe.corpus,
        "trials": ", ".join(trials) or "none",
    }
    made = tuple(replace(item, command=command) for item in items)
    return Findings(plan.title, made, facts, signature=comparison.signature, command=command)


def _find_verdicts(comparison: Comparison, verdicts: Sequence[Verdict]) -> Finding:
    """Return the finding that a reader looks at first: every variant with its verdict, its score and its seeds."""
    plan, metric, (baseline, *others) = comparison.plan, METRICS[comparison.plan.metric], verdicts
    sentences = [f"{plan.baseline}: {format_score(baseline, plan.digits)}."]
    if warning := _warn_of_nothing(verdicts):
        sentences.append(warning)
    sentences += [f"{verdict.variant}: {verdict.sentence}." for verdict in others]
    kinds = [verdict.learning for verdict in verdicts]
    if sure := [len(learning.learned) for learning in kinds if learning.learned and learning.complete]:
        # A kind that is a share s of all seeds is missing among n in (1 - s)^n of draws: 5 % at s = 1 - 0.05^(1/n).
        sentences.append(
            "Where all seeds learned, intervals and verdicts do not cover a kind of seed that did not come up, such as "
            f"one that fails or scores far lower: among {min(sure)} seeds none may be of a kind that makes up to "
            f"{100 * (1 - 0.05 ** (1 / min(sure))):.0f} % of all."
        )
    rows = []
    for verdict in verdicts:
        gap = verdict.difference
        rows.append((
            verdict.variant, verdict.score, *(verdict.interval or (None, None)), verdict.interquartile,
            *((gap.value, gap.low, gap.high) if gap else (None, None, None)), verdict.probability,
            gap.adjusted if gap else None, str(verdict.learning), verdict.learning_p,
            f"{verdict.finished} of {verdict.planned}", verdict.diverged, verdict.failed,
            None if plan.target is None else f"{verdict.reached} of {verdict.finished}",
            comparison.costs[verdict.variant].parameters, verdict.sentence,
        ))  # fmt: skip
    columns = (
        "variant", metric, "from", "to", "interquartile mean", "difference", "low", "high", "P(better)", "p (max-t)",
        "learned", "p (learned)", "finished", "diverged", "failed", "reached the target", "parameters", "verdict",
    )  # fmt: skip
    lost = any(verdict.failed or not verdict.learning.complete for verdict in verdicts)
    return Finding(
        name="compare.verdict",
        question=f"Which is better than {plan.baseline}?",
        verdict="\n".join(sentences),
        value=baseline.score,
        unit=metric,
        interval=baseline.interval,
        light="warn" if lost or all(verdict.finished < MIN_SEEDS for verdict in verdicts) else "info",
        table=Table.of(columns, rows),
        figure=_draw_scores(comparison, verdicts),
        method=describe_method(plan),
        source="Cameron, Gelbach & Miller 2011; Dunnett 1955; Smyth 2004; Clopper & Pearson 1934; Agarwal et al. 2021",
        details={"opening": summarise_verdicts(verdicts)},
    )


def summarise_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Return who is better and worse than the baseline, and of whom that is not known, in two or three sentences."""
    baseline, *others = verdicts
    if warning := _warn_of_nothing(verdicts):
        return warning
    words = {
        "better": f"Better than “{baseline.variant}”",
        "worse": f"Worse than “{baseline.variant}”",
        "equivalent": "Equivalent",
        "undecided": "Undecided",
        "too few seeds": "Too few seeds to tell",
    }
    groups = {kind: [f"“{verdict.variant}”" for verdict in others if verdict.kind == kind] for kind in words}
    sentences = [f"{words[kind]}: {join_words(names)}." for kind, names in groups.items() if names]
    return " ".join(sentences) if sentences else f"There is nothing but the baseline, “{baseline.variant}”."


def _warn_of_nothing(verdicts: Sequence[Verdict]) -> str:
    """Return a sentence where no seed of any variant learned, so that nothing can be compared; else an empty text."""
    if any(verdict.learning.learned for verdict in verdicts) or all(verdict.score is None for verdict in verdicts):
        return ""
    return "Nothing was learned by any variant, so nothing is known of their differences: give a longer budget."


def _draw_scores(comparison: Comparison, verdicts: Sequence[Verdict]) -> Figure | None:
    """Draw the means with their intervals, and every seed; None where no seed ended."""
    sure = [(verdict.variant, verdict.score, *verdict.interval) for verdict in verdicts if verdict.interval is not None]
    split = any(verdict.learning.mixed for verdict in verdicts if verdict.interval is not None)
    label = "mean and 95 % interval" + ("; where only some seeds learned, of those" if split else "")
    names, means, low, high = zip(*sure, strict=True) if sure else ((),) * 4
    seeds = [
        (verdict.variant, float(scores_N.mean()))
        for verdict in verdicts
        for scores_N in score_matrix(comparison, verdict.variant)
    ]
    marks = (
        make_mark("points", means, names, low=low, high=high, label=label, emphasis="main"),
        make_mark("points", [score for _, score in seeds], [name for name, _ in seeds], label="one seed"),
    )
    drawn = tuple(mark for mark in marks if mark.x)
    xlabel = METRICS[comparison.plan.metric]
    return Figure((Panel(drawn, xlabel=xlabel),), title="Score of every variant") if drawn else None


def _find_curves(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield the validation loss by step."""
    courses: Courses = {}
    rows: list[tuple[Any, ...]] = []
    for name in (verdict.variant for verdict in verdicts):
        trials = comparison.get_trials(name)
        losses = [
            {point.step: point.validation_loss for point in trial.curve if point.validation_loss is not None}
            for trial in trials
        ]
        steps = sorted(set.intersection(*map(set, losses))) if losses else []  # at which every seed was evaluated
        if steps:
            courses[name] = {step: [by_step[step] for by_step in losses] for step in steps}
            hits = [trial.reached for trial in trials if trial.reached]
            when = [_median([getattr(hit, field) for hit in hits]) for field in ("step", "seconds")]
            rows.append((name, *_summarise(courses[name][steps[-1]]), len(hits), *when))
    if not rows:
        return
    best, mean, low, high, *_ = min(rows, key=lambda row: row[1])
    highest = max(float(np.mean(losses)) for course in courses.values() for losses in course.values())
    targets = ("seeds at the target", "median step", "median second")
    yield Finding(
        name="compare.curves",
        question="How do they learn?",
        verdict=f"The lowest mean validation loss at the last evaluation is {mean:.3f} nats per token "
        f"(seeds from {low:.3f} to {high:.3f}), that of {best}.",
        table=Table.of(("variant", "last validation loss", "lowest seed", "highest seed", *targets), rows),
        method="Lines are means over seeds; bands, and the two numbers beside the value, reach from the lowest to the "
        "highest seed. No test compares these losses.",
        **_show_losses(
            courses, comparison.plan.baseline, (mean, low, high), title="Loss while they learn", xlabel="step",
            ylabel="validation loss, nats per token",
            yscale="log" if highest > 10 * mean else "linear",  # over less than a power of ten there may be no tick
        ),
    )  # fmt: skip


def _find_longer_text(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield the loss beyond the trained length, split by split."""
    courses: Courses = {}
    rows: list[tuple[Any, ...]] = []
    for name in (verdict.variant for verdict in verdicts):
        for split in dict.fromkeys(split for trial in comparison.trials for split in trial.longer):
            scores = [trial.longer[split] for trial in comparison.get_trials(name) if split in trial.longer]
            losses = [score.loss for score in scores if score.loss is not None]
            exact = [score.exact for score in scores if score.exact is not None]
            refused = next((score.refused for score in scores if score.refused is not None), None)
            rows.append((name, split, *_summarise(losses), _summarise(exact)[0], refused))
            if losses:
                courses.setdefault(name, {})[split] = losses
    known = [row for row in rows if row[2] is not None]
    if not known:
        return
    # The first split that any variant could read: all of them may refuse one, and read another.
    best, split, mean, low, high, *_ = min((row for row in known if row[1] == known[0][1]), key=lambda row: row[2])
    yield Finding(
        name="compare.lengths",
        question="What do they do with longer text than they were trained on?",
        verdict=f"On {split} the lowest mean loss is {mean:.2f} nats per token (seeds from {low:.2f} to {high:.2f}), "
        f"that of {best}.",
        table=Table.of(("variant", "split", "loss", "lowest seed", "highest seed", "exact match %", "refused"), rows),
        method="Splits whose every text is longer than all training text; means over seeds, with the lowest and the "
        "highest seed. No test compares these losses.",
        **_show_losses(
            courses, comparison.plan.baseline, (mean, low, high), title="Loss on longer text", xlabel="split",
            ylabel="loss, nats per token",
        ),
    )  # fmt: skip


def _show_losses(courses: Courses, baseline: str, lowest: tuple[float, float, float], **axes: Any) -> dict[str, Any]:
    """Return the value and the figure of a finding of losses: the lowest, and lines of those that end lowest."""
    ends = {name: float(np.mean(list(course.values())[-1])) for name, course in courses.items()}
    others = sorted((name for name in ends if name != baseline), key=lambda name: ends[name])
    chosen = {baseline, *others[: MOST_LINES - 1]}
    panel = "" if len(chosen) >= len(ends) else f"{baseline} and the {MOST_LINES - 1} lowest of the others"
    drawn = {name: course for name, course in courses.items() if name in chosen}
    figure = draw_seeds(drawn, panel=panel, **axes)
    return {"value": lowest[0], "unit": "nats per token", "interval": lowest[1:], "figure": figure}


def find_costs(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield quality against parameters, time and memory."""
    medians = {
        "seconds": "seconds",
        "peak MiB": "peak_mib",
        "target tokens/s in training": "tokens_per_second",
        "tokens/s written": "written_per_second",
    }
    rows: list[tuple[Any, ...]] = []
    for verdict in verdicts:
        if trials := comparison.get_trials(verdict.variant):
            cost = comparison.costs[verdict.variant]
            measured = [_median([getattr(trial, field) for trial in trials]) for field in medians.values()]
            rows.append((verdict.variant, verdict.score, cost.parameters, cost.steps, cost.flops, *measured))
    if not rows:
        return
    smallest, largest = min(row[2] for row in rows), max(row[2] for row in rows)
    sizes = f"All have {largest:,}" if smallest == largest else f"Between {smallest:,} and {largest:,}"
    metric = METRICS[comparison.plan.metric]
    machines = dict.fromkeys(trial.machine for trial in comparison.trials if trial.machine is not None)
    yield Finding(
        name="compare.costs",
        question="What does each cost?",
        verdict=f"{sizes} parameters; medians of time, memory and speed are in the table.",
        value=largest,
        unit="parameters of the largest",
        table=Table.of(("variant", metric, "parameters", "steps", "operations a step", *medians), rows),
        figure=draw_columns(
            "points", None, {str(row[0]): {row[5]: row[1]} for row in rows}, title="Score by time of training",
            xlabel="seconds of training (median)", ylabel=metric,
        ),
        method=f"Medians over seeds on {' and '.join(machines) or 'the machine that ran them'}; other work there makes "
        "seconds longer, not shorter.",
    )  # fmt: skip


def _find_measurements(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield one finding for each number that was measured inside the models."""
    ends = ("low", "high")
    for name in dict.fromkeys(name for trial in comparison.trials for name in trial.measured.after):
        rows: list[tuple[Any, ...]] = []  # of each variant, mean, lowest and highest seed before, halfway and after
        courses: Courses = {}
        for variant in (verdict.variant for verdict in verdicts):
            measured = [trial.measured for trial in comparison.get_trials(variant)]
            before = [moments.before[name] for moments in measured if name in moments.before]
            after = [moments.after[name] for moments in measured if name in moments.after]
            if before and after:
                course = list_course(comparison, variant, name)
                middle = min(course, key=lambda step: abs(step - max(course) / 2), default=0)
                rows.append((variant, *map(_summarise, (before, course.get(middle, []), after))))
                courses |= {variant: course} if course else {}
        if not rows:
            continue
        names, before_V, halfway_V, after_V = zip(*rows, strict=True)
        if courses:
            moments = {"before": before_V, "halfway": halfway_V, "after": after_V}
            positive = all(value > 0 for course in courses.values() for values in course.values() for value in values)
            figure = draw_seeds(
                courses, title=f"{name} during training".capitalize(), xlabel="step", ylabel=name,
                yscale="log" if positive else "linear",
            )  # fmt: skip
        else:
            moments = {"before": before_V, "after": after_V}
            drawn = {f"{moment} training": list(zip(*values, strict=True)) for moment, values in moments.items()}
            figure = draw_columns(
                "points", names, {label: means for label, (means, _, _) in drawn.items()},
                intervals={label: (low, high) for label, (_, low, high) in drawn.items()},
                title=f"{name} of every variant".capitalize(), sideways=True, xlabel=name,
            )  # fmt: skip
        columns = ["variant", *(column for moment in moments for column in (moment, *ends))]
        mean, low, high = after_V[0]
        yield Finding(
            name=f"inside.{name}",
            question=f"Inside: {name}",
            verdict=f"{names[0]}: {before_V[0][0]:.3g} before training, {mean:.3g} after (seeds from {low:.3g} to "
            f"{high:.3g}).",
            value=mean,
            interval=(low, high),
            table=Table.of(
                columns, [(row[0], *sum(row[1:], ())) for row in zip(names, *moments.values(), strict=True)]
            ),
            figure=figure,
            method="Means over seeds with the lowest and the highest seed"
            + (STEP_METHOD if name.startswith("error of a step") else ", as `clockhands inspect` measures them.")
            + (" Halfway: the evaluation nearest to the middle of training." if courses else ""),
        )


def list_course(comparison: Comparison, variant: str, name: str) -> dict[int, list[float]]:
    """Return by step the values of all seeds that have that step; the step 0 is before training."""
    course: dict[int, list[float]] = {}
    for trial in comparison.get_trials(variant):
        during = [(step, values) for step, values in trial.measured.during if name in values]
        start = [(0, trial.measured.before)] if during and name in trial.measured.before else []
        for step, values in [*start, *during]:
            course.setdefault(step, []).append(values[name])
    return course


def _median(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _summarise(values: Sequence[float]) -> tuple[float | None, ...]:
    """Return mean, lowest and highest value; None three times where there is none."""
    return (float(np.mean(values)), min(values), max(values)) if values else (None, None, None)


def write_markdown(comparison: Comparison) -> str:
    """Return a table for a README, with its signature beneath."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *format_rows(comparison)]
    lines = ["| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", f"{METRICS[comparison.plan.metric]}; `{comparison.signature}`", ""])


def write_latex(comparison: Comparison) -> str:
    """Return a table with caption and label, no wider than the text, and a paragraph on the statistics."""
    from tabulate import tabulate

    plan, (kind, amount) = comparison.plan, comparison.plan.budget
    metric = METRICS[plan.metric]
    columns = ("variant", "score", "difference", "p", "learned", "verdict")
    rows = [
        (*row[:3], row[4], "{}/{}".format(*verdict.learning.counts), verdict.kind)
        for row, verdict in zip(format_rows(comparison), judge(comparison), strict=True)
    ]
    caption = (
        f"{plan.title}{'' if plan.title.endswith('?') else '.'} {metric[0].upper()}{metric[1:]}, {len(plan.seeds)} "
        f"seeds, {amount:,g} {kind} each; in brackets 95 % intervals, of differences from {plan.baseline} for all "
        "comparisons together."
    )
    label = re.sub(r"[^a-z0-9]+", "-", plan.title.lower()).strip("-") or "comparison"
    table = tabulate(rows, columns, tablefmt="latex_booktabs", disable_numparse=True)
    lines = [
        f"% {comparison.signature}",
        r"% in the preamble: \usepackage{booktabs,adjustbox}",
        r"\begin{table}", r"\centering\small", rf"\caption{{{escape(caption)}}}", rf"\label{{tab:{label}}}",
        r"\begin{adjustbox}{max width=\linewidth}", _write_signs(table), r"\end{adjustbox}", r"\end{table}", "",
        rf"\paragraph{{Statistics.}} {escape(describe_method(plan))}", "",
    ]  # fmt: skip
    return "\n".join(lines)


def escape(text: str) -> str:
    """Return text with what LaTeX would take as a command written as itself."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"}
    special |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
    return _write_signs("".join(special.get(letter, letter) for letter in text))


def _write_signs(text: str) -> str:
    """Return text with signs that LaTeX does not know as commands, and with minus signs before numbers."""
    text = re.sub(r"(?<![\w.)}-])-(?=\d)", "−", text)
    return "".join(UNKNOWN_TO_TEX.get(letter, letter) for letter in text)


FORMATS: Mapping[str, Callable[[Comparison], str]] = {
    "markdown": write_markdown,
    "latex": write_latex,
    "csv": write_trials,
}
