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
_LISTS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
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
    return tomllib.loads(resources.files(__package__).joinpath("overrides.toml").read_text("utf8"))


def architectures(task: Task | None = None) -> Iterator[Build]:
    """Yield every text architecture of the installed transformers, with its variants, in alphabetical order.

    Among them are models that read images too and whose text has three axes of position.
    """
    data = overrides()
    tasks: tuple[Task, ...] = ("causal", "masked", "seq2seq")
    for chosen in tasks if task is None else (task,):
        images = data["images"]["types"] if chosen == "causal" else ()
        for name in sorted({*_LISTS[chosen], *images}):
            if name in CONFIG_MAPPING and f"{name}:{chosen}" not in data["skip"] and name not in data["skip"]:
                yield Build(name, chosen)
    for full, variant in data.get("variant", {}).items():
        base, _, label = full.partition("+")
        if task in (None, variant["task"]):
            yield Build(base, variant["task"], label, variant["set"])


def find(type_name: str) -> list[Build]:
    """Return the builds of one architecture by its transformers name, optionally ``bert:masked`` or ``falcon+alibi``.

    Raises UsageError for a name that transformers does not know or that is not a text model.
    """
    every = list(architectures())
    matching = [build for build in every if type_name in (build.name, build.name.partition(":")[0])]
    if matching:
        return matching
    reason = overrides()["skip"].get(type_name)
    if reason:
        raise UsageError(f"architecture {type_name!r} is not checked: {reason}")
    raise UsageError(describe_unknown("architecture", type_name, {build.name.partition(":")[0] for build in every}))
