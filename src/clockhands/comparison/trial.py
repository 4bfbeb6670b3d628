"""A trial: one training of one variant with one seed, and what came out of it. It imports no torch.

A line of ``results.jsonl`` is one trial: ``Trial.to_dict`` writes it, ``Trial.from_dict`` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from clockhands.findings import Number
from clockhands.shapes import Float

Status = Literal["finished", "diverged", "failed"]
STATUSES: tuple[Status, ...] = ("finished", "diverged", "failed")
"""How a trial can end, in the order in which pages tell it."""
FINITE: Any = {"allow_inf_nan": False}
"""A line with a number that is none is damaged: nothing can be said of it."""
LARGEST = 1e100
"""No score of an item is larger; sums of larger ones would overflow."""
NamedNumbers = Mapping[str, float]
"""Measured numbers by the name of what was measured."""


class CurvePoint(NamedTuple):
    """One step of a learning curve: losses in nats per token, None where none was taken."""

    step: int
    training_loss: float | None
    validation_loss: float | None


class StepValues(NamedTuple):
    """What was measured inside the model at a step of its training."""

    step: int
    values: NamedNumbers


@dataclass(frozen=True)
class TargetReached:
    """When the loss first was at or below the plan's target: the step, and the seconds of training until then."""

    __pydantic_config__ = FINITE
    step: int
    seconds: float


@dataclass(frozen=True)
class LongerText:
    """Scores on text longer than any in training, or the sentence that says why it could not be read."""

    __pydantic_config__ = FINITE
    exact: float | None = None
    chrF2: float | None = None
    loss: float | None = None
    refused: str | None = None


@dataclass(frozen=True)
class Measurements:
    """What was measured inside the model of a trial, before, during and after training."""

    __pydantic_config__ = FINITE
    before: NamedNumbers = field(default_factory=dict)
    during: tuple[StepValues, ...] = ()
    after: NamedNumbers = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """What came out of one training. A trial that did not finish has its ``error``, and no scores.

    ``items``: the plan's metric for every test item, in their order; exact match is written as digits 0 and 1.
    ``other_items``: further metrics of the same items, by name (chrF where the plan's metric is BLEU).
    ``groups``: the group of every test item, where the corpus has items that hang together (twins); None elsewhere.
    ``scores``: means over the test items, by name. ``longer``: by split. ``by_length``: a table, its first row the
    names of its columns. Seconds are of training; ``written_per_second`` are target tokens of a translator.
    """

    __pydantic_config__ = FINITE
    variant: str
    seed: int
    status: Status
    version: str | None = None
    error: str | None = None
    split: str | None = None
    items: str | tuple[float, ...] | None = None
    other_items: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    groups: tuple[int, ...] | None = None
    scores: NamedNumbers = field(default_factory=dict)
    by_length: tuple[tuple[Any, ...], ...] = ()
    written_per_second: float | None = None
    longer: Mapping[str, LongerText] = field(default_factory=dict)
    steps: int | None = None
    seconds: float | None = None
    parameters: int | None = None
    peak_mib: float | None = None
    tokens_per_second: float | None = None
    curve: tuple[CurvePoint, ...] = ()
    reached: TargetReached | None = None
    inside: Measurements | None = None
    torch: str | None = None
    device: str | None = None
    machine: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Variant and seed, which name a trial within its comparison."""
        return self.variant, self.seed

    @property
    def finished(self) -> bool:
        """Whether it trained to its end and was scored."""
        return self.status == "finished"

    @property
    def measured(self) -> Measurements:
        """What was measured inside the model; empty where the plan measures nothing."""
        return self.inside or Measurements()

    @cached_property
    def items_N(self) -> Float[np.ndarray, " N"]:
        """The metric of each of N test items as numbers; exact match in percent."""
        if isinstance(self.items, str):
            return 100.0 * np.array([int(digit) for digit in self.items], dtype=np.float64)
        return np.array(self.items if self.items is not None else (), dtype=np.float64)

    def __post_init__(self) -> None:
        """Raise ValueError for a finished trial without items, and for digits of exact match other than 0 and 1."""
        if self.finished and not self.items:
            raise ValueError("a finished trial has the metric of at least one test item")
        if isinstance(self.items, str) and not {*self.items} <= {"0", "1"}:
            raise ValueError("exact match of an item is 0 or 1")

    @classmethod
    def from_dict(cls, written: Any) -> Trial:
        """Return the trial that ``to_dict`` wrote. Raises ValueError with a fault of what is none."""
        if not isinstance(written, Mapping):
            raise ValueError("a trial is a table of names and values")
        trial: Trial = validate(cls, {**written, "inside": written.get("inside") or None})
        if isinstance(trial.items, tuple) and any(abs(score) > LARGEST for score in trial.items):
            raise ValueError(f"no score of an item is above {LARGEST:g}")
        return trial

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as a line of ``results.jsonl`` holds it: whatever is not as usual."""
        written: dict[str, Any] = _make_adapter(Trial).dump_python(self, exclude_defaults=True)
        return written


@dataclass(frozen=True)
class Job:
    """One trial with all that it needs, as plain data: its recipe's tables, its seed, what is measured, its folder.

    ``modules``: of whoever registered a scheme or a corpus of its recipe, imported by the worker before it begins.
    """

    tables: Mapping[str, Any]
    variant: str
    seed: int
    metric: str
    target: Number | None
    inside: tuple[str, ...]
    folder: str
    keep: bool
    modules: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """Variant and seed, which name a trial within its comparison."""
        return self.variant, self.seed

    def fail(self) -> Trial:
        """Return the trial of a job whose worker died too often."""
        why = "its worker process died, again and again; most often the memory was not enough"
        return Trial(self.variant, self.seed, "failed", error=why)


def validate(kind: Any, written: Any) -> Any:
    """Return plain data as a dataclass or a typed dictionary. Raises ValueError with a fault, in one line."""
    from pydantic import ValidationError  # late: it is imported where something is read

    try:
        return _make_adapter(kind).validate_python(written)
    except ValidationError as fault:
        deepest = max(fault.errors(), key=lambda error: len(error["loc"]))  # of a union, the kind that came furthest
        place = ".".join(str(part) for part in deepest["loc"] if not str(part).startswith("tuple["))
        reason = deepest["msg"].removeprefix("Value error, ")
        raise ValueError(f"{place}: {reason}" if place else reason) from None


@lru_cache
def _make_adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
