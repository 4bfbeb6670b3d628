"""What the tests of prompts with images and with videos share: which checks fail, and arguments that are not used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

from clockhands.checking.checks.check import Check
from clockhands.checking.models.builds import find
from clockhands.checking.models.make_subjects import from_build


def find_failing(checks: Mapping[str, Check], names: Iterable[str], build: str = "qwen2_vl") -> set[str]:
    """Return those of the named checks that an untouched copy of this build fails."""
    (subject,) = from_build(find(build)[0])
    return {name for name in names if not checks[name].measure(subject.copy_untouched()).expected}


def ignore_argument(patch: pytest.MonkeyPatch, name: str) -> None:
    """What is passed to Qwen2-VL by this name is not used: positions, or the mask, so that pads are read as text."""
    original = Qwen2VLModel.forward

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        return original(self, *given, **{key: value for key, value in named.items() if key != name})

    patch.setattr(Qwen2VLModel, "forward", forward)


def drop_positions(patch: pytest.MonkeyPatch) -> None:
    ignore_argument(patch, "position_ids")


def drop_mask(patch: pytest.MonkeyPatch) -> None:
    ignore_argument(patch, "attention_mask")
