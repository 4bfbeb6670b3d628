"""A program that runs a model without torch, as an adapter: how it is found by a name, and what it can be held to."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import TOLERANCE, difference
from clockhands.checking.models.facts import Facts
from clockhands.checking.models.subject import Subject
from clockhands.errors import MissingPackageError, UsageError

LENGTH = 48
MARGIN = 4.0  # a difference counts from so many times what the arithmetic does by itself
MOST = 0.5  # and from here on whatever the arithmetic does: what is noisier is held to this
_ADAPTERS = {".onnx": ("onnx", "OnnxProgram"), ".gguf": ("llama_cpp", "LlamaCpp"), "": ("server", "CompletionsServer")}


class Program:
    """What the adapters of programs share; each has ``logits`` besides (``clockhands.checking.models.adapter``).

    ``engine`` is the program with its version, ``tolerance`` the difference from which on a law is broken, ``noise``
    what the program's own arithmetic does, both in standard deviations of the logits. ``scored``: it gives no logits,
    but the log-probability of each token given those before it, [B, S, 1], with 0 for the first.
    """

    name: str
    engine: tuple[str, str]
    vocabulary: int
    max_length: int | None
    takes: frozenset[str]
    causal = True
    scored = False
    noise = 0.0
    tolerance = TOLERANCE
    reference: Subject | None = None
    logits: Callable[..., Tensor]


def is_program(name: str | None) -> bool:
    """Return whether a name is that of a model in a program; nothing is opened."""
    if name is None:
        return False
    path, address = Path(name), name.startswith(("http://", "https://"))
    exported = not address and (path / "model.onnx").is_file() and not any(path.glob("*.safetensors"))
    return address or path.suffix in (".onnx", ".gguf") or exported


def open_program(name: str, model: str | None = None, reference: Subject | None = None) -> Subject:
    """Open ``model.onnx``, ``model.gguf`` or a server as a subject; ``model`` is the name of one at a server.

    With a ``reference`` it is known how position enters. Raises UsageError where there is no such file or model, or the
    vocabularies differ; CheckpointError where it cannot be opened.
    """
    served = name.startswith(("http://", "https://"))
    path = Path(name) if Path(name).suffix in (".onnx", ".gguf") else Path(name) / "model.onnx"
    if not served and not path.is_file():
        raise UsageError(f"{name} is no file: name a model.gguf, or a model.onnx or its folder")
    module, adapter = _ADAPTERS["" if served else path.suffix]
    kind = getattr(importlib.import_module(f"clockhands.checking.runtimes.{module}"), adapter)
    program: Any = kind(name, model) if served else kind(str(path))
    # A server refuses tokens that its tokenizer does not have; the weights may have rows for more.
    if reference is not None and program.vocabulary > reference.adapter.vocabulary:
        raise UsageError(
            f"{name} has {program.vocabulary} tokens, {reference.name} {reference.adapter.vocabulary}: "
            "only models of the same vocabulary can be compared"
        )
    program.reference = reference
    facts = Facts(scheme="positions unknown") if reference is None else reference.facts
    limits = [limit for limit in (program.max_length, facts.limit) if limit]
    subject = Subject(program.name, program, lambda *_: program, replace(facts, limit=min(limits, default=None)))
    if reference is None and subject.takes("positions"):
        ids = subject.tokens(1, 8)
        with contextlib.suppress(Exception):  # the checks tell what a program raises
            moved = subject.logits(ids, positions=subject.arange(1, 8, 1))  # a short text, one position later
            subject.facts = replace(subject.facts, absolute=difference(moved, subject.logits(ids)) > MOST)
    return subject


def measure_noise(subject: Subject) -> None:
    """Find how far the program's own arithmetic moves logits, and set its ``noise`` and ``tolerance``.

    By repetition, another batch size, and what is beside: quantised products share a scale among all that is read in
    one call. So the same tokens are read with other tokens after them, and with other texts beside them; the smaller
    of both counts, so that a fault in one of them is not taken for arithmetic. Raises NotANumber.
    """
    length = min(LENGTH, subject.facts.limit or LENGTH)
    text, *mates = subject.tokens(5, length, salt=91).split(1)
    half, wanted = length // 2, subject.logits(text)
    noise = difference(subject.logits(text), wanted)
    joined = [torch.cat([text[:, :half], mate[:, half:]], 1) for mate in mates]
    changes = [max(difference(subject.logits(ids)[:, :half], wanted[:, :half]) for ids in joined)]
    with contextlib.suppress(NotImplementedError):
        noise = max(noise, difference(subject.logits(torch.cat([text, text]))[:1], wanted))
        changes.append(max(difference(subject.logits(torch.cat([text, mate]))[:1], wanted) for mate in mates))
    program: Any = subject.adapter
    program.noise = max(noise, min(changes))
    program.tolerance = max(TOLERANCE, min(MARGIN * program.noise, MOST))


def describe_scores(scores: Tensor) -> str:
    """Say why log-probabilities of tokens drawn at random cannot be a model's, or hide what laws are about; else ""."""
    if certain := int((scores == 0).sum()):
        return f"{certain} of {scores.numel()} scores are exactly 0, as if tokens drawn at random were certain"
    digits = [count for count in (0, 1, 2, 3) if torch.equal(scores.round(decimals=count), scores)]
    if digits:
        return f"scores are rounded to {digits[0]} digits after the point, which hides what the laws are about"
    values = len(scores.unique())
    if values <= 0.75 * scores.numel():
        return f"{scores.numel()} scores of a text have {values} values: they are rounded, cut off or made up"
    return ""


def score_tokens(subject: Subject, ids: Tensor, *arguments: Any) -> Tensor:
    """Return the log-probability [B, S - 1] of every token but the first, given those before it."""
    logits = subject.logits(ids, *arguments)
    if getattr(subject.adapter, "scored", False):
        return logits[:, 1:, 0].double()
    logs = logits[:, :-1].double().log_softmax(-1)
    return logs.gather(-1, ids[:, 1:].unsqueeze(-1).to(logs.device)).squeeze(-1).cpu()


def import_engine(package: str, install: str, purpose: str) -> Any:
    """Import the package of an engine. Raises MissingPackageError where it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingPackageError(purpose, install, "engines") from None


def count_real(mask: Tensor) -> list[int]:
    """Return how many tokens of each row are real, where pads may stand at the end alone.

    Raises NotImplementedError for any other mask.
    """
    if mask.dim() != 2:
        raise NotImplementedError("the program takes no four-dimensional mask")
    counts = mask.long().sum(1)
    if not torch.equal(mask.bool(), torch.arange(mask.shape[1])[None] < counts[:, None]):
        raise NotImplementedError("the program takes texts of unequal length, and no pads before or inside them")
    return counts.tolist()
