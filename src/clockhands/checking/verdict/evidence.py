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

from clockhands.checking.checks.check import CHECKS
from clockhands.checking.checks.generating import compare_from_zero
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


def keeps_stretched(subject: Subject) -> str | None:
    """Return an empty text if the library stretches the frequencies and keeps them; None of a model's own code."""
    for module in _modules(subject):
        kinds = getattr(module, "rope_type", None)
        dynamic = any("dynamic" in str(kind) for kind in (kinds.values() if isinstance(kinds, dict) else (kinds,)))
        if dynamic and hasattr(module, "max_seq_len_cached") and type(module).__module__.startswith("transformers."):
            return ""
    return None


def generates_from_zero(subject: Subject) -> str | None:
    """Return an empty text if generate() computes what forward() does where it is given positions from 0, else None."""
    if subject.facts.first == 0:
        return None
    try:
        measured = compare_from_zero(subject)
    except Exception:  # a model may raise anything
        return None
    return "" if measured.expected else None


def scan_alone_clamps(subject: Subject, check: str) -> str | None:
    """Return an empty text if the check passes once no time step is clamped in the scans of the library, else None."""
    try:
        free = subject.copy_untouched()
        scans = [module for module in _modules(free) if hasattr(module, "time_step_limit")]
        if not scans or not all(type(scan).__module__.startswith("transformers.") for scan in scans):
            return None
        for scan in scans:
            scan.time_step_limit = (0.0, float("inf"))
        return "" if CHECKS[check].measure(free).expected else None
    except Exception:  # a model may raise anything
        return None


EVIDENCE: dict[str, Callable[[Subject, str], str | None]] = {
    "mask_without_positions": lambda subject, _: mask_without_positions(subject),
    "mask_with_positions": lambda subject, _: mask_with_positions(subject),
    "table_follows_cast": lambda subject, _: table_follows_cast(subject),
    "keeps_stretched": lambda subject, _: keeps_stretched(subject),
    "generates_from_zero": lambda subject, _: generates_from_zero(subject),
    "scan_alone_clamps": scan_alone_clamps,
}
"""What shows in a subject that the cause of a failing check, named beside it, is that of the library."""


def _modules(subject: Subject) -> list[Any]:
    return list(subject.module.modules()) if subject.module is not None else []


def _base(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
