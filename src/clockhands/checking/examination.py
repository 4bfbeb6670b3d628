"""From a name or a model to results: open, run, explain."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from clockhands.checking.checks.check import NotANumber, describe_damage, select
from clockhands.checking.models import make_subjects
from clockhands.checking.models.adapter import describe_raised
from clockhands.checking.models.subject import Subject
from clockhands.checking.models.tiny import Build, find, shrink_published
from clockhands.checking.result import Result, versions
from clockhands.checking.runtimes.naming import name_refusal
from clockhands.checking.runtimes.program import (
    LENGTH,
    Program,
    describe_scores,
    is_program,
    measure_noise,
    open_program,
)
from clockhands.checking.verdict.judge import run_checks
from clockhands.errors import CheckpointError, UsageError
from clockhands.findings import Findings
from clockhands.models import open_with_head
from clockhands.progress import CountProgress, ignore_count

_SMALL = 20_000_000
_PLAIN = 16
DRAWN = "are about weights that are loaded; these are initialised at random, in float32 on the CPU"


def check(
    model: Any,
    *,
    tiny: bool = False,
    only: str | Sequence[str] | None = None,
    slow: bool = False,
    dtype: str | None = None,
    device: str | None = None,
    weights: str | None = None,
    trust_remote_code: bool = False,
    **optional: Any,
) -> Findings:
    """Check how a model handles position, and say which uses are safe.

    ``model``: a folder or hub name, an architecture's transformers name with ``tiny`` (``bert:masked`` where it has
    several heads), a transformers model, a torch module, or an adapter with ``logits(ids, mask=None, positions=None,
    cache=None)``. ``tiny`` builds a small model of the configuration, with random weights in which position is
    audible.
    ``only`` names checks or groups (``packing``); ``slow`` adds compiled ones. ``dtype`` (float32), ``device`` (cpu),
    ``weights`` ("memory", or "streamed" from their files, layer by layer, as is done by default where they do not fit
    into memory) and ``trust_remote_code``, which runs the code that it brings, are about a checkpoint.
    ``optional`` are attributes for a plain module or function (``vocabulary``, ``causal``, ``max_length``,
    ``new_cache`` ...); with ``source``, a text for its encoder as token ids [S], a module
    ``forward(source, target)`` is checked from both sides. Raises CheckpointError, and UsageError also for an argument
    that would be ignored.
    """
    if isinstance(model, (str, Path)):
        refuse("a model by its name", "describe a module in hand", **optional)
        if tiny and not has_config(str(model)):
            only_build(str(model))
        results = examine(str(model), tiny, only, slow, dtype, device, weights, trust_remote_code)
    else:
        arguments = {"tiny": tiny, "dtype": dtype, "device": device, "weights": weights}
        arguments["trust_remote_code"] = trust_remote_code
        refuse("a model in hand", "are about opening one by its name", **arguments)
        subjects = make_subjects.from_model(model, **optional)
        kind = getattr(getattr(model, "config", None), "model_type", "")
        results = [_result(subjects, str(kind or type(model).__name__), select(only, slow))]
    return results[0].findings()


def examine(
    name: str,
    tiny: bool = False,
    only: Sequence[str] | None = None,
    slow: bool = False,
    dtype: str | None = None,
    device: str | None = None,
    weights: str | None = None,
    trust_remote_code: bool = False,
    progress: CountProgress = ignore_count,
    served: str | None = None,
    against: str | None = None,
) -> list[Result]:
    """Check what the name names: one result for a checkpoint or a program, one for every head of an architecture.

    ``served`` is the name of one of several models at a server; ``against`` the model of transformers that a program
    runs, by which causes are named.
    Raises UsageError and CheckpointError as ``check`` does.
    """
    checks = select(only, slow)
    if is_program(name):
        subject = open_program(name, served, None if against is None else open_reference(against))
        command = f"check {name}" + (f" --against {against}" if against else "")
        return [check_subject(subject, checks, progress, command)]
    if not tiny:
        model, task = open_with_head(name, dtype or "float32", device or "cpu", trust_remote_code, weights)
        try:
            subjects = make_subjects.from_model(model, name, name, task)
        except Exception as fault:  # a model may raise anything
            text = f"{name} was loaded, but cannot read a text of eight tokens: {describe_raised(fault)}"
            raise CheckpointError(text) from fault
        return [_result(subjects, model.config.model_type, checks, progress, f"check {name}")]
    refuse("tiny", DRAWN, dtype=dtype, device=device, weights=weights)
    if has_config(name):
        build, config = shrink_published(name, trust_remote_code)
        try:
            subjects = make_subjects.from_build(build, config)
        except Exception as fault:  # a library's model may raise anything while it is built
            text = f"no small model can be built of the configuration of {name}: {describe_raised(fault)}"
            raise CheckpointError(text) from fault
        return [_result(subjects, build.name, checks, progress, f"check {name} --tiny")]
    refuse("an architecture", "are about a folder or hub name", trust_remote_code=trust_remote_code)
    results = []
    for build in find(name):
        command = f"clockhands check --type {build.name} --tiny"
        try:
            subjects = make_subjects.from_build(build)
        except Exception as fault:  # as above; a model that cannot be built is a result too
            why = f"cannot be built: {describe_raised(fault)}"
            results.append(Result(build.name, build.task, "", (), versions(), 0.0, why, command))
            continue
        results.append(_result(subjects, build.name, checks, progress, command))
    return results


def check_subject(
    subject: Subject, checks: Iterable[Any] | None = None, progress: CountProgress = ignore_count, command: str = ""
) -> Result:
    """Check one opened subject, by default with all checks that are not opt-in."""
    return _result([subject], subject.name, select() if checks is None else checks, progress, command)


def open_reference(name: str) -> Subject:
    """Open the model of transformers that a program runs. Raises UsageError for what is no causal model."""
    if not has_config(name):
        raise UsageError(f"--against {name}: name the folder or hub name of the model that was exported")
    opened, task = open_with_head(name, "float32", "cpu", False)
    if task != "causal":
        raise UsageError(f"--against {name}: that is a {task} model; only causal models give every token a score")
    return make_subjects.from_model(opened, name, name, task)[0]


def refuse(what: str, why: str, **arguments: Any) -> None:
    """Raise UsageError for arguments that were given although ``what`` has no use for them."""
    names = [name for name, value in arguments.items() if value is not None and value is not False]
    if names:
        raise UsageError(f"{what} does not go with {', '.join(names)}: such arguments {why}")


def only_build(name: str) -> Build:
    """Return the one build of an architecture's name. Raises UsageError, naming them, if there are several."""
    builds = find(name)
    if len(builds) > 1:
        raise UsageError(f"{name} is built with several heads; name one: {', '.join(b.name for b in builds)}")
    return builds[0]


