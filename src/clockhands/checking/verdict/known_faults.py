"""Faults and limits that have been traced, one entry of ``known_faults.toml`` each, and what must show in a model."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import torch
import transformers
from transformers.models.auto import modeling_auto

from clockhands.checking.checks.caching import compare_from_zero
from clockhands.checking.checks.check import CHECKS
from clockhands.checking.checks.precision import angle_tables
from clockhands.checking.models.subject import Subject
from clockhands.checking.verdict.outcome import Outcome


@dataclass(frozen=True)
class MaskCall:
    """A call of a function of ``masking_utils``, with position_ids or not; ``shared``: from a line of the library."""

    maker: str
    line: str
    positioned: bool
    shared: bool


def mask_calls(subject: Subject) -> list[MaskCall]:
    """Return the masks that a forward pass over two packed documents makes, in order."""
    from transformers import masking_utils

    calls: list[MaskCall] = []

    def record(home: Any, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **named: Any) -> Any:
            frame = sys._getframe(1)
            while frame.f_globals is not vars(home) and frame.f_back is not None:  # decorators may stand between
                frame = frame.f_back
            arguments = inspect.signature(original).bind_partial(*args, **named).arguments
            line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            shared = home.__name__.startswith("transformers.")
            calls.append(MaskCall(name, line, arguments.get("position_ids") is not None, shared))
            return original(*args, **named)

        return wrapper

    makers = [name for name in vars(masking_utils) if re.match(r"create_(?!recurrent)\w*mask", name)]
    with contextlib.ExitStack() as stack:
        # A class of a file that was run by hand may be in no module that is known.
        for home in {sys.modules.get(type(module).__module__) for module in _modules(subject)}:
            for name in makers:
                if hasattr(home, name):
                    stack.enter_context(mock.patch.object(home, name, record(home, name, getattr(home, name))))
        with contextlib.suppress(Exception):  # a model may raise anything
            positions = torch.cat([subject.arange(1, 4), subject.arange(1, 4)], 1)
            subject.logits(subject.tokens(1, 8), positions=positions)
    return calls


def _mask_without_positions(subject: Subject, _: str) -> str | None:
    calls = mask_calls(subject)
    causal = [call for call in calls if "bidirectional" not in call.maker] if subject.causal else calls
    bare = next((call for call in causal or calls if not call.positioned and call.shared), None)
    return None if bare is None else f"{bare.line} {bare.maker}"


def _mask_with_positions(subject: Subject, _: str) -> str | None:
    """The line that passes position_ids to the function that infers documents from them."""
    called = next((call for call in mask_calls(subject) if call.positioned), None)
    return None if called is None else f"{called.line} {called.maker}"


def _table_follows_cast(subject: Subject, _: str) -> str | None:
    """The lines of the library that make the tables of angles buffers; a table of other code is that code's fault."""
    lines: dict[type, str] = {}
    for name in angle_tables(subject.get_module()) if subject.module is not None else ():
        parent, _, last = name.rpartition(".")
        owner = type(subject.get_module().get_submodule(parent))
        if not owner.__module__.startswith("transformers."):
            return None
        lines.setdefault(owner, _find_definition(owner, last))
    return ", ".join(line for line in lines.values() if line) or None


def _find_definition(owner: type, buffer: str) -> str:
    """Return the line of a class or its bases that makes the buffer, by its name if that is written out."""
    exact = re.compile(rf"self\.{buffer}\s*=.*Buffer\(|register_buffer\(\s*\"{buffer}\"")
    bases = [cls for cls in owner.__mro__ if issubclass(cls, torch.nn.Module) and cls is not torch.nn.Module]
    for pattern in (exact, re.compile(r"Buffer\(|register_buffer\(")):
        for cls in bases:
            with contextlib.suppress(OSError, TypeError):
                lines, first = inspect.getsourcelines(cls)
                hit = next((n for n, line in enumerate(lines) if pattern.search(line)), None)
                if hit is not None:
                    return f"{Path(inspect.getsourcefile(cls) or '').name}:{first + hit} {cls.__name__}"
    return ""


def _keeps_stretched(subject: Subject, _: str) -> str | None:
    """Whether it is the library that stretches the frequencies and keeps them, and not a model's own code."""
    for module in _modules(subject):
        kinds = getattr(module, "rope_type", None)
        dynamic = any("dynamic" in str(kind) for kind in (kinds.values() if isinstance(kinds, dict) else (kinds,)))
        if dynamic and hasattr(module, "max_seq_len_cached") and type(module).__module__.startswith("transformers."):
            return ""
    return None


def _generates_from_zero(subject: Subject, _: str) -> str | None:
    """Whether generate() computes what forward() does where it is given positions from 0."""
    return "" if subject.facts.first and compare_from_zero(subject).expected else None


