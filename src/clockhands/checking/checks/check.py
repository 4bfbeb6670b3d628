"""What a check is, and the list of all of them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor

from clockhands.attention import is_installed
from clockhands.catalogue import Catalogue
from clockhands.checking.models.subject import Subject
from clockhands.errors import UsageError, describe_unknown

TOLERANCE = 1e-3
_OF_THE_MODEL_AS_SAVED = (
    "attention.sdpa", "attention.flex", "load.round_trip", "load.config", "load.meta", "spectrum.apart",
)  # fmt: skip
"""Checks that build the model or its attention again, or read its own rotation, in whose place a scheme may stand."""
_PROGRAM_NEEDS = frozenset({"reuse", "move"})
"""What a check may need that no model takes, only a program that runs models."""
USES = (
    "one text after another",
    "batches",
    "right padding",
    "left padding by the mask alone",
    "left padding with position_ids",
    "left-padded generate",
    "cached decoding",
    "resume",
    "rollback",
    "beam search",
    "prefix cache",
    "static cache",
    "packing",
    "packing beside a mask or a cache",
    "packing under a block mask",
    "positions with gaps",
    "given position_ids",
    "moved positions",
    "texts of the claimed length",
    "texts beyond the claimed length",
    "bf16 by from_pretrained",
    "bf16 by .to()",
    "bf16 by autocast",
    "saving and loading",
    "inputs_embeds",
    "encoder_outputs",
    "a changed configuration",
    "positions on several axes",
    "other attention implementations",
    "compile and export",
)
"""What people do with a model. It is safe where every check passed that names it among its ``uses`` and applies."""


class NotANumber(ArithmeticError):
    """Logits are NaN; the message says where they begin to be."""


class Inapplicable(Exception):
    """The check says nothing about this model; the message is the reason."""


@dataclass(frozen=True)
class Measurement:
    """What a check measured: a difference in standard deviations of the logits.

    ``wanted`` says whether the difference should be there (a changed theta must change the logits) or not; ``floor``
    is the difference that the precision alone makes there, where that is not the rounding of the weights' own, and
    ``tolerance`` the difference that counts as none. ``tokens``: how long the longest text was, where the law says more
    the longer it is. ``remark``: what is worth saying of a model that passes.
    """

    size: float
    note: str = ""
    wanted: bool = False
    floor: float | None = None
    tolerance: float = TOLERANCE
    tokens: int | None = None
    remark: str = ""

    @property
    def expected(self) -> bool:
        """Whether the measurement is what a correct model gives."""
        return (self.size > self.tolerance) == self.wanted


@dataclass(frozen=True)
class Check:
    """One law. ``needs`` are arguments the model must take, ``uses`` what is not safe where the law is broken.

    ``refusable``: what raises has refused, which is no failure. ``shared``: no model can break it, only the program
    that runs all of them.
    """

    name: str
    asserts: str
    catches: str
    measure: Callable[[Subject], Measurement]
    uses: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    causal: bool | None = None
    huggingface: bool = False
    optional: bool = False
    precise: bool = True
    refusable: bool = False
    shared: bool = False

    @property
    def is_of_programs(self) -> bool:
        """Whether only a program that runs models has what the check needs: a prefix cache, keys that it moves."""
        return not _PROGRAM_NEEDS.isdisjoint(self.needs)

    def inapplicable(self, subject: Subject) -> str | None:
        """Return why the check does not apply; None if it does."""
        if self.name in _OF_THE_MODEL_AS_SAVED and subject.module is not None and is_installed(subject.module):
            return "about the model as it is saved, and a scheme is installed in it"
        for argument in self.needs:
            if argument == "module" and subject.module is None:
                return "the adapter has no module"
            if argument != "module" and not subject.takes(argument):
                return f"the model takes no {argument}"
        if self.causal and not subject.causal:
            return "about causal models"
        if not subject.aligned and (self.causal is not None or "positions" in self.needs):
            return "about token-wise outputs"
        if self.huggingface and not hasattr(subject.adapter, "config"):
            return "about models of transformers"
        return None


CHECKS: Catalogue[Check] = Catalogue(
    "check", modules=("clockhands.checking.checks",), describe=lambda check: check.asserts
)
MeasureFunction: TypeAlias = Callable[[Subject], Any]


def check(
    name: str, catches: str, *, uses: tuple[str, ...], **settings: Any
) -> Callable[[MeasureFunction], MeasureFunction]:
    """Register the decorated function as a check, which asserts the first paragraph of its docstring.

    It returns a measurement, or yields several, of which that counts which breaks the law most. ``settings`` are the
    other fields of ``Check``; ``precise=False``: repeated in float32, float64 has no meaning. Raises ValueError for a
    use that is none of ``USES``, and where there is none.
    """
    if not uses or not set(uses) <= set(USES):
        raise ValueError(f"the check {name} names the uses {uses}: name at least one of USES")

    def register(measure: MeasureFunction) -> MeasureFunction:
        asserts = " ".join(str(inspect.getdoc(measure)).partition("\n\n")[0].split())

        def measure_worst(subject: Subject) -> Measurement:
            effects = measure(subject)
            return effects if isinstance(effects, Measurement) else largest(*effects)

        CHECKS.register(name)(Check(name, asserts, catches, measure_worst, uses, **settings))
        return measure

    return register


def difference(actual: Tensor, wanted: Tensor) -> float:
    """Return the largest difference of two logit tensors, in standard deviations of the wanted ones.

    Infinite where their shapes differ. Raises NotANumber where one of them holds NaN or infinite numbers, which are no
    difference but damage, and says where.
    """
    if actual.shape != wanted.shape:
        return float("inf")
    for logits in (actual, wanted):
        if damage := describe_damage(logits):
            raise NotANumber(damage)
    scale = wanted.double().std(correction=int(wanted.numel() > 1)).clamp(min=1e-12)
    return ((actual.double() - wanted.double()).abs().max() / scale).item()


def describe_damage(logits: Tensor) -> str:
    """Say how many numbers of logits [rows, tokens, vocabulary] are not finite, and where the first stands; else ""."""
    wrong = ~torch.isfinite(logits)
    if not bool(wrong.any()):
        return ""
    first = wrong.nonzero()[0].tolist()
    place = f", first at token {first[-2]} of row {first[0]}" if logits.dim() == 3 else ""
    kind = "NaN" if bool(logits.isnan().any()) else "infinite"
    return f"{int(wrong.sum())} of {wrong.numel()} logits are {kind}{place}"


def worst(actual: Tensor, wanted: Tensor) -> tuple[float, int]:
    """Return ``difference`` and the position along the text (axis -2) where it is largest."""
    gaps = (actual.double() - wanted.double()).abs().amax(-1)
    return difference(actual, wanted), int(gaps.reshape(-1, gaps.shape[-1]).amax(0).argmax())


def largest(*effects: Measurement) -> Measurement:
    """Return that of several measurements of one law which breaks it most."""
    return max(effects, key=lambda effect: effect.size if not effect.wanted else -effect.size)


@contextlib.contextmanager
def refusals(words: str, *kinds: type[Exception], about: str = "", most: int = 80) -> Iterator[None]:
    """Turn what a model refuses with one of these exceptions, in a message ``about`` that, into Inapplicable."""
    try:
        yield
    except kinds as fault:
        if about not in str(fault):
            raise
        said = " ".join(str(fault).split())[:most] or type(fault).__name__
        raise Inapplicable(f"{words}: {said}") from fault


def put_in(subject: Subject, module: Any) -> Subject:
    """Return the subject with another model of transformers, of the same task."""
    adapter: Any = subject.adapter
    return replace(subject, adapter=type(adapter)(module, adapter.task))


def new_cache(subject: Subject) -> Any:
    """Return an empty cache; None of a model that takes none."""
    return subject.adapter.new_cache() if subject.takes("cache") else None  # type: ignore[attr-defined]


def read_across_gaps(subject: Subject, ids: Tensor, positions: Tensor) -> Tensor:
    """Return logits at positions with gaps, by a cache if there is one, so that no gap is a border of documents."""
    return subject.logits(ids, positions=positions, cache=new_cache(subject))


def read_in_pieces(
    subject: Subject,
    ids: Tensor,
    stops: Iterable[int],
    mask: Tensor | None = None,
    positions: Tensor | None = None,
    cache: Any = None,
) -> Tensor:
    """Return the logits [B, S, V] of a text that is read into a cache, a new one by default, up to each of ``stops``.

    Every piece gets its positions, and the mask of all that was read.
    """
    cache, logits = new_cache(subject) if cache is None else cache, []
    for start, stop in pairwise([0, *stops]):
        seen = None if mask is None else mask[:, :stop]
        places = None if positions is None else positions[..., start:stop]
        logits.append(subject.logits(ids[:, start:stop], seen, places, cache))
    return torch.cat(logits, 1)


def compare_rows(subject: Subject, together: Tensor, texts: Iterable[Tensor], note: str) -> Iterator[Measurement]:
    """Yield how far the last logits of each row are from those of its text [1, S] alone, as far as both go back."""
    for row, ids in zip(together.split(1), texts, strict=True):
        length = min(row.shape[1], ids.shape[1])
        yield Measurement(difference(row[:, -length:], subject.logits(ids)[:, -length:]), note)


def select(only: Iterable[str] | None = None, optional: bool = False) -> list[Check]:
    """Return the checks whose name is or begins with one of ``only``, or with it; by default all that are not opt-in.

    Raises UsageError for a name that no check has.
    """
    if only is None:
        return [check for check in CHECKS.values() if optional or not check.optional]
    chosen: set[str] = set()
    for request in [only] if isinstance(only, str) else only:
        matching = {name for name in CHECKS if f"{name}.".startswith(f"{request}.")}
        if not matching:
            groups = {name.partition(".")[0] for name in CHECKS}
            raise UsageError(describe_unknown("check", request, groups | set(CHECKS)))
        chosen |= matching
    return [check for check in CHECKS.values() if check.name in chosen]
