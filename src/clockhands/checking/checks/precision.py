"""Low precision may round the logits, never the angles."""

from __future__ import annotations

import contextlib
import copy
import re
import tempfile
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference
from clockhands.checking.models.copies import copy_sharing, copy_without_weights, is_large, reload
from clockhands.checking.models.subject import Subject

_ANGLES = re.compile(
    r"inv_freq|freqs|frequenc|(^|[._])(cos|sin|theta|slopes?|alibi|angles?)([._]|$)|cos_cached|sin_cached"
)
_FAR = 4000  # where bfloat16 tells apart only every sixteenth position
_ROW = 16  # tokens of a text, which begins at different positions


def angle_tables(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers from which angles or slopes are made."""
    return {name: t for name, t in module.named_buffers() if _ANGLES.search(name) and t.is_floating_point()}


@check(
    "precision.to",
    "model.to(bfloat16) keeps the angle tables, or loses nothing by rounding them.",
    "inv_freq rounded by a cast",
    needs=("module",),
    uses=("bf16 by .to()",),
)
def cast(subject: Subject) -> Measurement:
    """Only the tables are rounded; everything else stays in full precision."""
    tables = _tables(subject)
    low = copy_without_weights(subject.module).to(torch.bfloat16)  # type: ignore[arg-type]
    rounded = {n: t for n, t in angle_tables(low).items() if n in tables and t.dtype == torch.bfloat16}
    if not rounded:
        return Measurement(0.0, "the tables keep their precision")
    size = _effect_of(subject, rounded)
    note = f"{_names(rounded)} becomes bfloat16; logits at distance {_far(subject)} move"
    return Measurement(size, note, floor=_rounding(subject, tables))


@check(
    "precision.load",
    "from_pretrained(dtype=bfloat16) keeps the angle tables in float32.",
    "inv_freq rounded while loading",
    huggingface=True,
    needs=("module",),
    uses=("bf16 by from_pretrained",),
)
def load(subject: Subject) -> Measurement:
    """Load in bfloat16: a checkpoint from where it came, any other model from a copy saved in float32."""
    large = _large(subject)
    tables = _tables(subject)
    module: Any = subject.module
    source = getattr(subject.adapter, "source", None)
    with contextlib.ExitStack() as stack:
        if source is None:
            source = stack.enter_context(tempfile.TemporaryDirectory())
            copy_sharing(module, torch.float32).save_pretrained(source)
        low = reload(module, source, torch.bfloat16, streamed=large)
    kept = {name: table for name, table in angle_tables(low).items() if name in tables}
    wrong = {n: t for n, t in kept.items() if not torch.allclose(t.double(), tables[n].double(), rtol=1e-5)}
    if not wrong:
        return Measurement(0.0, "the tables keep their precision")
    return Measurement(_effect_of(subject, wrong), f"{_names(wrong)} rounded; logits at distance {_far(subject)} move")


@check(
    "precision.distance",
    "In bfloat16 the error of the logits does not grow with the position.",
    "angles or positions computed in low precision",
    needs=("module", "positions"),
    precise=False,
    uses=("bf16 by from_pretrained", "bf16 by .to()"),
)
def distance(subject: Subject) -> Measurement:
    """Measure the mean error of a bfloat16 copy, with exact tables where it has any: near, far, at the claimed end."""
    if subject.facts.absolute:
        raise Inapplicable("no angles that could grow")
    _large(subject)
    twin = subject.copy_model(subject.seed, torch.float32)
    exact = angle_tables(twin.module)  # type: ignore[arg-type]
    end = _far(subject) - _ROW
    starts = (0, _FAR, end) if end > _FAR else (0, _FAR)
    exactly = [_row(twin, start) for start in starts]
    low = subject.copy_model(subject.seed, torch.bfloat16)
    _restore(low.module, exact)  # type: ignore[arg-type]
    try:
        errors = [_mean(_row(low, start), full) for start, full in zip(starts, exactly, strict=True)]
    except RuntimeError as fault:
        raise Inapplicable(f"does not run in bfloat16 beside exact tables: {str(fault)[:80]}") from fault
    worst = max(errors[1:])
    grown = worst > 3 * errors[0] + 0.02
    rest = ", ".join(f"{error:.2g} at {start}" for error, start in zip(errors[1:], starts[1:], strict=True))
    return Measurement(worst if grown else 0.0, f"mean error {errors[0]:.2g} near, {rest}")


def _large(subject: Subject) -> bool:
    """Whether another precision must be streamed from files. Raises Inapplicable if there are none."""
    large = is_large(subject.adapter)
    if large and getattr(subject.adapter, "source", None) is None:
        raise Inapplicable("too large for a second copy, and no files to stream it from")
    return large


def _tables(subject: Subject) -> dict[str, Tensor]:
    tables = angle_tables(subject.module)  # type: ignore[arg-type]
    if not tables:
        raise Inapplicable("no table of angles")
    return tables


def _far(subject: Subject) -> int:
    return max(_FAR, subject.facts.limit or 0) if not subject.facts.absolute else (subject.facts.limit or 32) - 1


def _effect_of(subject: Subject, tables: dict[str, Tensor]) -> float:
    """How far the logits move when only these tables take other values, for tokens far apart."""
    twin = copy_sharing(subject.adapter)
    module: nn.Module = twin.module
    _restore(module, {name: t.to(dict(module.named_buffers())[name].dtype) for name, t in tables.items()})
    before = _apart(subject)
    subject_of_twin = copy.copy(subject)
    subject_of_twin.adapter = twin
    return difference(_apart(subject_of_twin), before)


def _rounding(subject: Subject, exact: dict[str, Tensor]) -> float | None:
    """How far bfloat16 with exact tables moves the same logits; None where it does not run."""
    if is_large(subject.adapter):
        return None
    low = subject.copy_model(subject.seed, torch.bfloat16)
    _restore(low.module, exact)  # type: ignore[arg-type]
    try:
        return difference(_apart(low), _apart(subject))
    except RuntimeError:  # of mixed precisions
        return None


def _apart(subject: Subject) -> Tensor:
    """Logits of sixteen tokens, half of them far away; through a cache, so that the gap is no border."""
    ids = subject.tokens(1, 16)
    if not subject.takes("positions"):
        return subject.logits(ids)
    line = torch.arange(8, device=ids.device)
    positions = torch.cat([line, line + _far(subject) - 8])[None]
    cache = subject.adapter.new_cache() if subject.takes("cache") else None  # type: ignore[attr-defined]
    return subject.logits(ids, positions=positions, cache=cache)


def _row(subject: Subject, start: int) -> Tensor:
    ids = subject.tokens(4, _ROW)
    return subject.logits(ids, positions=subject.arange(4, _ROW, start)).float()


def _mean(actual: Tensor, wanted: Tensor) -> float:
    return ((actual - wanted).abs().mean() / wanted.std()).item()


def _restore(module: nn.Module, tables: dict[str, Tensor]) -> None:
    for name, table in tables.items():
        parent, _, last = name.rpartition(".")
        module.get_submodule(parent)._buffers[last] = table.clone()


def _names(tables: dict[str, Tensor]) -> str:
    return ", ".join(sorted({name.rpartition(".")[2] for name in tables}))