def _scan_alone_clamps(subject: Subject, check: str) -> str | None:
    """Whether the check passes once no time step is clamped in the scans of the library."""
    free = subject.copy_untouched()
    scans = [module for module in _modules(free) if hasattr(module, "time_step_limit")]
    if not scans or not all(type(scan).__module__.startswith("transformers.") for scan in scans):
        return None
    for scan in scans:
        scan.time_step_limit = (0.0, float("inf"))
    return "" if CHECKS[check].measure(free).expected else None


EVIDENCE: dict[str, Callable[[Subject, str], str | None]] = {
    "mask_without_positions": _mask_without_positions,
    "mask_with_positions": _mask_with_positions,
    "table_follows_cast": _table_follows_cast,
    "keeps_stretched": _keeps_stretched,
    "generates_from_zero": _generates_from_zero,
    "scan_alone_clamps": _scan_alone_clamps,
}
"""By which lines, or without words, a subject shows that a check fails by the library; None if it does not show it."""


def _modules(subject: Subject) -> list[Any]:
    return list(subject.module.modules()) if subject.module is not None else []


@dataclass(frozen=True)
class KnownFault:
    """Why these checks fail for these architectures: a fault or a limit of the library.

    ``code`` are lines of transformers, ``"file: text of the line"``; their line numbers are looked up in the
    installed version. ``evidence`` names what must show in the model before the entry is believed.
    ``verdict``, where it is set, replaces that of the measurement: the difference is a declared limit, or, with
    LIBRARY, the fault of code that many models share. ``traced`` is the version that was read.
    """

    name: str
    types: tuple[str, ...]
    checks: tuple[str, ...]
    cause: str
    traced: str
    code: tuple[str, ...] = ()
    evidence: str = ""
    safe: str = ""
    thread: str = ""
    verdict: Literal["FAIL", "WARN", "LIBRARY", "PROPERTY"] | None = None

    def fits(self, architecture: str, check: str) -> bool:
        """Return whether this entry speaks of that check on that architecture (``llama``, ``bert:causal``)."""
        base = architecture.partition(":")[0]
        names = (architecture, base, base.partition("+")[0])
        in_types = any(fnmatch.fnmatchcase(name, pattern) for pattern in self.types for name in names)
        return in_types and any(fnmatch.fnmatchcase(check, pattern) for pattern in self.checks)

    def find_lines(self, architecture: str) -> tuple[str, ...]:
        """Return ``file.py:line`` of the code, as far as the installed version still has it."""
        base = _find_folder(architecture.partition(":")[0].partition("+")[0])
        lines = (find_line(*code.replace("{type}", base).split(": ", 1)) for code in self.code)
        return tuple(line for line in lines if line)


@functools.cache
def _find_folder(type_name: str) -> str:
    """Return the folder of transformers' models with the code of a type; a part of a model is in that of the whole."""
    own = type_name.replace("-", "_")
    if (Path(transformers.__file__).parent / "models" / own / f"modeling_{own}.py").exists():
        return own
    whole = modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.get(type_name)
    return str(getattr(transformers, whole).__module__.split(".")[2]) if whole else own


@functools.cache
def find_line(file: str, text: str) -> str:
    """Return where a text stands in a file of transformers, as ``file.py:line``; empty if it is not there."""
    path = Path(transformers.__file__).parent / file
    if not path.exists():
        return ""
    renamed = text.replace("past_key_values", "cache")  # as transformers calls it since 5.24
    lines = enumerate(path.read_text(encoding="utf8").splitlines(), 1)
    number = next((number for number, line in lines if text in line or renamed in line), None)
    return f"{path.name if file.startswith('models/') else file}:{number}" if number else ""


@functools.cache
def read_entries() -> tuple[KnownFault, ...]:
    """Return all entries, in the order of the file: the first that fits is taken."""
    raw = tomllib.loads(resources.files(__package__).joinpath("known_faults.toml").read_text("utf8"))
    entries = []
    for name, value in raw.items():
        fields: Any = {key: tuple(part) if isinstance(part, list) else part for key, part in value.items()}
        entries.append(KnownFault(name=name, **fields))
    return tuple(entries)


def find_entries(architecture: str, check: str) -> Iterator[KnownFault]:
    """Return the entries about that check on that architecture; the evidence is not looked at here."""
    return (entry for entry in read_entries() if entry.fits(architecture, check))


def find_fault(subject: Subject, outcome: Outcome, architecture: str) -> tuple[KnownFault, str] | None:
    """Return the first entry that fits and, where it asks for evidence, is borne out by the model, with its lines.

    None without a name of an architecture. An entry that needs evidence is about faults of the library alone, so that
    nothing but a FAIL is held against it.
    """
    for entry in find_entries(architecture, outcome.check) if architecture else ():
        shown: str | None = ""
        if entry.evidence:
            shown = None
            with contextlib.suppress(Exception):  # a model may raise anything
                shown = EVIDENCE[entry.evidence](subject, outcome.check) if outcome.verdict == "FAIL" else None
        if shown is not None:
            return entry, ", ".join(filter(None, (shown, *entry.find_lines(architecture))))
    return None
