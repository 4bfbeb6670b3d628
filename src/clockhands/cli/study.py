"""``clockhands study``: the built-in studies of the questions people ask."""

from __future__ import annotations

import argparse
from pathlib import Path

from clockhands.cli.common import telling_new_folder, whole
from clockhands.cli.compare import FORMATS, add_running

EXAMPLES = (
    "clockhands study",
    "clockhands study scale --dry-run",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", nargs="?", help="the study to run; without one they are listed")
    parser.add_argument("--seeds", type=whole, help="how many (default: as the study says, 5 or more)")
    parser.add_argument("--out", help="results and page (default: runs/studies/NAME)")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and what it costs; train nothing")
    parser.add_argument("--format", choices=FORMATS, default="page", help="a page, or the table on standard output")
    add_running(parser)


def run(options: argparse.Namespace) -> int:
    """List the studies, or run one and write its page."""
    from clockhands.studies import open_study

    if options.name is None:
        return _list()
    plan = open_study(options.name, options.seeds)
    if options.dry_run:
        from clockhands.cli.trials import describe

        return describe(plan, options.workers)
    from clockhands.cli.compare import execute, present
    from clockhands.files import write_text

    options.out = options.out or str(Path("runs") / "studies" / options.name)
    with telling_new_folder(options.out, quiet=options.quiet):
        comparison = execute(plan, options, options.out)
    write_text(Path(options.out) / "study.json", comparison.to_json())
    seeds = "" if options.seeds is None else f" --seeds {options.seeds}"
    return present(comparison, options, f"clockhands study {options.name}{seeds}")


def _list() -> int:
    from clockhands.studies import ORDER, SECONDS_A_TRIAL, title_of

    width = max(map(len, ORDER))
    for name in ORDER:
        title, trials = title_of(name)
        minutes = max(1, round(trials * SECONDS_A_TRIAL / 60))
        print(f"{name:<{width}}  {title}  ({trials} trials, about {minutes} min on one core)")
    print("\nclockhands study NAME runs one and writes its page; --dry-run measures what it costs here.")
    return 0
