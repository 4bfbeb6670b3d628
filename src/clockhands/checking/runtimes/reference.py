"""The torch reference of a runtime, and what it would score if it had a fault that exports and conversions have."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.models.subject import Subject
from clockhands.checking.runtimes.runtime import Texts
from clockhands.checking.runtimes.scores import read_scores
from clockhands.model.huggingface_cache import get_cache, name_cache

Place = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Variant:
    """The reference with one fault: what it is in words, and the model that has it."""

    words: str
    make: Callable[[], Subject]


@dataclass(frozen=True)
class Reference:
    """A model of transformers as the truth about scores."""

    subject: Subject

    @property
    def name(self) -> str:
        """The folder or hub name."""
        return self.subject.name

    @property
    def limit(self) -> int | None:
        """The longest text that the model claims to read."""
        return self.subject.facts.limit

    def score(self, texts: Texts, place: Place | None = None) -> list[list[float]]:
        """Return the log-probability of every token but the first of each text.

        ``place`` gives tokens other positions than 0, 1, …
        """
        return score(self.subject, texts, place)

    @property
    def temperature(self) -> float | None:
        """By how much YaRN multiplies what it rotates; None without YaRN."""
        rope = getattr(getattr(self.subject.module, "config", None), "rope_parameters", None)
        if not isinstance(rope, dict) or rope.get("rope_type") != "yarn":
            return None
        return float(rope.get("attention_factor") or 0.1 * math.log(rope["factor"]) + 1)

    def score_scaled(self, text: Sequence[int], start: int, factor: float) -> list[float]:
        """Return the scores of a text of which the keys before ``start`` are multiplied before the rest is read."""
        module: Any = self.subject.module
        ids = torch.tensor([list(text)])
        with torch.no_grad():
            first = module(input_ids=ids[:, :start], use_cache=True)
            for layer in get_cache(first).layers:
                layer.keys = layer.keys * factor
            second = module(input_ids=ids[:, start:], use_cache=True, **name_cache(get_cache(first)))
        return read_scores(text, torch.cat([first.logits, second.logits], 1)[0].double().numpy())

    def list_variants(self) -> Iterator[Variant]:
        """Yield the model with each fault that its weights and configuration allow."""
        subject, module = self.subject, self.subject.get_module()
        if any(name.endswith(("q_proj", "k_proj")) for name, _ in module.named_modules()):
            for forward in (True, False):
                yield Variant(
                    "q and k are not permuted as the engine pairs channels: halves and neighbours are confused",
                    lambda forward=forward: _change(subject, lambda model: permute(model, forward)),  # type: ignore[misc]
                )
        rope = getattr(getattr(module, "config", None), "rope_parameters", None)
        if not isinstance(rope, dict) or "rope_theta" not in rope:
            return
        kind = rope.get("rope_type", "default")
        plain = {"rope_type": "default", "rope_theta": rope["rope_theta"]}
        if kind != "default":
            yield Variant(f"the scaling {kind!r} is dropped", lambda: _rebuild(subject, plain))
        if kind == "yarn":
            untempered = {**rope, "attention_factor": 1.0}
            yield Variant("YaRN without its attention factor (temperature)", lambda: _rebuild(subject, untempered))
        if rope["rope_theta"] != 10_000:
            yield Variant(
                f"the base is 10,000 in place of {rope['rope_theta']:,g}",
                lambda: _rebuild(subject, {**rope, "rope_theta": 10_000.0}),
            )


def score(subject: Subject, texts: Texts, place: Place | None = None) -> list[list[float]]:
    """Return the log-probability of every token but the first of each text, as a subject computes it."""
    return [_score(subject, text, place) for text in texts]


def _score(subject: Subject, text: Sequence[int], place: Place | None) -> list[float]:
    ids = torch.tensor([list(text)])
    mask = positions = None
    if place is not None:
        positions = place(torch.arange(len(text)))[None] + subject.facts.first
        mask = torch.ones_like(ids, dtype=torch.bool)  # without one, positions that begin again are packed documents
    return read_scores(text, subject.logits(ids, mask, positions)[0].double().cpu().numpy())


def _change(subject: Subject, change: Callable[[nn.Module], None]) -> Subject:
    changed = subject.copy_model(subject.seed, subject.dtype)
    module: Any = copy.deepcopy(changed.module)
    change(module)
    changed.adapter.module = module  # type: ignore[attr-defined]
    return changed


def _rebuild(subject: Subject, rope: dict[str, Any]) -> Subject:
    """Return the same weights under other settings of RoPE."""
    module: Any = subject.module
    config = copy.deepcopy(module.config)
    config.rope_parameters = dict(rope)
    model = type(module)._from_config(config, dtype=subject.dtype).eval()
    model.load_state_dict(dict(module.named_parameters()), strict=False)
    changed = subject.copy_model(subject.seed, subject.dtype)
    changed.adapter.module = model  # type: ignore[attr-defined]
    return changed


@torch.no_grad()
def permute(model: nn.Module, forward: bool) -> None:
    """Reorder the rows of q and k within each head: halves to neighbours, or back."""
    width = _head_width(model)
    for name, layer in model.named_modules():
        if name.endswith(("q_proj", "k_proj")) and isinstance(layer, nn.Linear):
            for tensor in (layer.weight, layer.bias):
                if tensor is not None:
                    sizes = (2, width // 2) if forward else (width // 2, 2)
                    heads = tensor.reshape(-1, *sizes, *tensor.shape[1:])
                    tensor.copy_(heads.transpose(1, 2).reshape(tensor.shape))


def _head_width(model: nn.Module) -> int:
    config: Any = getattr(model, "config", None)
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
