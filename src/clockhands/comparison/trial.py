"""A trial: one training of one variant with one seed, and what came out of it. It imports no torch.

A line of ``results.jsonl`` is one trial: ``Trial.to_dict`` writes it, ``Trial.from_dict`` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from clockhands.shapes import Float

Status = Literal["finished", "diverged", "failed"]
STATUSES: tuple[Status, ...] = ("finished", "diverged", "failed")
"""How a trial can end, in the order in which pages tell it."""
Values = Mapping[str, float]
"""Measured numbers by the name of what was measured."""


class CurvePoint(NamedTuple):
    """One step of a learning curve: losses in nats per token, None where none was taken."""

    step: int
    training_loss: float | None
    validation_loss: float | None


class StepValues(NamedTuple):
    """What was measured inside the model at a step of its training."""

    step: int
    values: Values


@dataclass(frozen=True)
class TargetReached:
    """When the loss first was at or below the plan's target: the step, and the seconds of training until then."""

    step: int
    seconds: float


@dataclass(frozen=True)
class LongerText:
    """Scores on text longer than any in training, or the sentence that says why it could not be read."""

    exact: float | None = None
    chrF2: float | None = None
    loss: float | None = None
    refused: str | None = None


@dataclass(frozen=True)
class Measurements:
    """What was measured inside the model of a trial, before, during and after training."""

    before: Values = field(default_factory=dict)
    during: tuple[StepValues, ...] = ()
    after: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """What came out of one training. A trial that did not finish has its ``error``, and no scores.

    ``items``: the plan's metric for every test item, in their order; exact match is written as digits 0 and 1.
    ``other_items``: further metrics of the same items, by name (chrF where the plan's metric is BLEU).
    ``groups``: the group of every test item, where the corpus has items that hang together (twins); None elsewhere.
    ``scores``: means over the test items, by name. ``longer``: by split. ``by_length``: a table, its first row the
    names of its columns. Seconds are of training; ``written_per_second`` are target tokens of a translator.
    """

    variant: str
    seed: int
    status: Status
    version: str | None = None
    error: str | None = None
    split: str | None = None
    items: str | tuple[float, ...] | None = None
    other_items: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    groups: tuple[int, ...] | None = None
    scores: Values = field(default_factory=dict)
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

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Trial:
        """Return the trial that ``to_dict`` wrote. Raises TypeError or KeyError for what is none."""
        plain = {name: written[name] for name in _PLAIN if name in written}
        reached, items, groups = written.get("reached"), written.get("items"), written.get("groups")
        if written["status"] not in STATUSES:
            raise TypeError(f"a trial cannot be {written['status']!r}")
        return cls(
            items=tuple(items) if isinstance(items, list) else items,
            other_items={name: tuple(values) for name, values in written.get("other_items", {}).items()},
            groups=None if groups is None else tuple(groups),
            by_length=tuple(tuple(row) for row in written.get("by_length", ())),
            longer={split: LongerText(**scores) for split, scores in written.get("longer", {}).items()},
            curve=tuple(CurvePoint(*point) for point in written.get("curve", ())),
            reached=None if reached is None else TargetReached(**reached),
            inside=_read_measurements(written.get("inside")),
            **plain,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as a line of ``results.jsonl`` holds it: a trial that did not finish has no scores."""
        written = {name: getattr(self, name) for name in _ORDER}
        if not self.finished:
            return {name: written[name] for name in _HEAD if written[name] is not None}
        written["longer"] = {split: _drop_none(vars(scores)) for split, scores in self.longer.items()}
        written["reached"] = None if self.reached is None else vars(self.reached)
        written["inside"] = {} if self.inside is None else vars(self.inside)
        written["other_items"] = self.other_items or None
        return {name: value for name, value in written.items() if value is not None or name == "reached"}


_HEAD = ("variant", "seed", "version", "status", "error")
_PLAIN = (
    *_HEAD, "split", "scores", "written_per_second", "steps", "seconds", "parameters", "peak_mib", "tokens_per_second",
    "torch", "device", "machine",
)  # fmt: skip
_ORDER = (
    *_HEAD, "split", "items", "other_items", "groups", "scores", "by_length", "written_per_second", "longer", "steps",
    "seconds", "parameters", "peak_mib", "tokens_per_second", "curve", "reached", "inside", "torch", "device",
    "machine",
)  # fmt: skip
"""The order in which the file has them."""


def _read_measurements(written: Mapping[str, Any] | None) -> Measurements | None:
    """Return the measurements that ``Trial.to_dict`` wrote; None for none."""
    if not written:
        return None
    during = tuple(StepValues(step, values) for step, values in written["during"])
    return Measurements(written["before"], during, written["after"])


def _drop_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}