def has_config(name: str) -> bool:
    """Return whether a name is that of a folder or of the hub, not of an architecture."""
    return Path(name).exists() or "/" in name


def _result(
    subjects: Sequence[Subject],
    architecture: str,
    checks: Iterable[Any],
    progress: CountProgress = ignore_count,
    command: str = "",
) -> Result:
    started, outcomes = time.perf_counter(), []
    checks = list(checks)
    with _threads(subjects[0]):
        fault = next((text for text in map(find_damage, subjects) if text), "")
        for subject in subjects if not fault else ():
            outcomes += run_checks(subject, checks, architecture, progress)
    seconds = round(time.perf_counter() - started, 2)
    task = getattr(subjects[0].adapter, "task", "causal" if subjects[0].causal else "masked")
    command = command if command.startswith("clockhands") or not command else f"clockhands {command}"
    made_by = versions()
    if isinstance(subjects[0].adapter, Program):
        made_by = {**dict([subjects[0].adapter.engine]), **made_by}
    scheme = subjects[0].facts.scheme
    return Result(subjects[0].name, task, scheme, tuple(outcomes), made_by, seconds, fault, command)


def find_damage(subject: Subject) -> str:
    """Return why nothing can be judged by the logits of a plain text: they are not finite, or all the same; else "".

    Of a program the noise of its arithmetic is found too, up to which no law is broken.
    """
    program = isinstance(subject.adapter, Program)
    limit = subject.facts.limit or LENGTH
    ids = subject.tokens(1, min(LENGTH if program else _PLAIN, max(limit - subject.facts.first, 2)))
    twin = subject.copy_untouched()
    try:
        logits = twin.logits(ids)
        if program:
            measure_noise(subject)
    except NotANumber as fault:
        return f"no law can be judged: {fault}"
    except Exception as fault:  # a model may raise anything; of torch the checks tell it one by one
        said = (name_refusal(subject) or describe_raised(fault)) if program else ""
        return f"a text of {ids.shape[1]} tokens is not read: {said}" if program else ""
    if damage := describe_damage(logits):
        return f"no law can be judged: {damage}"
    scores = logits[:, 1:] if program else logits
    if subject.redraw is None and bool((scores == scores.flatten()[0]).all()):
        return f"no law can be judged: every score of a text is the same, {float(scores.flatten()[0]):.4g}"
    wrong = describe_scores(scores.flatten()) if getattr(subject.adapter, "scored", False) else ""
    return wrong and f"no law can be judged: {wrong}"


@contextlib.contextmanager
def _threads(subject: Subject) -> Iterator[None]:
    """One thread for a small model: on small tensors several only wait for each other."""
    module, before = subject.module, torch.get_num_threads()
    if module is not None and sum(p.numel() for p in module.parameters()) < _SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
