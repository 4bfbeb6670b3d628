"""Run a model over rows of one token each, and read what each attention does with position alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.models.subject import Subject
from clockhands.models.tap import Attention, AttentionTap, Change

_MASKED = 5e3
"""A logit this far below the largest of its row is masked: exp(-5000) is zero in any precision."""
_EXACT = 1e-3


@dataclass(frozen=True)
class Layer:
    """What one attention does: ``scale`` times the product of queries and keys, a ``bias``, where ``allowed``.

    Shapes: q [B, H, S, K], k [B, H, T, K], bias [H, S, T] (as it was added, 0 where masked), allowed [S, T] (of all
    heads and rows). ``exact`` is False where the logits are something else; scale and bias then say nothing.
    """

    name: str
    q_BHSK: Tensor
    k_BHTK: Tensor
    scale: float
    bias_HST: Tensor
    allowed_ST: Tensor
    exact: bool


@dataclass(frozen=True)
class Reading:
    """Of one pass: its attentions, and what entered the first block of the model, [B, S, D] (None if not found)."""

    layers: tuple[Layer, ...]
    entry_BSD: Tensor | None


def attend_to_itself(attention: Attention) -> Tensor:
    """Return logits by which every token attends to itself alone, or to the first of a source that stays.

    States then depend on the token and its place alone, and not on any mistake of an earlier layer.
    """
    logits = attention.logits_BHST
    queries, keys = logits.shape[-2:]
    chosen = (torch.arange(queries, device=logits.device) + max(keys - queries, 0)) % keys
    if len(logits) > 1 and is_one_text(attention.k_BHTK) and not is_one_text(attention.q_BHSK):
        chosen = torch.zeros_like(chosen)
    alone = torch.full(logits.shape[-2:], torch.finfo(logits.dtype).min, device=logits.device, dtype=logits.dtype)
    alone[torch.arange(queries, device=logits.device), chosen] = 0
    return alone.expand(logits.shape)


def read(subject: Subject, run: Callable[[], Any], rows: int) -> Reading:
    """Read the attentions of one call of the subject's module, in which every token attends to itself.

    Raises whatever the model raises.
    """
    seen: list[Attention] = []
    states: list[Tensor] = []

    def note(_index: int, attention: Attention) -> Tensor:
        seen.append(attention)
        return attend_to_itself(attention)

    with enter_state(find_entry(subject), states.append), AttentionTap(subject.get_module(), rows, note):
        run()
    layers = [measure(item) for item in seen]
    known = next((layer.scale for layer in layers if layer.exact), None)
    if known is not None:  # of one text in all rows, such as a source that stays, the scale is taken from another layer
        layers = [
            measure(item, known) if is_one_text(item.q_BHSK) and is_one_text(item.k_BHTK) else x
            for item, x in zip(seen, layers, strict=True)
        ]
    return Reading(tuple(layers), states[0] if states else None)


def is_one_text(x_BHSK: Tensor) -> bool:
    """Whether queries or keys are those of one text in all rows, such as a source that stays."""
    return float((x_BHSK - x_BHSK[:1]).abs().max()) < 1e-5 * float(x_BHSK.abs().max())


def apply(subject: Subject, run: Callable[[], Tensor], rows: int, change: Change, entry: Tensor | None) -> Tensor:
    """Return the logits of one call with other logits of attention, and with ``entry`` in place of the first state."""
    place = find_entry(subject) if entry is not None else None
    with enter_state(place, lambda _: entry), AttentionTap(subject.get_module(), rows, change):
        return run()


@contextlib.contextmanager
def enter_state(place: nn.Module | None, put: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Ask ``put``, while this is entered, about the state that enters a module; it may give another in its place."""

    def enter(_: nn.Module, args: Any) -> Any:
        index = next(i for i, a in enumerate(args) if isinstance(a, Tensor) and a.dim() == 3 and a.is_floating_point())
        state = put(args[index])
        return None if state is None else (*args[:index], state, *args[index + 1 :])

    handle = place.register_forward_pre_hook(enter) if place is not None else None
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


def read_entry(subject: Subject, ids: Tensor) -> Tensor:
    """Return the states that enter the first block (``find_entry``) for a text.

    Raises ValueError for a model without such a module.
    """
    entry = find_entry(subject)
    if entry is None:
        raise ValueError("this model has no module that is given states [batch, tokens, width] and returns such")
    states: list[Tensor] = []
    with enter_state(entry, states.append):
        subject.logits(ids)
    return states[0]


def find_entry(subject: Subject) -> nn.Module | None:
    """Return the first module that is given states and returns such: a norm, a dropout, or the first block.

    None where the model has none. Of an encoder-decoder it is that of the side whose text is varied.
    """
    module = subject.get_module()
    ids = subject.tokens(2, 7)
    entered: list[tuple[nn.Module, Any]] = []
    candidates: list[nn.Module] = []
    handles = []
    for part in module.modules():
        if part is module or isinstance(part, nn.Embedding):
            continue
        handles.append(part.register_forward_pre_hook(lambda part, args: entered.append((part, args))))
        handles.append(part.register_forward_hook(lambda part, args, out: _note(part, args, out, ids, candidates)))
    try:
        subject.logits(ids)
    finally:
        for handle in handles:
            handle.remove()
    order = [part for part, _ in entered]
    return min(candidates, key=order.index, default=None)


def _note(part: nn.Module, args: Any, output: Any, ids: Tensor, candidates: list[nn.Module]) -> None:
    output = output[0] if isinstance(output, tuple) and output else output
    states = [a for a in args if isinstance(a, Tensor) and a.dim() == 3 and a.is_floating_point()]
    if states and isinstance(output, Tensor) and output.shape == states[0].shape and states[0].shape[:2] == ids.shape:
        candidates.append(part)


def measure(attention: Attention, known: float | None = None) -> Layer:
    """Split logits into a scale (which may be known) times products, and a bias that all rows share."""
    q, k, logits = (x.double() for x in (attention.q_BHSK, attention.k_BHTK, attention.logits_BHST))
    products = q @ k.mT
    allowed = logits > logits.amax(-1, keepdim=True) - _MASKED
    shared = allowed.all(0)
    moved, answered = (x[:, shared] - x[:, shared].mean(0) for x in (products, torch.where(allowed, logits, 0.0)))
    size = float((moved * moved).sum())
    scale = float((moved * answered).sum()) / size if size else float("nan")
    varied = size > 1e-6 * float((products * products).sum())
    if known is not None:
        scale, varied = known, True
    bias = torch.where(shared, logits - scale * products, 0.0).mean(0)
    spread = float((answered - scale * moved).abs().max()) if moved.numel() else float("inf")
    exact = varied and spread <= _EXACT * max(1.0, float(answered.abs().max()))
    return Layer(attention.name, q, k, scale, bias, allowed.all(1).all(0) if exact else shared.any(0), exact)
