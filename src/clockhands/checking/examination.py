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
DRAWN = "are about weights that are read; these are drawn, in float32 on the CPU"
Tell = Callable[[Outcome], None]


def check(
    model: Any,
    *,
    tiny: bool = False,
    only: Sequence[str] | None = None,
    slow: bool = False,
    dtype: str | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    **optional: Any,
) -> Findings:
    """Check how a model handles position, and say which uses are safe.

    ``model``: a folder or hub name, an architecture's transformers name with ``tiny`` (``bert:masked`` where it has
    several heads), a transformers model, a torch module, or an adapter with ``logits(ids, mask=None, positions=None,
    cache=None)``. ``tiny`` takes the configuration alone, shrinks it and draws weights in which position is audible.
    ``only`` names checks or groups (``packing``); ``slow`` adds compiled ones. ``dtype`` (float32) and ``device``
    (cpu) are about a checkpoint. ``optional`` are attributes for a plain module or function (``vocabulary``,
    ``causal``, ``max_length``, ``new_cache`` ...). Raises CheckpointError, and UsageError also for an argument
    that would be ignored.
    """
    if isinstance(model, (str, Path)):
        refuse("a model by its name", "describe a module in hand", **optional)
        if tiny and not has_config(str(model)):
            only_build(str(model))
        results = examine(str(model), tiny, only, slow, dtype, device, trust_remote_code)
    else:
        given = {"tiny": tiny, "dtype": dtype, "device": device, "trust_remote_code": trust_remote_code}
        refuse("a model in hand", "are about opening one by its name", **given)
        found = subjects.from_model(model, **optional)
        results = [_result(found, _architecture(model), select(only, slow))]
    return results[0].findings()


def examine(
    name: str,
    tiny: bool = False,
    only: Sequence[str] | None = None,
    slow: bool = False,
    dtype: str | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    tell: Tell | None = None,
) -> list[Result]:
    """Check what the name names: one result for a checkpoint, one for every head of an architecture.

    Raises UsageError and CheckpointError as ``check`` does.
    """
    checks = select(only, slow)
    if not tiny:
        model, kind = open_model(name, dtype or "float32", device or "cpu", trust_remote_code)
        found = subjects.from_model(model, name, name, kind)
        return [_result(found, model.config.model_type, checks, tell, f"check {name}")]
    refuse("tiny", DRAWN, dtype=dtype, device=device)
    if has_config(name):
        build, config = shrunk(name, trust_remote_code)
        found = subjects.from_build(build, config)
        return [_result(found, build.name, checks, tell, f"check {name} --tiny")]
    refuse("an architecture", "are about a folder or hub name", trust_remote_code=trust_remote_code)
    return [examine_build(build, checks, tell) for build in find(name)]


def refuse(what: str, why: str, **given: Any) -> None:
    """Raises UsageError for arguments that were given although ``what`` has no use for them."""
    names = [name for name, value in given.items() if value is not None and value is not False]
    if names:
        raise UsageError(f"{what} does not go with {', '.join(names)}: such arguments {why}")


def only_build(name: str) -> Build:
    """The one build that an architecture's name stands for. Raises UsageError, naming them, if there are several."""
    builds = find(name)
    if len(builds) > 1:
        raise UsageError(f"{name} is built with several heads; name one: {', '.join(b.name for b in builds)}")
    return builds[0]


def has_config(name: str) -> bool:
    """Whether a name is that of a folder or of the hub, not of an architecture."""
    return Path(name).exists() or "/" in name


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

    Weights are read from safetensors only. Raises UsageError for a dtype or device that there is not,
    CheckpointError with what was wrong with the files.
    """
    config = _config(name, trust_remote_code)
    kind, declared = _kind(config), " ".join(config.architectures or ())
    _refuse_pickle(Path(name))
    headless = bool(declared) and kind != "seq2seq" and not _HEADS.search(declared)
    auto = transformers.AutoModel if headless else _AUTO[kind]
    options = {"dtype": _dtype(dtype), "trust_remote_code": trust_remote_code}
    if _device(device).type != "cpu":
        options["device_map"] = {"": device}
    try:
        return auto.from_pretrained(name, use_safetensors=True, **options).eval(), kind
    except (OSError, ValueError, RuntimeError, KeyError) as fault:
        raise CheckpointError(f"cannot open the model {name}: {' '.join(str(fault).split())[:300]}") from fault


def _refuse_pickle(folder: Path) -> None:
    """A message of our own for a folder; transformers says only that it finds no safetensors."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    if pickles and not any(name.endswith((".safetensors", ".safetensors.index.json")) for name in names):
        raise CheckpointError(
            f"{folder} holds its weights only as pickle ({pickles[0]}), which can run any code when it is read; "
            "where you trust it, load it and write it again with save_pretrained"
        )


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
