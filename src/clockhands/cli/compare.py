"""``clockhands compare``: variants × seeds, and whether the difference is real."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.cli.common import number, telling_new_folder, whole
from clockhands.errors import ClockhandsError, UsageError

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
    parser.add_argument("plan", nargs="?", help="a plan (TOML) such as recipes/sweep.toml; with --vary, a recipe")
    parser.add_argument("--data", metavar="FILE", help="your own pairs: TSV, CSV or JSON Lines (source, target)")
    parser.add_argument("--corpus", metavar="NAME", help="a built-in corpus: numbers, roles, algorithms, stdlib")
    parser.add_argument("--recipe", metavar="FILE", help="the recipe that is varied (default: tiny, on the data)")
    parser.add_argument(
        "--vary", nargs="+", action="extend", default=[], metavar="KEY=A,B,C", help="fields and their values: a grid"
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="settings shared by all variants",
    )
    parser.add_argument("--seeds", type=whole, help="how many (default: 5, the fewest for a verdict)")
    parser.add_argument("--baseline", metavar="NAME", help="the variant that others are compared with")
    parser.add_argument("--metric", help="exact, chrf or loss (default: the task's own)")
    parser.add_argument("--match", help="also equalise width, parameters or compute")
    parser.add_argument("--margin", type=number, help="differences below it count as equal (default: 1 point)")
    parser.add_argument("--learned", type=number, help="the score from which a seed has learned")
    parser.add_argument("--target", type=number, help="note when the validation loss reaches this")
    budget = parser.add_mutually_exclusive_group()
    for kind in BUDGETS:
        budget.add_argument(f"--{kind}", type=number, help=f"{kind} of training for each trial")
    parser.add_argument("--out", default="runs/compare", help="results and report (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and what it costs; train nothing")
    parser.add_argument("--format", choices=FORMATS, default="page", help="a page, or the table on standard output")
    add_running(parser)


def add_running(parser: argparse.ArgumentParser) -> None:
    """Where and how trials run."""
    parser.add_argument("--workers", type=whole, default=1, help="processes side by side (default: %(default)s)")
    parser.add_argument("--threads", type=whole, default=1, help="threads of each (default: %(default)s)")
    parser.add_argument("--on", metavar="WHERE", help="run on Ray: ray, or ray://host:10001")
    parser.add_argument("--gpus", type=number, default=0.0, help="the part of a GPU for each trial on Ray")
    parser.add_argument("--keep", action="store_true", help="keep the trained models, in OUT/running")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(options: argparse.Namespace) -> int:
    """Plan, run what is missing, conclude."""
    plan = _read_plan(options)
    if options.dry_run:
        from clockhands.cli.trials import describe

        return describe(plan, options.workers)
    with telling_new_folder(options.out, quiet=options.quiet):
        comparison = execute(plan, options, options.out)
    return present(comparison, options, command(options))


def execute(plan: Plan, options: argparse.Namespace, out: str | Path) -> Comparison:
    """Run the plan under the table of progress."""
    from clockhands.cli.trials import TrialTable
    from clockhands.comparison import run_plan

    running = {name: getattr(options, name) for name in ("workers", "threads", "on", "gpus", "keep")}
    with TrialTable(plan, out, options.workers, quiet=options.quiet) as table:
        return run_plan(plan, out, progress=table, **running)


def present(comparison: Comparison, options: argparse.Namespace, words: str) -> int:
    """The page, or a table on standard output. 1 if no trial finished."""
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
    """What the task asks for: how much of it can be done without order, and of real text the floor for longer text."""
    from clockhands.comparison.ceiling_finding import describe_ceiling, find_plan_ceiling
    from clockhands.comparison.floor_finding import describe_floor, find_plan_floor

    plan = comparison.plan
    floor = find_plan_floor(plan)
    ceiling = describe_ceiling(find_plan_ceiling(plan), plan.despite)
    return (ceiling,) if floor is None else (ceiling, describe_floor(floor, comparison))


def _read_plan(options: argparse.Namespace) -> Plan:
    """Make the plan of the command line, of a file or of its flags."""
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
    """A plan names its recipe, a recipe its data."""
    from clockhands.runs.recipe import read_tables

    try:
        return "data" in read_tables(path)
    except ClockhandsError:
        return False


def _read_recipe(options: argparse.Namespace) -> Any:
    """Make the recipe that all variants share."""
    from clockhands.options import read_assignments
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
"""What is trained where no recipe is given: small enough for a laptop."""


def command(options: argparse.Namespace) -> str:
    """The command that gives these findings again."""
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
    words += ["--vary", *options.vary] if options.vary else []
    words += ["--set", *options.overrides] if options.overrides else []
    return shlex.join([*words, "--out", options.out])
