"""From a name to a model of transformers: a checkpoint at its real size, or its configuration, shrunk."""

from __future__ import annotations

import re
from typing import Any

import transformers

import clockhands.auto  # noqa: F401  (so that a run of this project opens like any other checkpoint)
from clockhands.checking.models.builds import Build, Task, find
from clockhands.checking.models.shrinking import shrink
from clockhands.devices import open_device, read_dtype
from clockhands.errors import UsageError
from clockhands.pretrained import count_numbers, explain_faults, load_configuration, read_configuration
from clockhands.runs.foreign import load_foreign_model, measure_weight_files
from clockhands.runs.streaming import decide_streaming, open_streamed

_AUTO = {
    "causal": transformers.AutoModelForCausalLM,
    "masked": transformers.AutoModelForMaskedLM,
    "seq2seq": transformers.AutoModelForSeq2SeqLM,
}
_HEADS = re.compile("LM|ConditionalGeneration|(?<!Electra)(?<!Funnel)ForPreTraining")
"""Names of classes with an output layer over tokens; two that are pretrained tell replaced tokens instead."""


def open_model(
    name: str, dtype: str, device: str, trust_remote_code: bool, weights: str | None = None
) -> tuple[Any, Task]:
    """A checkpoint at its real size, without a head if it was saved so, and what it is.

    ``weights``: "memory" (loaded once and straight to the device) or "streamed" from their files, layer by layer;
    streamed by default where they do not fit, which is told. Weights are read from safetensors only. Raises UsageError
    for a dtype, a device or a way that there is not, CheckpointError with what was wrong with the files.
    """
    where, precision = open_device(device, "device"), read_dtype(dtype)
    config = load_configuration(name, trust_remote_code=trust_remote_code)
    task, declared = _task_of(config), " ".join(config.architectures or ())
    measure_weight_files(name, read_configuration(name))
    headless = bool(declared) and task != "seq2seq" and not _HEADS.search(declared)
    auto = transformers.AutoModel if headless else _AUTO[task]
    options: dict[str, Any] = {"dtype": precision, "trust_remote_code": trust_remote_code}
    numbers = count_numbers(auto, config, trust_remote_code=trust_remote_code)
    streamed = decide_streaming(name, weights, None if numbers is None else numbers * precision.itemsize, where)
    if streamed:
        with explain_faults(name, "with its weights streamed (hold them in memory, or check it with --tiny) the model"):
            return open_streamed(auto, name, where, **options), task
    if where.type != "cpu":
        options["device_map"] = {"": device}
    return load_foreign_model(auto, name, "the model", **options).eval(), task


def shrink_published(name: str, trust_remote_code: bool) -> tuple[Build, Any]:
    """The shrunk configuration of a folder or hub name."""
    config = load_configuration(name, trust_remote_code=trust_remote_code)
    build = Build(config.model_type, _task_of(config))
    return build, shrink(config, build)


def _task_of(config: Any) -> Task:
    """Which head a configuration is for, by its declared architecture, else by what transformers has for its type."""
    declared = " ".join(config.architectures or ())
    if getattr(config, "is_encoder_decoder", False):
        return "seq2seq"
    if "MaskedLM" in declared:
        return "masked"
    if "CausalLM" in declared or "LMHead" in declared:
        return "causal"
    tasks = {build.task for build in _builds(config.model_type)}
    two_ways = "masked" in tasks and not getattr(config, "is_decoder", False)
    return "masked" if two_ways else "causal"


def _builds(model_type: str) -> list[Build]:
    try:
        return find(model_type)
    except UsageError:
        return []
