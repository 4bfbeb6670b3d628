"""Makes the Auto classes of transformers know Clockhands models, without importing transformers.

``import clockhands`` must stay cheap, and ``AutoModelForCausalLM.from_pretrained(run)`` must work after it. So a
finder waits on ``sys.meta_path`` for the two modules that hold the Auto classes; right after one was imported, by
whomever, it imports the module of ours that registers there.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FOLLOWED_BY = {
    "transformers.models.auto.configuration_auto": "clockhands.model.huggingface_config",
    "transformers.models.auto.modeling_auto": "clockhands.model.huggingface",
}


class _Followed(Loader):
    """Another loader, after which one of our modules is imported."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        importlib.import_module(FOLLOWED_BY[module.__name__])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Waiting(MetaPathFinder):
    """Finds the awaited modules as everybody else would, and has them followed."""

    def __init__(self) -> None:
        self._asking: set[str] = set()

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in FOLLOWED_BY or fullname in self._asking:
            return None
        self._asking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Followed(spec.loader)
        return spec


def register_when_needed() -> None:
    """Register now where transformers' Auto classes are already imported, and otherwise when they are."""
    if not any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())
    for awaited, ours in FOLLOWED_BY.items():
        if awaited in sys.modules:
            importlib.import_module(ours)
