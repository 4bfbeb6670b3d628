"""``clockhands tour``: train a small translator, translate with it, measure it, and write a page about it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clockhands.cli.common import report_new_folder

EXAMPLES = ("clockhands tour --out runs/tour",)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where the tour goes.

    Args:
        out: where the run and its page are written
        overwrite: replace an earlier tour
        quiet: show no progress
    """

    out: Annotated[str, "FOLDER"] = "runs/tour"
    overwrite: bool = False
    quiet: bool = False


def run(options: Options) -> int:
    """Run the demonstration, write its page and print where it is."""
    from transformers.utils import logging

    from clockhands.report import show, write
    from clockhands.studies.tour import tour
    from clockhands.training import TrainingStopped

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    say = (lambda text: None) if options.quiet else (lambda text: print(text, file=sys.stderr, flush=True))
    with report_new_folder(options.out, quiet=options.quiet):
        try:
            findings = tour(options.out, overwrite=options.overwrite, show=not options.quiet, say=say)
        except TrainingStopped as stop:
            again = f"clockhands tour --out {options.out} --overwrite"
            raise TrainingStopped(f"the tour was stopped, and has no page; begin it again with: {again}") from stop
    say("drawing the page")
    page = write(findings, Path(options.out), name="report.html")[0]
    show(findings)
    print(f'\nThe page: {page}\nTranslate more:  clockhands translate {options.out} "zweihundertdrei"')
    return 0
