"""Low precision may round the logits, never the angles."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, read_across_gaps, refusals
from clockhands.checking.models.subject import Subject, copy_sharing, copy_without_weights, is_large, reload
from clockhands.models.streaming import is_streamed

_ANGLES = re.compile(
    r"inv_freq|freqs|frequenc|(^|[._])(cos|sin|theta|slopes?|alibi|angles?)([._]|$)|cos_cached|sin_cached"
)
_FAR = 4000  # where bfloat16 tells apart only every sixteenth position
_ROW = 16  # tokens of a text, which begins at different positions
_LONG = 512
_LOADED, _CAST, _AUTOCAST = "bf16 by from_pretrained", "bf16 by .to()", "bf16 by autocast"
_precision_check = partial(check, needs=("module",))
_distance_check = partial(check, needs=("module", "positions"), precise=False)


def angle_tables(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers from which angles or slopes are made."""
    return {name: t for name, t in module.named_buffers() if _ANGLES.search(name) and t.is_floating_point()}


@_precision_check("precision.to", "inv_freq rounded by a cast", uses=(_CAST,))
def _cast(subject: Subject) -> Measurement:
    """model.to(bfloat16) keeps the angle tables, or loses nothing by rounding them.

    Only the tables are rounded; everything else stays in full precision.
    """
    tables = _require_tables(subject)
    low = copy_without_weights(subject.get_module()).to(torch.bfloat16)
    rounded = {name: t for name, t in angle_tables(low).items() if name in tables and t.dtype == torch.bfloat16}
    if not rounded:
        return Measurement(0.0, "the tables keep their precision")
    size, floor = _measure_tables(subject, rounded), None
    if not is_large(subject.adapter):  # how far bfloat16 with exact tables moves the same logits
        exact = subject.copy_model(subject.seed, torch.bfloat16)
        _restore(exact.get_module(), tables)
        with contextlib.suppress(RuntimeError):  # of mixed precisions
            floor = difference(_read_apart(exact), _read_apart(subject))
    note = f"{_name(rounded)} becomes bfloat16; logits at distance {_get_far(subject)} move"
    return Measurement(size, note, floor=floor)


@_precision_check("precision.load", "inv_freq rounded while loading", huggingface=True, uses=(_LOADED,))
def _load(subject: Subject) -> Measurement:
    """from_pretrained(dtype=bfloat16) keeps the angle tables in float32.

    A checkpoint is loaded from where it came, any other model from a copy saved in float32.
    """
    large, tables = _require_files(subject), _require_tables(subject)
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
    note = f"{_name(wrong)} rounded; logits at distance {_get_far(subject)} move"
    return Measurement(_measure_tables(subject, wrong), note)


@_distance_check("precision.distance", "angles or positions computed in low precision", uses=(_LOADED, _CAST))
def _distance(subject: Subject) -> Measurement:
    """In bfloat16 the error of the logits does not grow with the position.

    Of a bfloat16 copy, with exact tables where it has any: near, far, and at the claimed end.
    """
    if subject.facts.absolute:
        raise Inapplicable("no angles that could grow")
    _require_files(subject)
    twin = subject.copy_model(subject.seed, torch.float32)
    exact = angle_tables(twin.get_module())
    end = _get_far(subject) - _ROW
    starts = (0, _FAR, end) if end > _FAR else (0, _FAR)
    wanted = [_read_row(twin, start) for start in starts]
    low = subject.copy_model(subject.seed, torch.bfloat16)
    _restore(low.get_module(), exact)
    with refusals("does not run in bfloat16 beside exact tables", RuntimeError):
        actual = [_read_row(low, start) for start in starts]
    return _compare_errors(actual, wanted, starts)


@_distance_check("precision.autocast", "angles made by a product that autocast rounds", uses=(_AUTOCAST,))
def _autocast(subject: Subject) -> Measurement:
    """Under autocast the error of the logits does not grow with the position.

    Whatever makes the angles, near position 0 and far away.
    """
    if subject.facts.absolute:
        raise Inapplicable("no angles that could grow")
    starts = (0, max(_FAR, (subject.facts.limit or 0) - _ROW))
    wanted = [_read_row(subject, start) for start in starts]
    with torch.autocast(wanted[0].device.type, dtype=torch.bfloat16):
        actual = [_read_row(subject, start) for start in starts]
    return _compare_errors(actual, wanted, starts)


def _compare_errors(actual: Sequence[Tensor], wanted: Sequence[Tensor], starts: Sequence[int]) -> Measurement:
    """Return the worst mean error beyond the first start, as 0 where it is hardly above that at the first."""
    near, *far = [_measure_mean(row, exact) for row, exact in zip(actual, wanted, strict=True)]
    rest = ", ".join(f"{error:.2g} at {start}" for error, start in zip(far, starts[1:], strict=True))
    grown = max(far) > 3 * near + 0.02
    said = "angles or a bias are made in low precision: " * grown + f"mean error {near:.2g} near, {rest}"
    return Measurement(max(far) if grown else 0.0, said)


