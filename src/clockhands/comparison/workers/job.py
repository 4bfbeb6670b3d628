"""A trial that is to be run, and what runs such: plain data that can be sent to another process or machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from clockhands.comparison.trial import Trial
from clockhands.findings import Number


@dataclass(frozen=True)
class Job:
    """One trial with all that it needs: the tables of its recipe, its seed, what is measured, and its folder."""

    tables: Mapping[str, Any]
    variant: str
    seed: int
    metric: str
    target: Number | None
    inside: tuple[str, ...]
    folder: str
    keep: bool

    @property
    def key(self) -> tuple[str, int]:
        """Variant and seed, which name a trial within its comparison."""
        return self.variant, self.seed


class TrialProgress:
    """Is told of every trial that begins and ends; this one shows nothing."""

    def begin(self, job: Job) -> None:
        """Take in that a trial begins, or begins again after its worker died."""

    def end(self, trial: Trial) -> None:
        """Take in that a trial ended and is stored."""


@runtime_checkable
class Workers(Protocol):
    """Runs jobs and yields their trials as they end, in any order."""

    def run(self, jobs: Sequence[Job], progress: TrialProgress) -> Iterator[Trial]: ...


def make_failed_trial(job: Job) -> Trial:
    """Return the trial of a job whose worker died too often."""
    why = "its worker process died, again and again; most often the memory was not enough"
    return Trial(job.variant, job.seed, "failed", error=why)
