"""The findings of a comparison, the verdicts first: who is better than the baseline, and of whom that is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clockhands.comparison.learning import score_matrix
from clockhands.comparison.plan import METRICS, Plan
from clockhands.comparison.results import Comparison
from clockhands.comparison.statistics.paired import MIN_SEEDS
from clockhands.comparison.trial import STATUSES
from clockhands.comparison.trial_findings import find_costs, find_curves, find_longer_text, find_measurements
from clockhands.comparison.verdicts import Verdict, format_score, judge
from clockhands.findings import Figure, Finding, Findings, Panel, Table, join_words, make_mark

_METHOD = (
    "Every variant is trained from the same seeds, with the same batches and, where names and shapes agree, the same "
    "initial weights, and judged on the same test items; a seed decides {seed}. "
    "Differences are paired by seed and item; items that hang together (twins) count as one, and so do blocks of "
    "neighbours where sums of neighbouring items vary more than in random order (variance ratio, Lo & MacKinlay 1988; "
    "permutation test at 0.5 %). Intervals count seeds and "
    "items as samples (two-way clustering, Cameron, Gelbach & Miller 2011), and hold for all comparisons together at "
    "95 % (max-t, Dunnett 1955; variances over seeds moderated "
    "after Smyth 2004; variants with fewer than five paired seeds are widened by Bonferroni instead). "
    "Where fewer than ten groups of items tell two variants apart, the exact interval of a share "
    "over these groups (Clopper & Pearson 1934) is taken where it is wider. Equivalent: two one-sided tests at 5 % "
    "(Schuirmann 1987) show a difference below the plan's margin. In brackets the smallest difference that would have "
    "been detected with 80 % power. Learned: seeds that reached the score from which a seed counts as having learned, "
    "with the exact interval of their share, compared by Fisher's exact test (after Tarone 1990); scores are of the "
    "seeds that learned, where some did; if too few did for an interval, an exact rank test "
    "compares all seeds. P: probability that a seed of the variant beats one of the baseline (Agarwal "
    "et al. 2021). p: two-sided, for all comparisons together."
)


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
    for find in (find_curves, find_longer_text, find_costs, find_measurements):
        items += find(comparison, verdicts)
    statuses = [trial.status for trial in comparison.trials]
    trials = [f"{statuses.count(status)} {status}" for status in STATUSES if status in statuses]
    if comparison.missing:
        trials.append(f"{len(comparison.missing)} not run")
    if comparison.outside:
        trials.append(f"{len(comparison.outside)} more not counted, of seeds or variants that the plan does not have")
    kind, amount = plan.budget
    return Findings(
        title=plan.title,
        items=tuple(replace(item, command=command) for item in items),
        facts={
            "variants": len(plan.variants),
            "seeds": ", ".join(map(str, plan.seeds)),
            "budget": f"{amount:g} {kind} each, equal {plan.match}",
            "corpus": plan.recipe.corpus,
            "trials": ", ".join(trials) or "none",
        },
        signature=comparison.signature,
        command=command,
    )


def _find_verdicts(comparison: Comparison, verdicts: Sequence[Verdict]) -> Finding:
    """Return the finding that a reader looks at first: every variant with its verdict."""
    plan, (baseline, *others) = comparison.plan, verdicts
    sentences = [f"{plan.baseline}: {format_score(baseline, plan.digits)}."]
    if warning := _warn_of_nothing(verdicts):
        sentences.append(warning)
    sentences += [f"{verdict.variant}: {verdict.sentence}." for verdict in others]
    kinds = [verdict.learning for verdict in verdicts]
    sure = [len(learning.learned) for learning in kinds if learning.learned and learning.complete]
    if sure:
        # Of n seeds that learned the share that fails is below 1 - 0.05^(1/n), at 95 %: of five, below 45 %.
        sentences.append(
            f"Where all seeds learned, intervals and verdicts do not cover seeds that fail: of {min(sure)} none did, "
            f"which a failure in up to {100 * (1 - 0.05 ** (1 / min(sure))):.0f} % of all seeds leaves possible."
        )
    lost = any(verdict.failed or not verdict.learning.complete for verdict in verdicts)
    return Finding(
        name="compare.verdict",
        question=f"Which is better than {plan.baseline}?",
        verdict="\n".join(sentences),
        value=baseline.score,
        unit=METRICS[plan.metric],
        interval=baseline.interval,
        light="warn" if lost or all(verdict.finished < MIN_SEEDS for verdict in verdicts) else "info",
        table=_make_verdict_table(comparison, verdicts),
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
    metric = METRICS[comparison.plan.metric]
    sure = [(verdict.variant, verdict.score, *verdict.interval) for verdict in verdicts if verdict.interval is not None]
    split = any(verdict.learning.mixed for verdict in verdicts if verdict.interval is not None)
    label = "mean and 95 % interval" + ("; where only some seeds learned, of those" if split else "")
    names, means, low, high = zip(*sure, strict=True) if sure else ((),) * 4
    seeds = [
        (verdict.variant, scores_N.mean())
        for verdict in verdicts
        for scores_N in score_matrix(comparison, verdict.variant)
    ]
    marks = (
        make_mark("points", means, names, low=low, high=high, label=label, emphasis="main"),
        make_mark("points", [float(score) for _, score in seeds], [name for name, _ in seeds], label="one seed"),
    )
    drawn = tuple(mark for mark in marks if mark.x)
    return Figure((Panel(drawn, xlabel=metric),), title="Score of every variant") if drawn else None


def _make_verdict_table(comparison: Comparison, verdicts: Sequence[Verdict]) -> Table:
    """List every variant with its score, its difference and its seeds."""
    columns = (
        "variant", METRICS[comparison.plan.metric], "from", "to", "interquartile mean", "difference", "low", "high",
        "P(better)", "p (max-t)", "learned", "p (learned)", "finished", "diverged", "failed", "reached the target",
        "parameters", "verdict",
    )  # fmt: skip
    rows = []
    for verdict in verdicts:
        gap, targeted = verdict.difference, comparison.plan.target is not None
        rows.append((
            verdict.variant, verdict.score, *(verdict.interval or (None, None)), verdict.interquartile,
            *((gap.value, gap.low, gap.high) if gap else (None, None, None)), verdict.probability,
            gap.adjusted if gap else None, str(verdict.learning), verdict.learning_p,
            f"{verdict.finished} of {verdict.planned}", verdict.diverged, verdict.failed,
            f"{verdict.reached} of {verdict.finished}" if targeted else None,
            comparison.costs[verdict.variant].parameters, verdict.sentence,
        ))  # fmt: skip
    return Table.of(columns, rows)
