"""Low precision by what the model does: near against far, under autocast, and after another precision."""

from __future__ import annotations

import torch
from torch import Tensor

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference
from clockhands.checking.models.copies import is_large
from clockhands.checking.models.subject import Subject
from clockhands.models.streaming import is_streamed

_FAR = 4000
_ROW = 16
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


def _mean(actual: Tensor, wanted: Tensor) -> float:
    return ((actual - wanted).abs().mean() / wanted.std()).item()