def _require_files(subject: Subject) -> bool:
    """Whether another precision must be streamed from files. Raises Inapplicable if there are none."""
    large = is_large(subject.adapter)
    if large and getattr(subject.adapter, "source", None) is None:
        raise Inapplicable("too large for a second copy, and no files to stream it from")
    return large


def _require_tables(subject: Subject) -> dict[str, Tensor]:
    tables = angle_tables(subject.get_module())
    if not tables:
        raise Inapplicable("no table of angles")
    return tables


def _get_far(subject: Subject) -> int:
    return max(_FAR, subject.facts.limit or 0) if not subject.facts.absolute else (subject.facts.limit or 32) - 1


def _measure_tables(subject: Subject, tables: dict[str, Tensor]) -> float:
    """Return how far the logits move when only these tables take other values, for tokens far apart."""
    twin = copy_sharing(subject.adapter)
    buffers = dict(twin.module.named_buffers())
    _restore(twin.module, {name: table.to(buffers[name].dtype) for name, table in tables.items()})
    before = _read_apart(subject)
    return difference(_read_apart(replace(subject, adapter=twin)), before)


def _read_apart(subject: Subject) -> Tensor:
    ids = subject.tokens(1, 16)
    if not subject.takes("positions"):
        return subject.logits(ids)
    line = torch.arange(8, device=ids.device)
    return read_across_gaps(subject, ids, torch.cat([line, line + _get_far(subject) - 8])[None])


def _read_row(subject: Subject, start: int) -> Tensor:
    ids = subject.tokens(4, _ROW)
    return subject.logits(ids, positions=subject.arange(4, _ROW, start)).float()


def _measure_mean(actual: Tensor, wanted: Tensor) -> float:
    return ((actual - wanted).abs().mean() / wanted.std()).item()


def _restore(module: nn.Module, tables: dict[str, Tensor]) -> None:
    for name, table in tables.items():
        parent, _, last = name.rpartition(".")
        module.get_submodule(parent)._buffers[last] = table.clone()


def _name(tables: dict[str, Tensor]) -> str:
    return ", ".join(sorted({name.rpartition(".")[2] for name in tables}))


@_precision_check(
    "precision.long", "positions, angles or biases counted in low precision", precise=False, uses=(_LOADED, _CAST)
)
def _long(subject: Subject) -> Measurement:
    """In bfloat16 the error of the logits does not grow along the text."""
    if is_large(subject.adapter) or not subject.aligned:
        raise Inapplicable("too large for a second copy" if subject.aligned else "about token-wise outputs")
    length = min(_LONG, subject.facts.limit or _LONG)
    if length < 4 * _ROW:
        raise Inapplicable(f"the model reads only {length} tokens")
    ids = subject.tokens(1, length - subject.facts.first)
    unclaimed = () if subject.facts.limit else (Exception,)
    with refusals(f"claims no length (max_length=) and does not read {length} tokens", *unclaimed):
        exact = subject.logits(ids).float()
    low = subject.copy_model(subject.seed, torch.bfloat16)
    with refusals("does not run in bfloat16", RuntimeError):
        rounded = low.logits(ids).float()
    near, end = [_measure_mean(rounded[:, part], exact[:, part]) for part in (slice(0, 32), slice(-32, None))]
    return Measurement(end if end > 3 * near + 0.1 else 0.0, f"mean error {near:.2g} at first, {end:.2g} at {length}")


@_precision_check(
    "precision.order", "a table that is kept in the precision of the first call", precise=False, uses=(_CAST, _AUTOCAST)
)
def _order(subject: Subject) -> Measurement:
    """What ran in bfloat16 before changes nothing in the model's own precision.

    A copy is cast down, run, cast back and given its weights again: it must compute what a fresh one does.
    """
    original = subject.get_module()
    if is_large(subject.adapter) or is_streamed(original):
        raise Inapplicable("too large for a second copy")
    ids = subject.tokens(2, 24)
    before = subject.copy_untouched().logits(ids)
    twin = subject.copy_model(subject.seed, torch.bfloat16)
    module = twin.get_module()
    with refusals("does not run in bfloat16", RuntimeError):
        twin.logits(ids)
    module.to(subject.dtype)
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, parameter in original.named_parameters():
            parameters[name].copy_(parameter)
    # A buffer that a cast rounds is the matter of precision.to; one of another shape was made by the call.
    buffers = dict(module.named_buffers())
    kept = {n: b for n, b in original.named_buffers() if n in buffers and buffers[n].shape == b.shape}
    _restore(module, kept)
    return Measurement(difference(twin.logits(ids), before))
