"""What a person sees of a comparison: the plan with its costs, and the trials as they run."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from rich import box
from rich.console import Console
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from clockhands.comparison import Comparison, Plan, Trial
from clockhands.comparison.execution import TrialProgress
from clockhands.comparison.results import PLAN, read_comparison
from clockhands.comparison.task_findings import describe_ceiling, find_plan_ceiling
from clockhands.comparison.trial import STATUSES, Job
from clockhands.progress import describe_time_left, print_sentence


def describe(plan: Plan, workers: int, threads: int) -> int:
    """Print what would be trained: parameters, steps and an estimate of the time, from a few steps and a scoring.

    These are measured with as many ``threads`` as a trial has.
    """
    from clockhands.comparison.cost import estimate_plan, measure_costs, measure_overheads
    from clockhands.devices import check_threads, use_threads

    check_threads(workers, "workers")
    check_threads(threads, "threads")
    with use_threads(threads):
        costs = measure_costs(plan, print_sentence)
        print_sentence(f"training {plan.baseline} for a few steps, and scoring it, to estimate the time")
        overheads = measure_overheads(plan, costs)
    table = Table(box=box.SIMPLE)
    for column in ("variant", "changes", "parameters", "steps", "ms a step"):
        table.add_column(column, justify="left" if column in ("variant", "changes") else "right")
    for variant in plan.variants:
        cost = costs[variant.name]
        changes = ", ".join(f"{key}={value}" for key, value in {**variant.overrides, **cost.changes}.items())
        row = (f"{cost.parameters:,}", f"{cost.steps:,}", f"{1000 * cost.seconds:.0f}")
        table.add_row(Text(variant.name), Text(changes), *row)
    Console().print(table)
    seconds = estimate_plan(plan, costs, overheads, workers)
    kind, amount = plan.budget
    print(
        f"{len(plan.variants)} variants × {len(plan.seeds)} seeds = {len(plan.trials)} trials; baseline {plan.baseline}"
    )
    print(f"budget {amount:g} {kind} each, equal {plan.match}; metric {plan.metric}")
    print(describe_ceiling(find_plan_ceiling(plan), plan.despite).verdict)
    print(f"about {duration(seconds)} with {workers} worker{'s' * (workers != 1)}")
    if overheads.busy:
        print(
            f"(as busy as this machine is now: other work left this measurement {100 * overheads.share:.0f} % of a "
            f"processor; with a whole one it is about {duration(seconds * overheads.share)})"
        )
    return 0


def print_verdicts(comparison: Comparison) -> None:
    """Print a row for each variant: its score, its difference from the baseline, and the verdict in one word.

    The whole sentences stand in the findings above; as a column here they would not fit into a terminal of 80 columns.
    """
    from clockhands.comparison.verdicts import COLUMNS, format_rows, judge

    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for column in COLUMNS:
        # Whole words, whatever the width of the terminal: rich would cut them and end them with an ellipsis.
        table.add_column(column, overflow="fold", min_width=len("equivalent" if column == "verdict" else column))
    for row, verdict in zip(format_rows(comparison), judge(comparison), strict=True):
        table.add_row(*map(Text, row[:-1]), Text(verdict.kind))
    Console().print(table)


def duration(seconds: float) -> str:
    """Return a time in words: ``40 seconds``, ``12 minutes``, ``3.5 hours``."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


class TrialTable(TrialProgress):
    """A table of variants while trials run; a line a trial where there is no terminal."""

    def __init__(self, plan: Plan, out: str | Path, workers: int, *, quiet: bool) -> None:
        self.plan, self.workers, self.quiet = plan, workers, quiet
        self.console = Console(stderr=True)
        path = Path(out)
        self.ended: list[Trial] = list(read_comparison(path).trials) if (path / PLAN).is_file() else []
        self.before = len(self.ended)
        self.running: set[tuple[str, int]] = set()
        self.begun = time.monotonic()
        self.live: RichLive | None = None

    def __enter__(self) -> TrialTable:
        if not self.quiet and self.console.is_terminal:
            self.live = RichLive(self.table(), console=self.console, refresh_per_second=2, get_renderable=self.table)
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, _: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()
        if kind is KeyboardInterrupt and not self.quiet:
            self.console.print(
                f"{len(self.ended)} of {len(self.plan.trials)} trials are kept; the same command goes on"
            )

    def say(self, sentence: str) -> None:
        """Print what is done before the first trial begins."""
        if not self.quiet:
            self.console.print(Text(sentence))

    def begin(self, job: Job) -> None:
        """Take in that a trial begins."""
        self.running.add(job.key)

    def end(self, trial: Trial) -> None:
        """Take in a trial that ended, and print it where there is no terminal."""
        self.running.discard(trial.key)
        self.ended.append(trial)
        if self.live is None and not self.quiet:
            score = f" {trial.items_N.mean():.4g}" if trial.finished else f": {trial.error or ''}"
            line = f"{len(self.ended)} of {len(self.plan.trials)}  {trial.variant}, seed {trial.seed}: "
            self.console.print(Text(f"{line}{trial.status}{score}  {self.left()}"))

    def left(self) -> str:
        """Return the time that is left, from the trials that ended here."""
        done, missing = len(self.ended) - self.before, len(self.plan.trials) - len(self.ended)
        return describe_time_left(done, done + missing, time.monotonic() - self.begun) if missing else ""

    def table(self) -> Table:
        """Return a table with a row for each variant."""
        title = f"{len(self.ended)} of {len(self.plan.trials)} trials  {self.left()}"
        table = Table(title=Text(title), box=box.SIMPLE)
        for column in ("variant", "finished", "diverged", "failed", "running", self.plan.metric):
            table.add_column(column, justify="left" if column == "variant" else "right")
        for variant in self.plan.variants:
            trials = [trial for trial in self.ended if trial.variant == variant.name]
            counts = [str(sum(trial.status == status for trial in trials)) for status in STATUSES]
            scores = [trial.items_N.mean() for trial in trials if trial.finished]
            running = str(sum(name == variant.name for name, _ in self.running))
            mean = f"{sum(scores) / len(scores):.3g}" if scores else ""
            table.add_row(Text(variant.name), *counts, running, mean)
        return table
