"""From what the user names to subjects: an architecture, a folder or hub name, a model in hand."""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from transformers import PreTrainedModel

from clockhands.checking.models.adapter import Adapter, adapt, adapt_sides, try_reading
from clockhands.checking.models.facts import detect
from clockhands.checking.models.huggingface import HFModel, HFSource
from clockhands.checking.models.subject import Rebuild, Subject, copied, copy_sharing
from clockhands.checking.models.tiny import Build, build_model, make_position_audible, tiny_config
from clockhands.errors import UsageError
from clockhands.models.door import HeadTask

_SMALL = 20_000_000


def from_build(build: Build, config: Any = None, seed: int = 0) -> list[Subject]:
    """Return subjects of a shrunk architecture: one, or the decoder and the source of an encoder-decoder."""
    config = tiny_config(build) if config is None else config

    def shrunk(view: type[HFModel], side: str) -> Subject:
        built: dict[int, HFModel] = {}  # by the seed of the weights; none of them is ever called

        def rebuild(seed: int, dtype: torch.dtype) -> Adapter:
            if seed not in built:
                built[seed] = view(build_model(config, build.task, seed), build.task)
                built[seed].shrunk = True
            return cast(Adapter, copy_sharing(built[seed], dtype))

        adapter = rebuild(seed, torch.float32)
        return Subject(build.name, adapter, rebuild, detect(adapter), seed, side)

    return [shrunk(view, side) for view, side in _list_views(build.task)]


def from_model(
    model: Any,
    name: str = "",
    origin: str | None = None,
    task: HeadTask | None = None,
    source: Any = None,
    **optional: Any,
) -> list[Subject]:
    """Return subjects of a model in hand: of transformers, a module, an adapter, or a function.

    ``origin`` and ``task`` are about models of transformers: where it was loaded from, so that it can be loaded again,
    and what it is if its class does not tell. ``source`` is a text for the encoder of a module
    ``forward(source, target)``. ``optional`` are attributes for a module or function.
    Raises UsageError where they would be ignored, and for a module or function that cannot read a text.
    """
    names = [*(["source"] if source is not None else []), *optional]
    if names and isinstance(model, (PreTrainedModel, Adapter)):
        raise UsageError(
            f"{', '.join(names)}: the {type(model).__name__} says itself what it is; only a plain module or a "
            "function is given such attributes"
        )
    label = name or type(model).__name__
    adapters: list[tuple[Adapter, str]]
    if isinstance(model, PreTrainedModel):
        config: Any = model.config
        if task is None:  # by the head and the configuration
            masked = "MaskedLM" in type(model).__name__ or not model.can_generate()
            task = "masked" if masked else "causal"
            task = "seq2seq" if getattr(config, "is_encoder_decoder", False) else task
        adapters = [(view(model, task, origin), side) for view, side in _list_views(task)]
    elif source is not None:
        adapters = list(zip(adapt_sides(model, source, **optional), ("", "source."), strict=True))
    else:
        adapters = [(adapt(model, **optional), "")]
    if not isinstance(model, (PreTrainedModel, Adapter)):
        for adapter, _ in adapters:
            try_reading(copy.deepcopy(adapter), label)
    subjects = []
    for adapter, side in adapters:
        copies = copied(adapter)  # before detect calls the model
        subjects.append(Subject(label, adapter, copies, detect(adapter), 0, side, _redrawn(adapter, copies)))
    return subjects


def _list_views(task: HeadTask) -> list[tuple[type[HFModel], str]]:
    """The adapters of a model of transformers, with the prefix of their checks."""
    return [(HFModel, ""), (HFSource, "source.")] if task == "seq2seq" else [(HFModel, "")]


def _redrawn(adapter: Adapter, copies: Rebuild) -> Rebuild | None:
    """How to draw the weights of an author's own small model again; None for what comes with weights that matter."""
    module = getattr(adapter, "module", None)
    if module is None or hasattr(adapter, "config") or getattr(adapter, "audible", False):
        return None
    if sum(p.numel() for p in module.parameters()) > _SMALL:
        return None

    def redraw(seed: int, dtype: torch.dtype) -> Adapter:
        twin: Any = copy.deepcopy(copies(seed, torch.float32))
        make_position_audible(twin.module, seed)
        twin.module.to(dtype)
        return cast(Adapter, twin)

    return redraw
