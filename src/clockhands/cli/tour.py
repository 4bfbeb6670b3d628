"""``clockhands tour``: train a small translator, translate with it, measure it, and write a page about it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clockhands.cli.common import report_new_folder

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = ("clockhands tour --out runs/tour",)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--out", default="runs/tour", metavar="FOLDER",
                        help="where the run and its page are written (default: %(default)s)")  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier tour")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(options: argparse.Namespace) -> int:
    """Run the demonstration, write its page and print where it is."""
    from transformers.utils import logging

    from clockhands.report import show, write
    from clockhands.studies.tour import run_tour

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    say = (lambda text: None) if options.quiet else (lambda text: print(text, file=sys.stderr, flush=True))
    with report_new_folder(options.out, quiet=options.quiet):
        findings = run_tour(options.out, overwrite=options.overwrite, show=not options.quiet, say=say)
    say("drawing the page")
    page = write(findings, Path(options.out), name="report.html")[0]
    show(findings)
    print(f'\nThe page: {page}\nTranslate more:  clockhands translate {options.out} "zweihundertdrei"')
    return 0
