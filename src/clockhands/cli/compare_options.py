"""The options of ``clockhands compare``, those of running that ``study`` shares, and the command that they make."""

from __future__ import annotations

import argparse
import shlex

from clockhands.cli.common import as_float, as_int

__all__ = ["BUDGETS", "FORMATS", "add_running", "arguments", "write_command"]

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


def write_command(options: argparse.Namespace) -> str:
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
