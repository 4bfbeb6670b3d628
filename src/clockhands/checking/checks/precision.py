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
from clockhands.checking.models.subject import Subject, copy_sharing, copy_without_weights, is_large, reload
from clockhands.models.streaming import is_streamed

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


_LONG = 512


@check(
    "precision.autocast",
    "Under autocast the error of the logits does not grow with the position.",
    "angles made by a product that autocast rounds",
    uses=("bf16 by autocast",),
    needs=("module", "positions"),
    precise=False,
)
def autocast(subject: Subject) -> Measurement:
    """Measure the mean error of bfloat16 autocast near position 0 and far away, whatever makes the angles."""
    if subject.facts.absolute:
        raise Inapplicable("no angles that could grow")
    ids, far = subject.tokens(4, _ROW), max(_FAR, (subject.facts.limit or 0) - _ROW)
    errors = []
    for start in (0, far):
        positions = subject.arange(4, _ROW, start)
        exact = _read(subject, ids, positions)
        with torch.autocast(ids.device.type, dtype=torch.bfloat16):
            low = _read(subject, ids, positions)
        errors.append(_mean(low, exact))
    grown = errors[1] > 3 * errors[0] + 0.02
    return Measurement(errors[1] if grown else 0.0, f"mean error {errors[0]:.2g} near, {errors[1]:.2g} at {far}")


@check(
    "precision.long",
    "In bfloat16 the error of the logits does not grow along the text.",
    "positions, angles or biases counted in low precision",
    uses=("bf16 by from_pretrained", "bf16 by .to()"),
    needs=("module",),
    precise=False,
)
def long(subject: Subject) -> Measurement:
    """Measure the mean error of a bfloat16 copy at the beginning of a text and at its end."""
    if is_large(subject.adapter) or not subject.aligned:
        raise Inapplicable("too large for a second copy" if subject.aligned else "about token-wise outputs")
    length = min(_LONG, subject.facts.limit or _LONG)
    if length < 4 * _ROW:
        raise Inapplicable(f"the model reads only {length} tokens")
    ids = subject.tokens(1, length - subject.facts.first)
    exact = subject.logits(ids).float()
    low = subject.copy_model(subject.seed, torch.bfloat16)
    try:
        rounded = low.logits(ids).float()
    except RuntimeError as fault:
        raise Inapplicable(f"does not run in bfloat16: {str(fault)[:80]}") from fault
    near, end = (_mean(rounded[:, part], exact[:, part]) for part in (slice(0, 32), slice(-32, None)))
    return Measurement(end if end > 3 * near + 0.1 else 0.0, f"mean error {near:.2g} at first, {end:.2g} at {length}")


@check(
    "precision.order",
    "What ran in bfloat16 before changes nothing in the model's own precision.",
    "a table that is kept in the precision of the first call",
    uses=("bf16 by .to()", "bf16 by autocast"),
    needs=("module",),
    precise=False,
)
def order(subject: Subject) -> Measurement:
    """Cast a copy down, run it, cast it back, give it its weights again: what it computes is that of a fresh one."""
    original = subject.get_module()
    if is_large(subject.adapter) or is_streamed(original):
        raise Inapplicable("too large for a second copy")
    ids = subject.tokens(2, 24)
    before = subject.copy_untouched().logits(ids)
    twin = subject.copy_model(subject.seed, torch.bfloat16)
    module = twin.get_module()
    try:
        twin.logits(ids)
    except RuntimeError as fault:
        raise Inapplicable(f"does not run in bfloat16: {str(fault)[:80]}") from fault
    module.to(subject.dtype)
    state = {name: (module, tensor) for name, tensor in module.named_parameters()}
    with torch.no_grad():
        for name, parameter in original.named_parameters():
            state[name][1].copy_(parameter)
    _restore_buffers(module, original)
    return Measurement(difference(twin.logits(ids), before))


def _restore_buffers(module: torch.nn.Module, original: torch.nn.Module) -> None:
    """A buffer that a cast rounds is the matter of precision.to; one of another shape was made by the call."""
    for name, buffer in original.named_buffers():
        parent, _, last = name.rpartition(".")
        owner = module.get_submodule(parent)
        kept = owner._buffers.get(last)
        if kept is not None and kept.shape == buffer.shape:
            owner._buffers[last] = buffer.clone()


def _read(subject: Subject, ids: Tensor, positions: Tensor) -> Tensor:
    return subject.logits(ids, positions=positions).float()
