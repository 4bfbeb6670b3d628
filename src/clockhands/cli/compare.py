"""``clockhands compare``: train variants of a model with several seeds, and say whether they differ."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.cli.common import as_float, as_int, report_new_folder
from clockhands.errors import ClockhandsError, UsageError
from clockhands.options import read_assignments

if TYPE_CHECKING:
    from clockhands.comparison import Comparison, Plan
    from clockhands.findings import Finding

__all__ = [
    "BUDGETS",
    "EXAMPLES",
    "FORMATS",
    "USUAL",
    "add_running",
    "arguments",
    "command",
    "execute",
    "present",
    "run",
]

EXAMPLES = (
    "clockhands compare --corpus roles --vary position.scheme=sinusoidal,none --seeds 2 --steps 10 --out runs/compare",
    "clockhands compare recipes/sweep.toml --dry-run",
    "clockhands compare --corpus roles --vary position.scheme=sinusoidal,none --seeds 2 --steps 10 --out runs/compare "
    "--format markdown",
)
FORMATS = ("page", "markdown", "latex", "csv")
BUDGETS = ("steps", "tokens", "seconds")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("plan", nargs="?", help="a plan (TOML) such as recipes/sweep.toml; or with --vary a recipe")
    parser.add_argument(
        "--data",
        metavar="FILE",
        help="your own pairs of sentences: TSV, CSV or JSON Lines with the columns source and target",
    )
    parser.add_argument("--corpus", metavar="NAME", help="a corpus, such as numbers, roles, algorithms or stdlib")
    parser.add_argument("--recipe", metavar="FILE", help="the recipe that all variants share (default: a tiny model)")
    parser.add_argument(
        "--vary",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=A,B,C",
        help="keys of the recipe, each with its values; every combination is a variant",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="keys of the recipe that all variants share",
    )
    _add_judging(parser)
    parser.add_argument("--out", default="runs/compare", metavar="FOLDER",
                        help="where results and report are written; what is there already is not trained again "
                        "(default: %(default)s)")  # fmt: skip
    parser.add_argument(
        "--dry-run", action="store_true", help="print the plan and how long it takes; train nothing else"
    )
    parser.add_argument("--format", choices=FORMATS, default="page",
                        help="write a page, or print the table as Markdown, LaTeX or CSV (default: page)")  # fmt: skip
    add_running(parser)


def _add_judging(parser: argparse.ArgumentParser) -> None:
    """Declare how the variants are compared: seeds, baseline, metric, margin, and what they have in common."""
    parser.add_argument(
        "--seeds",
        type=as_int,
        metavar="N",
        help="train every variant with N seeds (default: 5, the fewest that give a verdict)",
    )
    parser.add_argument("--redraw-text", action="store_true",
                        help="train each seed on another draw of the training text, so that a difference holds for "
                        "more than this text (default: all seeds on the same)")  # fmt: skip
    parser.add_argument(
        "--baseline", metavar="NAME", help="the variant with which the others are compared (default: the first)"
    )
    parser.add_argument("--metric", metavar="NAME",
                        help="exact (share of exact matches), bleu, chrf or loss (default: as the task "
                        "needs)")  # fmt: skip
    parser.add_argument("--match", metavar="NAME",
                        help="what is equal in all variants besides the budget: width, parameters or compute "
                        "(default: width)")  # fmt: skip
    parser.add_argument("--margin", type=as_float, metavar="X",
                        help="differences smaller than X count as none (default: 1 point of exact, 0.3 of "
                        "bleu or chrf, 0.01 of loss)")  # fmt: skip
    parser.add_argument("--learned", type=as_float, metavar="X",
                        help="count the seeds whose score is X or better: they have learned the task")  # fmt: skip
    parser.add_argument("--target", type=as_float, metavar="X",
                        help="report when the validation loss first is X or lower")  # fmt: skip
    budget = parser.add_mutually_exclusive_group()
    for kind in BUDGETS:
        budget.add_argument(f"--{kind}", type=as_float, metavar="N", help=f"train each variant and seed for N {kind}")


def add_running(parser: argparse.ArgumentParser) -> None:
    """Declare where and how trials run; a trial is the training of one variant with one seed."""
    parser.add_argument("--workers", type=as_int, default=1, metavar="N",
                        help="run N trials at the same time, each in a process (default: %(default)s)")  # fmt: skip
    parser.add_argument("--threads", type=as_int, default=1, metavar="N",
                        help="use N processor threads for each trial (default: %(default)s)")  # fmt: skip
    parser.add_argument("--on", metavar="WHERE", help="run the trials on Ray: ray, or ray://host:10001")
    parser.add_argument("--gpus", type=as_float, default=0.0, metavar="X",
                        help="on Ray: GPUs for each trial; 0.5 lets two trials share one (default: 0)")  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="keep the trained models, in the folder running of --out")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(options: argparse.Namespace) -> int:
    """Make the plan, run its trials that are missing, and present the verdicts."""
    plan = _read_plan(options)
    if options.dry_run:
        from clockhands.cli.trials import describe

        return describe(plan, options.workers, options.threads)
    with report_new_folder(options.out, quiet=options.quiet):
        comparison = execute(plan, options, options.out)
    return present(comparison, options, command(options))


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
        from clockhands.report import show, write

        findings = conclude(comparison, words)
        findings = replace(findings, items=(*findings.items, *find_task(comparison)))
        page = write(findings, Path(options.out), name="report.html")[0]
        show(findings)
        print(f"\nThe page: {page}")
    else:
        from clockhands.comparison.formats import FORMATS as WRITERS

        print(WRITERS[options.format](comparison), end="")
    return 0 if any(trial.finished for trial in comparison.trials) else 1


def find_task(comparison: Comparison) -> tuple[Finding, ...]:
    """Return findings about the task: its order-blind ceiling and, for real text, the floor of the loss."""
    from clockhands.comparison.ceiling_finding import describe_ceiling, find_plan_ceiling
    from clockhands.comparison.floor_finding import describe_floor, find_plan_floor

    plan = comparison.plan
    floor = find_plan_floor(plan)
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


def command(options: argparse.Namespace) -> str:
    """Return the command that computes these findings again."""
    words = ["clockhands", "compare", *([options.plan] if options.plan else [])]
    for name in (
        "data",
        "corpus",
        "recipe",
        "seeds",
        "baseline",
        "metric",
        "match",
        "margin",
        "learned",
        "target",
        "steps",
        "tokens",
        "seconds",
    ):
        value = getattr(options, name)
        words += [f"--{name}", f"{value:.17g}" if isinstance(value, float) else str(value)] if value is not None else []
    words += ["--redraw-text"] if options.redraw_text else []
    words += ["--vary", *options.vary] if options.vary else []
    words += ["--set", *options.overrides] if options.overrides else []
    return shlex.join([*words, "--out", options.out])
