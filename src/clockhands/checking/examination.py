"""From a name or a model to results: open, run, explain."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from clockhands.checking import subjects
from clockhands.checking.builds import Build, Kind, find, shrink
from clockhands.checking.causes import explain
from clockhands.checking.result import Result, versions
from clockhands.checking.runner import Outcome, run, select
from clockhands.checking.subject import Subject
from clockhands.errors import CheckpointError, UsageError
from clockhands.findings import Findings

_SMALL = 20_000_000
Tell = Callable[[Outcome], None]


def check(
    model: Any,
    *,
    tiny: bool = False,
    only: Sequence[str] | None = None,
    slow: bool = False,
    dtype: str = "float32",
    device: str = "cpu",
    trust_remote_code: bool = False,
    **optional: Any,
) -> Findings:
    """Check how a model handles position, and say which uses are safe.

    ``model``: a folder or hub name, an architecture's transformers name with ``tiny``, a transformers model, a torch
    module, or an adapter with ``logits(ids, mask=None, positions=None, cache=None)``. ``tiny`` takes the
    configuration alone, shrinks it and draws weights in which position is audible. ``only`` names checks or groups
    (``packing``); ``slow`` adds compiled ones. ``optional`` are attributes for a plain module (``vocabulary``,
    ``causal``, ``max_length``, ``new_cache`` ...). Raises UsageError and CheckpointError.
    """
    if isinstance(model, (str, Path)):
        results = examine(str(model), tiny, only, slow, dtype, device, trust_remote_code)
    else:
        found = subjects.from_model(model, **optional)
        results = [_result(found, _architecture(model), select(only, slow))]
    return results[0].findings()


def examine(
    name: str,
    tiny: bool = False,
    only: Sequence[str] | None = None,
    slow: bool = False,
    dtype: str = "float32",
    device: str = "cpu",
    trust_remote_code: bool = False,
    tell: Tell | None = None,
) -> list[Result]:
    """Check what the name names: one result for a checkpoint, one for every head of an architecture."""
    checks = select(only, slow)
    if not tiny:
        model, kind = open_model(name, dtype, device, trust_remote_code)
        found = subjects.from_model(model, name, name, kind)
        return [_result(found, model.config.model_type, checks, tell, f"check {name}")]
    if Path(name).exists() or "/" in name:
        build, config = shrunk(name, trust_remote_code)
        found = subjects.from_build(build, config)
        return [_result(found, build.name, checks, tell, f"check {name} --tiny")]
    return [examine_build(build, checks, tell) for build in find(name)]


def examine_build(build: Build, checks: Iterable[Any], tell: Tell | None = None) -> Result:
    """One architecture, shrunk. A model that cannot be built is a result too."""
    command = f"clockhands check --type {build.name} --tiny"
    try:
        found = subjects.from_build(build)
    except Exception as fault:  # a library's model may raise anything while it is built
        text = f"cannot be built: {type(fault).__name__}: {' '.join(str(fault).split())[:300]}"
        return Result(build.name, build.kind, "", (), versions(), 0.0, text, command)
    return _result(found, build.name, checks, tell, command)


def _result(
    found: Sequence[Subject], architecture: str, checks: Iterable[Any], tell: Tell | None = None, command: str = ""
) -> Result:
    started, outcomes = time.perf_counter(), []
    checks = list(checks)
    with _threads(found[0]):
        for subject in found:
            outcomes += explain(subject, run(subject, checks, tell), architecture)
    seconds = round(time.perf_counter() - started, 2)
    kind = getattr(found[0].adapter, "kind", "causal" if found[0].causal else "masked")
    command = command if command.startswith("clockhands") or not command else f"clockhands {command}"
    return Result(found[0].name, kind, found[0].facts.scheme, tuple(outcomes), versions(), seconds, command=command)


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


def _architecture(model: Any) -> str:
    return str(getattr(getattr(model, "config", None), "model_type", "") or type(model).__name__)


_AUTO = {
    "causal": transformers.AutoModelForCausalLM,
    "masked": transformers.AutoModelForMaskedLM,
    "seq2seq": transformers.AutoModelForSeq2SeqLM,
}
_HEADS = re.compile("LM|ConditionalGeneration|PreTraining")


def open_model(name: str, dtype: str, device: str, trust_remote_code: bool) -> tuple[Any, Kind]:
    """A checkpoint at its real size, loaded once and straight to its device; without a head if it was saved so.

    Raises UsageError for a dtype or device that there is not, CheckpointError with what was wrong with the files.
    """
    config = _config(name, trust_remote_code)
    kind, declared = _kind(config), " ".join(config.architectures or ())
    headless = bool(declared) and kind != "seq2seq" and not _HEADS.search(declared)
    auto = transformers.AutoModel if headless else _AUTO[kind]
    options = {"dtype": _dtype(dtype), "trust_remote_code": trust_remote_code}
    if _device(device).type != "cpu":
        options["device_map"] = {"": device}
    try:
        return auto.from_pretrained(name, **options).eval(), kind
    except (OSError, ValueError, RuntimeError, KeyError) as fault:
        raise CheckpointError(f"cannot open the model {name}: {' '.join(str(fault).split())[:300]}") from fault


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UsageError(f"unknown dtype {name!r}: use float32, float64, bfloat16 or float16")
    return found


def _device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as fault:
        raise UsageError(f"cannot use the device {name!r}: {str(fault).splitlines()[0]}") from fault


def shrunk(name: str, trust_remote_code: bool) -> tuple[Build, Any]:
    """The shrunk configuration of a folder or hub name."""
    config = _config(name, trust_remote_code)
    build = Build(config.model_type, _kind(config))
    return build, shrink(config, build)


def _config(name: str, trust_remote_code: bool) -> Any:
    try:
        return transformers.AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError) as fault:
        text = " ".join(str(fault).split())[:300]
        advice = " (its code runs only with --trust-remote-code)" if "trust_remote_code" in text else ""
        folder = "" if Path(name).exists() else " (no such folder here, so taken for a hub name)"
        raise CheckpointError(f"cannot read the configuration of {name}{folder}{advice}: {text}") from fault


def _kind(config: Any) -> Kind:
    """Which head a configuration is for, by its declared architecture, else by what transformers has for its type."""
    declared = " ".join(config.architectures or ())
    if getattr(config, "is_encoder_decoder", False):
        return "seq2seq"
    if "MaskedLM" in declared:
        return "masked"
    if "CausalLM" in declared or "LMHead" in declared:
        return "causal"
    kinds = {build.kind for build in _builds(config.model_type)}
    two_ways = "masked" in kinds and not getattr(config, "is_decoder", False)
    return "masked" if two_ways else "causal"


def _builds(model_type: str) -> list[Build]:
    try:
        return find(model_type)
    except UsageError:
        return []
