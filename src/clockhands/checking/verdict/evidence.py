"""Evidence in a model that an explanation is right: the lines that make its masks and its tables of angles."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from clockhands.checking.checks.precision import angle_tables
from clockhands.checking.models.subject import Subject


@dataclass(frozen=True)
class MaskCall:
    """One call of a function of ``masking_utils``: which, from which line, and whether with position_ids.

    ``shared``: the line is one of transformers, not of a model's own code.
    """

    maker: str
    line: str
    positioned: bool
    shared: bool


def mask_calls(subject: Subject) -> list[MaskCall]:
    """Return the masks that a forward pass over two packed documents makes, in order."""
    calls: list[MaskCall] = []
    ids = subject.tokens(1, 8)
    positions = torch.cat([subject.arange(1, 4), subject.arange(1, 4)], 1)
    with _record_masks(subject, calls), contextlib.suppress(Exception):  # a model may raise anything
        subject.logits(ids, positions=positions)
    return calls


@contextlib.contextmanager
def _record_masks(subject: Subject, calls: list[MaskCall]) -> Iterator[None]:
    """Inside the block, the calls of every mask function in the modules of the model are recorded."""
    homes = {sys.modules[type(module).__module__] for module in _modules(subject)}
    originals = [(home, name, getattr(home, name)) for home in homes for name in _makers() if hasattr(home, name)]
    try:
        for home, name, original in originals:
            setattr(home, name, _record_calls(home, name, original, calls))
        yield
    finally:
        for home, name, original in originals:
            setattr(home, name, original)


def _record_calls(home: Any, name: str, original: Callable[..., Any], calls: list[MaskCall]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **named: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_globals is not vars(home) and frame.f_back is not None:  # decorators may stand between
            frame = frame.f_back
        arguments = signature.bind_partial(*args, **named).arguments
        positioned = arguments.get("position_ids") is not None
        line = f"{_base(frame.f_code.co_filename)}:{frame.f_lineno}"
        calls.append(MaskCall(name, line, positioned, home.__name__.startswith("transformers.")))
        return original(*args, **named)

    return wrapper


@functools.cache
def _makers() -> tuple[str, ...]:
    from transformers import masking_utils

    return tuple(name for name in vars(masking_utils) if re.match(r"create_(?!recurrent)\w*mask", name))


def mask_without_positions(subject: Subject) -> str | None:
    """Return the line of transformers that makes the mask of self-attention without position_ids; None without one."""
    calls = mask_calls(subject)
    causal = [call for call in calls if "bidirectional" not in call.maker] if subject.causal else calls
    bare = next((call for call in causal or calls if not call.positioned and call.shared), None)
    return None if bare is None else f"{bare.line} {bare.maker}"


def mask_with_positions(subject: Subject) -> str | None:
    """Return the line that passes position_ids to the function that infers documents from them; None without one."""
    called = next((call for call in mask_calls(subject) if call.positioned), None)
    return None if called is None else f"{called.line} {called.maker}"


def table_follows_cast(subject: Subject) -> str | None:
    """Return the lines of transformers that make the tables of angles buffers; None without any.

    A table of the model's own code, or of a module that is not of the library, is the model's own fault.
    """
    if subject.module is None:
        return None
    lines: dict[type, str] = {}
    for name in angle_tables(subject.module):
        parent, _, last = name.rpartition(".")
        owner = type(subject.module.get_submodule(parent))
        if not owner.__module__.startswith("transformers."):
            return None
        lines.setdefault(owner, _find_definition(owner, last))
    return ", ".join(line for line in lines.values() if line) or None


def _find_definition(owner: type, buffer: str) -> str:
    """Return the line of a class or its bases that makes the buffer, by its name if that is written out."""
    exact = re.compile(rf"self\.{buffer}\s*=.*Buffer\(|register_buffer\(\s*\"{buffer}\"")
    for pattern in (exact, re.compile(r"Buffer\(|register_buffer\(")):
        for cls in owner.__mro__:
            if not issubclass(cls, torch.nn.Module) or cls is torch.nn.Module:
                continue
            with contextlib.suppress(OSError, TypeError):
                lines, first = inspect.getsourcelines(cls)
                hit = next((n for n, line in enumerate(lines) if pattern.search(line)), None)
                if hit is not None:
                    return f"{_base(inspect.getsourcefile(cls) or '')}:{first + hit} {cls.__name__}"
    return ""


def stretches(subject: Subject) -> str | None:
    """Return an empty text if the frequencies depend on the length that was read, else None."""
    return "" if subject.facts.stretches else None


EVIDENCE: dict[str, Callable[[Subject], str | None]] = {
    "mask_without_positions": mask_without_positions,
    "mask_with_positions": mask_with_positions,
    "table_follows_cast": table_follows_cast,
    "stretches": stretches,
}


def _modules(subject: Subject) -> list[Any]:
    return list(subject.module.modules()) if subject.module is not None else []


def _base(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
