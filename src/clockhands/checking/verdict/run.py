"""Run checks on a subject, one after another."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace

from clockhands.checking.checks.check import Check
from clockhands.checking.models.subject import Subject
from clockhands.checking.verdict.advice import advise
from clockhands.checking.verdict.judge import judge
from clockhands.checking.verdict.outcome import Outcome
from clockhands.quiet import without_bars


def run_checks(
    subject: Subject,
    checks: Iterable[Check],
    architecture: str = "",
    progress: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Return the outcome of every check on the subject, with causes and what is safe instead.

    ``architecture`` is the name of transformers by which known faults are found; ``progress`` hears each outcome as it
    comes. What a model prints or warns of is dropped.
    """
    outcomes: dict[str, Outcome] = {}
    for check in checks:
        started = time.perf_counter()
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), without_bars():
            warnings.simplefilter("ignore")
            outcome = judge(subject, check, architecture, outcomes)
        seconds = round(time.perf_counter() - started, 3)
        outcomes[check.name] = replace(outcome, seconds=seconds)
        if progress is not None:
            progress(replace(outcome, check=subject.side + check.name))
    return [replace(outcome, check=subject.side + outcome.check) for outcome in advise(outcomes)]
