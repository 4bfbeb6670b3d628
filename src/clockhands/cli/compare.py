"""``clockhands compare``: train variants of a model with several seeds, and say whether they differ."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.cli.common import report_new_folder
from clockhands.cli.compare_options import BUDGETS, arguments, write_command
from clockhands.errors import ClockhandsError, UsageError
from clockhands.options import read_assignments

if TYPE_CHECKING:
    from clockhands.comparison import Comparison, Plan
    from clockhands.data.trigram import Floor
    from clockhands.findings import Finding

__all__ = ["EXAMPLES", "USUAL", "arguments", "execute", "find_task", "present", "run"]

EXAMPLES = (
    "clockhands compare --corpus roles --vary position.scheme=sinusoidal,none --seeds 2 --steps 10 --out runs/compare",
    "clockhands compare recipes/sweep.toml --dry-run",
    "clockhands compare --corpus roles --vary position.scheme=sinusoidal,none --seeds 2 --steps 10 --out runs/compare "
    "--format markdown",
)


def run(options: argparse.Namespace) -> int:
    """Make the plan, run its trials that are missing, and present the verdicts."""
    plan = _read_plan(options)
    if options.dry_run:
        from clockhands.cli.trials import describe

        return describe(plan, options.workers, options.threads)
    with report_new_folder(options.out, quiet=options.quiet):
        comparison = execute(plan, options, options.out)
    return present(comparison, options, write_command(options))


def execute(plan: Plan, options: argparse.Namespace, out: str | Path) -> Comparison:
    """Run the trials of a plan, and show a table of their progress."""
    from clockhands.cli.trials import TrialTable
    from clockhands.comparison import run_plan

    running = {name: getattr(options, name) for name in ("workers", "threads", "on", "gpus", "keep")}
    with TrialTable(plan, out, options.workers, quiet=options.quiet) as table:
        return run_plan(plan, out, progress=table, **running)


def present(comparison: Comparison, options: argparse.Namespace, words: str) -> int:
    """Write the page of a comparison, or print its table; return the exit code, 1 if no trial finished."""
    if options.format == "page":
        from clockhands.comparison import conclude
        from clockhands.comparison.task_findings import find_plan_floor
        from clockhands.progress import print_sentence
        from clockhands.report import show, write

        if not options.quiet:
            print_sentence("judging the scores and drawing the page")
        findings = conclude(comparison, words)
        floor = find_plan_floor(comparison.plan)
        findings = replace(findings, items=(*findings.items, *find_task(comparison, floor)))
        page = write(findings, Path(options.out), name="report.html")[0]
        show(findings)
        print(f"\nThe page: {page}")
    else:
        from clockhands.comparison.formats import FORMATS as WRITERS

        print(WRITERS[options.format](comparison), end="")
    return 0 if any(trial.finished for trial in comparison.trials) else 1


def find_task(comparison: Comparison, floor: Floor | None) -> tuple[Finding, ...]:
    """Return findings about the task: its order-blind ceiling and, for real text, the floor of the loss."""
    from clockhands.comparison.task_findings import describe_ceiling, describe_floor, find_plan_ceiling

    plan = comparison.plan
    ceiling = describe_ceiling(find_plan_ceiling(plan), plan.despite)
    return (ceiling,) if floor is None else (ceiling, describe_floor(floor, comparison))


def _read_plan(options: argparse.Namespace) -> Plan:
    """Make the plan from a file, or from the options of the command line."""
    from clockhands.comparison import read_plan
    from clockhands.comparison.plan import make_plan
    from clockhands.comparison.plan_file import read_grid

    overrides: dict[str, Any] = {
        name: value for name in ("seeds", "baseline", "metric", "match", "margin", "learned", "target")
        if (value := getattr(options, name)) is not None
    }  # fmt: skip
    budget = {kind: amount for kind in BUDGETS if (amount := getattr(options, kind)) is not None}
    if budget:
        overrides["budget"] = budget
    if options.redraw_text:
        overrides["redraw_text"] = True
    if options.plan is not None and options.vary and options.recipe is None and _is_recipe(options.plan):
        options.plan, options.recipe = None, options.plan
    if options.plan is not None:
        stray = [f"--{name}" for name in ("data", "corpus", "recipe", "vary", "overrides") if getattr(options, name)]
        if stray:
            raise UsageError(
                f"{options.plan} says what is varied; leave out {', '.join(stray).replace('overrides', 'set')}"
            )
        return read_plan(options.plan, overrides)
    if not options.vary:
        raise UsageError("there is nothing to compare: give a plan, or --vary position.scheme=sinusoidal,rope")
    recipe = _read_recipe(options)
    overrides.setdefault("budget", {"steps": recipe.training.max_steps})
    return make_plan(recipe, vary=read_grid(options.vary, recipe), source="the command", **overrides)


def _is_recipe(path: str) -> bool:
    """Return whether a file is a recipe, which has a table [data]; a plan has none."""
    from clockhands.runs.recipe import read_tables

    try:
        return "data" in read_tables(path)
    except ClockhandsError:
        return False


def _read_recipe(options: argparse.Namespace) -> Any:
    """Make the recipe that all variants share."""
    from clockhands.runs.recipe import make_recipe, read_tables

    tables: dict[str, Any] = (
        read_tables(options.recipe) if options.recipe else {name: dict(t) for name, t in USUAL.items()}
    )
    if options.data is not None:
        tables["data"] = {"corpus": "table", "train": options.data}
    elif options.corpus is not None:
        tables["data"] = {"corpus": options.corpus}
    if "data" not in tables:
        raise UsageError("there is no text: give --data, --corpus or --recipe")
    return make_recipe(tables, read_assignments(options.overrides), written=True, source="the command")


USUAL: dict[str, dict[str, Any]] = {
    "model": {"preset": "tiny", "norm": "pre"},
    "batches": {"size": 64, "bucketed": False},
    "training": {
        "max_steps": 400, "learning_rate": 2e-3, "schedule": "cosine", "warmup_steps": 40, "log_steps": 20,
        "eval_steps": 50, "explosion": 0.0,
    },
}  # fmt: skip
"""The recipe that is varied where none is given: small enough for a laptop."""
