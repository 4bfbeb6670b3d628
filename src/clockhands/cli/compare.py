"""``clockhands compare``: train variants of a model with several seeds, and say whether they differ."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from clockhands.cli.common import report_new_folder
from clockhands.cli.flags import POSITIONAL, list_given, refuse_several, write_command
from clockhands.errors import ClockhandsError, UsageError
from clockhands.options import options_of, read_assignments

if TYPE_CHECKING:
    from clockhands.comparison import Comparison, Plan
    from clockhands.data.bounds import Floor
    from clockhands.findings import Findings

Format: TypeAlias = Literal["page", "markdown", "latex", "csv"]
BUDGETS = ("steps", "tokens", "seconds")


@dataclass(frozen=True, kw_only=True)
class Running:
    """Where and how trials run; a trial is the training of one variant with one seed.

    Args:
        workers: run N trials at the same time, each in a process
        threads: use N processor threads for each trial
        on: run the trials on Ray: ray, or ray://host:10001
        gpus: on Ray: GPUs for each trial; 0.5 lets two trials share one (default: 0)
        keep: keep the trained models, in the folder running of --out
        quiet: show no progress
    """

    workers: Annotated[int, "N"] = 1
    threads: Annotated[int, "N"] = 1
    on: Annotated[str | None, "WHERE"] = None
    gpus: Annotated[float, "X"] = 0.0
    keep: bool = False
    quiet: bool = False


@dataclass(frozen=True, kw_only=True)
class Options(Running):
    """What is compared, and how it is judged.

    Args:
        plan: a plan (TOML) such as recipes/sweep.toml; or with --vary a recipe
        data: your own pairs of sentences: TSV, CSV or JSON Lines with the columns source and target
        corpus: a corpus, such as numbers, roles, algorithms or stdlib
        recipe: the recipe that all variants share (default: a tiny model)
        vary: keys of the recipe, each with its values; every combination is a variant
        overrides: keys of the recipe that all variants share
        seeds: train every variant with N seeds (default: 5, the fewest that give a verdict)
        redraw_text: train each seed on another draw of the training text, so that a difference holds for more than this
            text (default: all seeds on the same)
        baseline: the variant with which the others are compared (default: the first)
        metric: exact (share of exact matches), bleu, chrf or loss (default: as the task needs)
        match: what is equal in all variants besides the budget: width, parameters or compute (default: width)
        margin: differences smaller than X count as none (default: 1 point of exact, 0.3 of bleu or chrf, 0.01 of loss)
        learned: count the seeds whose score is X or better: they have learned the task
        target: report when the validation loss first is X or lower
        steps: train each variant and seed for N steps
        tokens: train each variant and seed for N tokens
        seconds: train each variant and seed for N seconds
        out: where results and report are written; what is there already is not trained again
        dry_run: print the plan and how long it takes; train nothing else
        format: write a page, or print the table as Markdown, LaTeX or CSV
    """

    plan: Annotated[str | None, POSITIONAL] = None
    data: Annotated[str | None, "FILE"] = None
    corpus: Annotated[str | None, "NAME"] = None
    recipe: Annotated[str | None, "FILE"] = None
    vary: Annotated[tuple[str, ...], "KEY=A,B,C"] = ()
    overrides: Annotated[tuple[str, ...], "KEY=VALUE", "--set"] = ()
    seeds: Annotated[int | None, "N"] = None
    redraw_text: bool = False
    baseline: Annotated[str | None, "NAME"] = None
    metric: Annotated[str | None, "NAME"] = None
    match: Annotated[str | None, "NAME"] = None
    margin: Annotated[float | None, "X"] = None
    learned: Annotated[float | None, "X"] = None
    target: Annotated[float | None, "X"] = None
    steps: Annotated[float | None, "N"] = None
    tokens: Annotated[float | None, "N"] = None
    seconds: Annotated[float | None, "N"] = None
    out: Annotated[str, "FOLDER"] = "runs/compare"
    dry_run: bool = False
    format: Format = "page"


EXAMPLES = (
    "clockhands compare --corpus roles --vary position.scheme=sinusoidal,none --seeds 2 --steps 10 --out runs/compare",
    "clockhands compare recipes/sweep.toml --dry-run",
    "clockhands compare --corpus roles --vary position.scheme=sinusoidal,none --seeds 2 --steps 10 --out runs/compare "
    "--format markdown",
)


def run(options: Options) -> int:
    """Make the plan, run its trials that are missing, and present the verdicts."""
    plan = _read_plan(options)
    if options.dry_run:
        from clockhands.cli.trials import describe

        return describe(plan, options.workers, options.threads)
    with report_new_folder(options.out, quiet=options.quiet):
        comparison = execute(plan, options, options.out)
    return present(comparison, options, write_command("compare", options, ("format", *options_of(Running))))


def execute(plan: Plan, options: Running, out: str | Path) -> Comparison:
    """Run the trials of a plan, and show a table of their progress."""
    from clockhands.cli.trials import TrialTable
    from clockhands.comparison import run_plan

    running = {name: getattr(options, name) for name in ("workers", "threads", "on", "gpus", "keep")}
    with TrialTable(plan, out, options.workers, quiet=options.quiet) as table:
        return run_plan(plan, out, progress=table, **running)


def present(comparison: Comparison, options: Any, words: str) -> int:
    """Write the page of a comparison, or print its table; return the exit code, 1 if no trial finished."""
    if options.format == "page":
        from clockhands.comparison import conclude
        from clockhands.comparison.task_findings import find_plan_floor
        from clockhands.progress import print_sentence

        if not options.quiet:
            print_sentence("judging the scores and drawing the page")
        page = write_page(conclude(comparison, words), comparison, find_plan_floor(comparison.plan), options.out)
        print(f"\nThe page: {page}")
    else:
        from clockhands.comparison.findings import FORMATS as WRITERS

        print(WRITERS[options.format](comparison), end="")
    return 0 if any(trial.finished for trial in comparison.trials) else 1


def write_page(findings: Findings, comparison: Comparison, floor: Floor | None, out: str) -> Path:
    """Show findings, and write their page, with the order-blind ceiling of the task and, of real text, the floor."""
    from clockhands.comparison.task_findings import describe_ceiling, describe_floor, find_plan_ceiling
    from clockhands.report import show, write

    plan = comparison.plan
    task = [describe_ceiling(find_plan_ceiling(plan), plan.despite)]
    task += [] if floor is None else [describe_floor(floor, comparison)]
    findings = replace(findings, items=(*findings.items, *task))
    page = write(findings, Path(out), name="report.html")[0]
    show(findings)
    return page


def _read_plan(options: Options) -> Plan:
    """Make the plan from a file, or from the options of the command line."""
    from clockhands.comparison import read_plan
    from clockhands.comparison.plan import make_plan, read_grid
    from clockhands.runs.recipe import make_recipe, read_tables

    overrides: dict[str, Any] = {
        name: value for name in ("seeds", "baseline", "metric", "match", "margin", "learned", "target")
        if (value := getattr(options, name)) is not None
    }  # fmt: skip
    refuse_several(options, BUDGETS, "how long")
    if budget := {kind: amount for kind in BUDGETS if (amount := getattr(options, kind)) is not None}:
        overrides["budget"] = budget
    if options.redraw_text:
        overrides["redraw_text"] = True
    if options.plan is not None and options.vary and options.recipe is None:
        # A recipe, which has a table [data]; a plan has none.
        with contextlib.suppress(ClockhandsError):
            if "data" in read_tables(options.plan):
                options = replace(options, plan=None, recipe=options.plan)
    if options.plan is not None:
        if stray := list_given(options, ("data", "corpus", "recipe", "vary", "overrides")):
            raise UsageError(f"{options.plan} says what is varied; leave out {', '.join(stray)}")
        return read_plan(options.plan, overrides)
    if not options.vary:
        raise UsageError("there is nothing to compare: give a plan, or --vary position.scheme=sinusoidal,rope")
    tables: dict[str, Any] = read_tables(options.recipe) if options.recipe else copy.deepcopy(USUAL)
    if options.data is not None:
        tables["data"] = {"corpus": "table", "train": options.data}
    elif options.corpus is not None:
        tables["data"] = {"corpus": options.corpus}
    if "data" not in tables:
        raise UsageError("there is no text: give --data, --corpus or --recipe")
    recipe = make_recipe(tables, read_assignments(options.overrides), written=True, source="the command")
    overrides.setdefault("budget", {"steps": recipe.training.max_steps})
    return make_plan(recipe, vary=read_grid(options.vary, recipe), source="the command", **overrides)


USUAL: dict[str, dict[str, Any]] = {
    "model": {"preset": "tiny", "norm": "pre"},
    "batches": {"size": 64, "bucketed": False},
    "training": {
        "max_steps": 400, "learning_rate": 2e-3, "schedule": "cosine", "warmup_steps": 40, "log_steps": 20,
        "eval_steps": 50, "explosion": 0.0,
    },
}  # fmt: skip
"""The recipe that is varied where none is given: small enough for a laptop."""
