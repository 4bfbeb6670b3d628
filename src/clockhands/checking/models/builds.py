"""Which text architectures of transformers can be built small, and what is set for each besides the rules."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

from clockhands.errors import UsageError, describe_unknown

Task = Literal["causal", "masked", "seq2seq"]
LISTS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}
MULTIMODAL = {
    **modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    **modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
}


@dataclass(frozen=True)
class Build:
    """One architecture to build: its transformers name, its task (which head it has), what is set besides the rules."""

    type: str
    task: Task
    variant: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``llama`` for the usual task of a type, ``bert:masked``, ``falcon+alibi``."""
        return self.type + (f"+{self.variant}" if self.variant else "") + f":{self.task}"


@functools.cache
def overrides() -> dict[str, Any]:
    """Return the shrinking rules and the exceptions of single models, from ``overrides.toml``."""
    return _read("overrides.toml")


@functools.cache
def multimodal() -> dict[str, Any]:
    """Return the same for models that read more than text, from ``multimodal.toml``."""
    return _read("multimodal.toml")


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text("utf8"))


def architectures(task: Task | None = None) -> Iterator[Build]:
    """Yield every text architecture of the installed transformers, with its variants, in alphabetical order.

    Among them are models that read images or sound too, where they can be given text alone.
    """
    tasks: tuple[Task, ...] = ("causal", "masked", "seq2seq")
    for chosen in tasks if task is None else (task,):
        for name in sorted({*LISTS[chosen], *_list_multimodal(chosen)}):
            if name in CONFIG_MAPPING and not _find_reason(name, chosen):
                yield Build(name, chosen)
    for full, variant in overrides().get("variant", {}).items():
        base, _, label = full.partition("+")
        if task in (None, variant["task"]):
            yield Build(base, variant["task"], label, variant["set"])


def _list_multimodal(task: Task) -> set[str]:
    """Return the types that read more than text and whose text part has this task."""
    decoders, pairs = (set(multimodal()[kind]["types"]) for kind in ("decoders", "seq2seq"))
    listed = {name for names in LISTS.values() for name in names}
    wrappers = (set(MULTIMODAL) - listed) | (decoders & listed)
    return {"causal": wrappers - pairs, "seq2seq": wrappers & pairs, "masked": set()}[task]


def _find_reason(name: str, task: str) -> str:
    """Return why an architecture is not built; empty if it is."""
    if task == "seq2seq" and name in multimodal()["decoders"]["types"]:
        return "a causal decoder listed under seq2seq as well"
    skipped = {**overrides()["skip"], **multimodal()["skip"]}
    return str(skipped.get(f"{name}:{task}") or skipped.get(name) or "")


def find(type_name: str) -> list[Build]:
    """Return the builds of one architecture by its transformers name, optionally ``bert:masked`` or ``falcon+alibi``.

    Raises UsageError for a name that transformers does not know or that is not a text model.
    """
    every = list(architectures())
    matching = [build for build in every if type_name in (build.name, build.name.partition(":")[0])]
    if matching:
        return matching
    reason = _find_reason(*type_name.split(":", 1)) if ":" in type_name else _find_reason(type_name, "")
    if reason:
        raise UsageError(f"architecture {type_name!r} is not checked: {reason}")
    raise UsageError(describe_unknown("architecture", type_name, {build.name.partition(":")[0] for build in every}))
