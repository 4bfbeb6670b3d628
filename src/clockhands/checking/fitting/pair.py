"""Two models read alike, and the first on other texts with some of its differences undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.fitting.differences import Difference, find_gain
from clockhands.checking.fitting.reading import Reading, apply, read, read_entry
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import Attention

_ROWS = 8


class Pair:
    """Two readings of the same texts, and the same models on other texts with some differences undone."""

    def __init__(self, ours: Subject, theirs: Subject, length: int) -> None:
        self.ours, self.theirs = ours, theirs
        self.mine, self.wanted = (read_positions(subject, theirs, length) for subject in (ours, theirs))

    @property
    def comparable(self) -> bool:
        """Whether both compute as many attentions, of the same shapes."""
        shapes = [[(x.q_BHSK.shape, x.k_BHTK.shape) for x in r.layers] for r in (self.mine, self.wanted)]
        return shapes[0] == shapes[1]

    def undo(self, ids: Tensor, undone: Sequence[Difference]) -> Tensor:
        """Return our logits of a text with these differences undone."""
        by_layer: dict[int, list[Difference]] = {}
        for item in undone:
            by_layer.setdefault(item.layer, []).append(item)

        def change(index: int, attention: Attention) -> Tensor | None:
            return self._rebuild(index, attention, by_layer[index]) if index in by_layer else None

        entry = read_entry(self.theirs, ids) if -1 in by_layer else None
        return apply(self.ours, lambda: self.ours.logits(ids), len(ids), change, entry)

    def _rebuild(self, index: int, attention: Attention, undone: list[Difference]) -> Tensor:
        mine, wanted = self.mine.layers[index], self.wanted.layers[index]
        kinds = {item.kind for item in undone}
        q, k = attention.q_BHSK.double(), attention.k_BHTK.double()
        length, keys = q.shape[2], k.shape[2]
        for item in undone:
            if item.rotations is not None:
                q = torch.einsum("sij,bhsj->bhsi", item.rotations[0][:length], q)
                k = torch.einsum("sij,bhsj->bhsi", item.rotations[1][:keys], k)
        scale = mine.scale / (find_gain(mine, wanted) or 1.0) if "scale" in kinds else mine.scale
        bias = (wanted if "bias" in kinds else mine).bias_HST[:, :length, :keys]
        allowed = (wanted if "mask" in kinds else mine).allowed_ST[:length, :keys]
        logits = scale * (q @ k.mT) + bias
        dtype = attention.logits_BHST.dtype
        return logits.to(dtype).masked_fill(~allowed, torch.finfo(dtype).min)


def read_positions(subject: Subject, other: Subject, length: int) -> Reading:
    """Read a model on rows of one token each, whose states depend on position only where the model adds one."""
    tokens = other.tokens(1, _ROWS)[0]
    ids = tokens[:, None].repeat(1, length)
    return read(subject, _call(subject, ids), _ROWS)


def _call(subject: Subject, ids: Tensor) -> Callable[[], Any]:
    """One pass; an encoder-decoder of transformers reads the same rows on both sides."""
    adapter: Any = subject.adapter
    if getattr(adapter, "task", "") != "seq2seq" or not hasattr(adapter, "inputs"):
        return lambda: subject.logits(ids)

    def run() -> Any:
        arguments = adapter.inputs(ids)
        with torch.no_grad():
            return adapter.module(**{name: ids % min(adapter.vocabulary, adapter.opposite) for name in arguments})

    return run
