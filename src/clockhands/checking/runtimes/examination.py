"""From the name of what another program runs to a result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from clockhands.checking.examination import has_config
from clockhands.checking.models import make_subjects
from clockhands.checking.result import Result, versions
from clockhands.checking.runtimes.bench import Bench
from clockhands.checking.runtimes.law import LAWS, Law
from clockhands.checking.runtimes.reference import Reference
from clockhands.checking.runtimes.runtime import Runtime, find_opener
from clockhands.checking.verdict.judge import judge_law
from clockhands.checking.verdict.outcome import Outcome
from clockhands.errors import UsageError, describe_unknown
from clockhands.models import open_with_head

Progress = Callable[[Outcome], None]


def examine_runtime(
    name: str,
    against: str | None = None,
    model: str | None = None,
    only: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Result:
    """Check a model in a program that is not torch: ``model.onnx``, ``model.gguf`` or a server.

    ``against`` is the folder or hub name of the model of transformers that it was made from, ``model`` the name of one
    of several at a server. Raises UsageError for a name that is none of these, or an unknown law, CheckpointError for
    what cannot be opened.
    """
    laws = select_laws(only)
    opener = find_opener(name)
    if opener is None:
        raise UsageError(f"{name} is no runtime: name a file *.onnx or *.gguf, or the address of a server")
    reference = None if against is None else open_reference(against)
    runtime = opener.open(name, model)
    # A server refuses tokens that its tokenizer does not have; the weights may have rows for more.
    if reference is not None and runtime.vocabulary > reference.subject.adapter.vocabulary:
        raise UsageError(
            f"{name} has {runtime.vocabulary} tokens, {against} {reference.subject.adapter.vocabulary}: "
            "only models of the same vocabulary can be compared"
        )
    command = f"clockhands check {name}" + (f" --against {against}" if against else "")
    return run_laws(runtime, reference, laws, progress, command)


def run_laws(
    runtime: Runtime,
    reference: Reference | None = None,
    laws: Sequence[Law] | None = None,
    progress: Progress | None = None,
    command: str = "",
) -> Result:
    """Judge laws on an opened runtime; by default all of them."""
    bench, began = Bench(runtime, reference), time.perf_counter()
    outcomes: dict[str, Outcome] = {}
    for law in select_laws() if laws is None else laws:
        started = time.perf_counter()
        outcome = judge_law(bench, law, outcomes)
        outcomes[law.name] = replace(outcome, seconds=round(time.perf_counter() - started, 3))
        if progress is not None:
            progress(outcome)
    scheme = "positions unknown" if reference is None else reference.subject.facts.scheme
    seconds = round(time.perf_counter() - began, 2)
    engine, version = runtime.engine
    return Result(
        runtime.name,
        "causal",
        scheme,
        tuple(outcomes.values()),
        {engine: version, **versions()},
        seconds,
        command=command,
    )


def open_reference(name: str) -> Reference:
    """Open the torch model that a runtime is compared with. Raises UsageError for what is no causal model."""
    if not has_config(name):
        raise UsageError(f"--against {name}: name the folder or hub name of the model that was exported")
    opened, task = open_with_head(name, "float32", "cpu", False)
    if task != "causal":
        raise UsageError(f"--against {name}: that is a {task} model; only causal models give every token a score")
    return Reference(make_subjects.from_model(opened, name, name, task)[0])


def select_laws(only: Sequence[str] | None = None) -> list[Law]:
    """Return the laws whose name is one of ``only``, or begins so; all by default. Raises UsageError."""
    for request in only or ():
        if request != "runtime" and request not in LAWS:
            raise UsageError(describe_unknown("check of runtimes", request, {"runtime", *LAWS}))
    return [law for name, law in LAWS.items() if only is None or "runtime" in only or name in only]
