"""Run a model while its first states and attentions are heard or changed, and split what an attention does in parts."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.checks.check import TOLERANCE, difference
from clockhands.checking.fitting.compare import size_of, varies
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import TappedAttention, tap_attention

Key = tuple[str, int]
"""An attention of a pass: the name of its module, and which of those that this module computes."""
ChangeLogits = Callable[[Key, TappedAttention], Tensor | None]
ChangeState = Callable[[int, Tensor], Tensor | None]
"""From the number of an entry (see ``find_entries``) and the states [B, S, D] there, to others; None leaves them."""
_MASKED = 5e3
"""A logit this far below the largest of its row is masked: exp(-5000) is zero in any precision."""
_LOWEST = -1e8
_EXACT = 1e-3


@dataclass(frozen=True)
class MeasuredLayer:
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

    @property
    def sides(self) -> tuple[Tensor, Tensor]:
        """The queries and the keys."""
        return self.q_BHSK, self.k_BHTK

    @property
    def is_of_text(self) -> bool:
        """Whether queries and keys are those of the rows, and not of one text for all, such as a source that stays."""
        return not any(map(_is_one_text, self.sides))


@dataclass(frozen=True)
class PassReading:
    """The attentions of one pass, and the states [B, S, D] at each entry of the model."""

    attentions: dict[Key, TappedAttention]
    states: tuple[Tensor, ...]

    def measure(self) -> dict[Key, MeasuredLayer]:
        """Split each attention; of one text in all rows the scale is that of another, which those rows cannot tell."""
        layers = {key: _split(item) for key, item in self.attentions.items()}
        known = next((layer.scale for layer in layers.values() if layer.exact), None)
        for key, item in self.attentions.items() if known is not None else ():
            if all(map(_is_one_text, layers[key].sides)):
                layers[key] = _split(item, known)
        return layers

    @classmethod
    def join(cls, parts: Sequence[PassReading]) -> PassReading:
        """Return readings of one row each as one of all rows."""
        heard = {}
        for key, first in parts[0].attentions.items():
            same = [part.attentions[key] for part in parts]
            q, k, logits = (torch.cat([getattr(x, n) for x in same]) for n in ("q_BHSK", "k_BHTK", "logits_BHST"))
            heard[key] = replace(first, q_BHSK=q, k_BHTK=k, logits_BHST=logits)
        return cls(heard, tuple(map(torch.cat, zip(*(part.states for part in parts), strict=True))))


def listen(
    module: nn.Module, entries: Iterable[str], rows: int, logits: ChangeLogits, state: ChangeState, run: Any
) -> Any:
    """Return what ``run()`` returns, while both changes are asked about every attention and the state at each entry."""
    seen: Counter[str] = Counter()
    entered: set[int] = set()

    def change(_: int, attention: TappedAttention) -> Tensor | None:
        seen[attention.name] += 1
        return logits((attention.name, seen[attention.name] - 1), attention)

    def enter(index: int, _: nn.Module, args: Any) -> Any:
        if index in entered:  # a block that is run several times
            return None
        entered.add(index)
        at = next(i for i, value in enumerate(args) if _is_state(value))
        own, other = args[at], state(index, args[at])
        if other is not None and own._base is None and not isinstance(own, nn.Parameter):
            own.copy_(other)  # in place: where there are no blocks, a norm is given what goes on beside it too
            return None
        return None if other is None else (*args[:at], other, *args[at + 1 :])

    with contextlib.ExitStack() as stack:
        for index, name in enumerate(entries):
            hook = module.get_submodule(name).register_forward_pre_hook(partial(enter, index))
            stack.callback(hook.remove)
        stack.enter_context(tap_attention(module, rows, change))
        stack.enter_context(torch.no_grad())
        return run()


def read(
    subject: Subject,
    entries: Iterable[str],
    ids: Tensor,
    run: Callable[[Subject, Tensor], Any],
    sources: Collection[Key] | None = None,
) -> PassReading:
    """Read ``run(subject, ids)`` of rows of one token each, in which every token attends to itself.

    ``sources`` are the attentions to a source that stays, by default those that look so. Raises whatever the model
    raises.
    """
    heard: dict[Key, TappedAttention] = {}
    states: dict[int, Tensor] = {}

    def note(key: Key, attention: TappedAttention) -> Tensor:
        heard[key] = attention
        return attend_to_itself(attention, None if sources is None else key in sources)

    listen(subject.get_module(), entries, len(ids), note, states.__setitem__, partial(run, subject, ids))
    return PassReading(heard, tuple(states[entry] for entry in sorted(states)))


def attend_to_itself(attention: TappedAttention, source: bool | None = None) -> Tensor:
    """Return logits by which every token attends to itself alone, or to the first of a ``source`` that stays.

    States then depend on the token and its place alone, and not on any mistake of an earlier layer. By default a source
    is told by its keys, which are the same in all rows though the queries are not.
    """
    logits = attention.logits_BHST
    queries, keys = logits.shape[-2:]
    places = torch.arange(queries, device=logits.device)
    chosen = (places + max(keys - queries, 0)) % keys
    if reads_source(attention) if source is None else source:
        chosen = torch.zeros_like(chosen)
    alone = torch.full_like(logits[:1, :1], torch.finfo(logits.dtype).min)
    alone[..., places, chosen] = 0
    return alone.expand(logits.shape)


def carries_beside_attention(subject: Subject, column: int = 0) -> bool:
    """Whether the token of a column reaches others though each attends to itself alone: by a state or a convolution."""
    ids = subject.tokens(1, 12)
    changed, answers, rest = ids.clone(), [], torch.arange(12) != column % 12
    changed[:, column] = subject.other(ids)[:, column]
    for text in (ids, changed):
        twin = subject.copy_untouched()
        run = partial(twin.logits, text)
        answers.append(
            listen(twin.get_module(), (), 1, lambda _, x: attend_to_itself(x), lambda *_: None, run)[:, rest]
        )
    return difference(*answers) > TOLERANCE


def moves_beside_attention(subject: Subject) -> bool:
    """Whether a token that attends to itself alone changes with its place, though its first state does not."""
    states: dict[int, Tensor] = {}
    twin, ids = subject.copy_untouched(), subject.tokens(1, 1).repeat(1, 8)
    run = partial(twin.logits, ids)
    entries = find_entries(subject)[:1]
    logits = listen(
        twin.get_module(), entries, 1, lambda _, x: attend_to_itself(x), lambda i, x: states.update({i: x}), run
    )
    return bool(states) and not varies(states[0], 1) and varies(logits, 1, TOLERANCE)


def reads_source(attention: TappedAttention) -> bool:
    """Whether keys are those of one text in all rows, and queries are not."""
    return len(attention.q_BHSK) > 1 and _is_one_text(attention.k_BHTK) and not _is_one_text(attention.q_BHSK)


def _is_one_text(x_BHSK: Tensor) -> bool:
    return size_of(x_BHSK - x_BHSK[:1]) < 1e-5 * size_of(x_BHSK)


def _is_state(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 3 and value.is_floating_point()


def find_entries(subject: Subject) -> tuple[str, ...]:
    """Return the name of the first module that is given states and returns such: a norm, a dropout, the first block.

    Of an encoder-decoder that of the side whose text varies comes first, then that of the other side.
    """
    module, ids = subject.get_module(), subject.tokens(2, 7)
    shapes: dict[str, torch.Size | None] = {}  # in the order in which modules begin; None of what changes it

    def enter(name: str, *_: Any) -> None:
        shapes.setdefault(name, None)

    def leave(name: str, _: nn.Module, args: Any, output: Any) -> None:
        output = output[0] if isinstance(output, tuple) and output else output
        shape = next((value.shape for value in args if _is_state(value)), None)
        if shapes[name] is None and isinstance(output, Tensor) and output.shape == shape:
            shapes[name] = shape

    with contextlib.ExitStack() as stack:
        for name, part in module.named_modules():
            if part is not module and not isinstance(part, nn.Embedding):
                stack.callback(part.register_forward_pre_hook(partial(enter, name)).remove)
                stack.callback(part.register_forward_hook(partial(leave, name)).remove)
        subject.logits(ids)
    entered = [(name, shape) for name, shape in shapes.items() if shape is not None]
    own = next(((name, shape) for name, shape in entered if shape[:2] == ids.shape), None)
    if own is None:
        return ()
    other = (name for name, shape in entered if shape[::2] == own[1][::2] and shape != own[1])
    return (own[0], *itertools.islice(other, 1))


def _split(attention: TappedAttention, known: float | None = None) -> MeasuredLayer:
    """Split logits into a scale (which may be known) times products, and a bias that all rows share."""
    q, k, logits = (x.double() for x in (attention.q_BHSK, attention.k_BHTK, attention.logits_BHST))
    products = q @ k.mT
    # One number for every token and head is what a mask put there, however much of it a softmax lets through.
    constant, moving = ((x - x[:1, :1]).abs().amax((0, 1)) for x in (logits, products))
    allowed = find_seen(logits) & ~((constant < 1e-9) & (moving > 1e-6))
    shared = allowed.all(0)
    moved, answered = (x[:, shared] - x[:, shared].mean(0) for x in (products, torch.where(allowed, logits, 0.0)))
    size = float((moved * moved).sum())
    scale = float((moved * answered).sum()) / size if size else float("nan")
    varied = size > 1e-6 * float((products * products).sum())
    if known is not None:
        scale, varied = known, True
    bias = torch.where(shared, logits - scale * products, 0.0).mean(0)
    spread = size_of(answered - scale * moved) if moved.numel() else float("inf")
    chosen = int((allowed != allowed[-1:]).flatten(1).any(1).sum()) > 1  # keys by what tokens mean, as an indexer does
    exact = varied and not chosen and spread <= _EXACT * max(1.0, size_of(answered))
    return MeasuredLayer(attention.name, q, k, scale, bias, allowed.all(1).all(0) if exact else shared.any(0), exact)


def find_seen(logits: Tensor) -> Tensor:
    """Return which keys are not masked: none of a query whose logits are all as low as a mask makes them."""
    return (logits > logits.amax(-1, keepdim=True) - _MASKED) & (logits > _LOWEST)
