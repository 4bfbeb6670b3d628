"""Faults and limits that have been traced: one entry of ``known_faults.toml`` each."""

from __future__ import annotations

import fnmatch
import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast

import transformers
from transformers.models.auto import modeling_auto

from clockhands.checking.models.subject import Subject
from clockhands.checking.verdict.evidence import EVIDENCE
from clockhands.checking.verdict.outcome import Outcome


@dataclass(frozen=True)
class KnownFault:
    """Why these checks fail for these architectures: a fault or a limit of the library.

    ``code`` are lines of transformers, ``"file: text of the line"``; their line numbers are looked up in the
    installed version. ``evidence`` names what must show in the model before the entry is believed (``evidence.py``).
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
    versions: tuple[str, ...] = ()
    verdict: Literal["FAIL", "WARN", "LIBRARY", "PROPERTY"] | None = None

    def fits(self, architecture: str, check: str) -> bool:
        """Return whether this entry speaks of that check on that architecture (``llama``, ``bert:causal``)."""
        base = architecture.partition(":")[0]
        names = {architecture, base, base.partition("+")[0]}
        in_types = any(fnmatch.fnmatchcase(name, pattern) for pattern in self.types for name in names)
        installed = transformers.__version__
        in_versions = not self.versions or any(installed.startswith(version) for version in self.versions)
        return in_types and in_versions and any(fnmatch.fnmatchcase(check, pattern) for pattern in self.checks)

    def find_lines(self, architecture: str) -> tuple[str, ...]:
        """Return ``file.py:line`` of the code, as far as the installed version still has it."""
        base = find_folder(architecture.partition(":")[0].partition("+")[0])
        lines = (find_line(*code.replace("{type}", base).split(": ", 1)) for code in self.code)
        return tuple(line for line in lines if line)


@functools.cache
def find_folder(type_name: str) -> str:
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
    lines = path.read_text(encoding="utf8").splitlines()
    renamed = text.replace("past_key_values", "cache")  # as transformers calls it since 5.24
    number = next((number for number, line in enumerate(lines, 1) if text in line or renamed in line), None)
    name = path.name if file.startswith("models/") else file
    return f"{name}:{number}" if number else ""


@functools.cache
def read_entries() -> tuple[KnownFault, ...]:
    """Return all entries, in the order of the file: the first that fits is taken."""
    raw = tomllib.loads(resources.files(__package__).joinpath("known_faults.toml").read_text("utf8"))
    return tuple(_entry(name, value) for name, value in raw.items())


def _entry(name: str, raw: dict[str, Any]) -> KnownFault:
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    return KnownFault(name=name, **cast(Any, fields))


def find_entries(architecture: str, check: str) -> Iterator[KnownFault]:
    """Return the entries about that check on that architecture; the evidence is not looked at here."""
    return (entry for entry in read_entries() if entry.fits(architecture, check))


def find_fault(subject: Subject, outcome: Outcome, architecture: str) -> tuple[KnownFault, str] | None:
    """Return the first entry that fits and, where it asks for evidence, is borne out by the model, with its lines.

    None without a name of an architecture. An entry that needs evidence is about faults of the library alone, so that
    nothing but a FAIL is held against it.
    """
    for entry in find_entries(architecture, outcome.check) if architecture else ():
        lines = entry.find_lines(architecture)
        if not entry.evidence:
            return entry, ", ".join(lines)
        shown = EVIDENCE[entry.evidence](subject, outcome.check) if outcome.verdict == "FAIL" else None
        if shown is not None:
            return entry, ", ".join(filter(None, (shown, *lines)))
    return None
