"""From a name to a model of transformers: a checkpoint at its real size, or its configuration, shrunk."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import torch
import transformers

from clockhands.checking.builds import Build, Kind, find, shrink
from clockhands.checking.streaming import bytes_of_weights, fits, open_streamed
from clockhands.devices import open_device
from clockhands.errors import CheckpointError, UsageError
from clockhands.machine import free_memory
from clockhands.quiet import quiet, without_bars

_AUTO = {
    "causal": transformers.AutoModelForCausalLM,
    "masked": transformers.AutoModelForMaskedLM,
    "seq2seq": transformers.AutoModelForSeq2SeqLM,
}
_HEADS = re.compile("LM|ConditionalGeneration|PreTraining")


def open_model(
    name: str, dtype: str, device: str, trust_remote_code: bool, weights: str | None = None
) -> tuple[Any, Kind]:
    """A checkpoint at its real size, without a head if it was saved so, and what it is.

    ``weights``: "memory" (loaded once and straight to the device) or "streamed" from their files, layer by layer;
    streamed by default where they do not fit, which is told. Weights are read from safetensors only. Raises UsageError
    for a dtype, a device or a way that there is not, CheckpointError with what was wrong with the files.
    """
    config = _config(name, trust_remote_code)
    kind, declared = _kind(config), " ".join(config.architectures or ())
    _refuse_pickle(Path(name))
    headless = bool(declared) and kind != "seq2seq" and not _HEADS.search(declared)
    auto = transformers.AutoModel if headless else _AUTO[kind]
    place, precision = open_device(device, "device"), _dtype(dtype)
    options: dict[str, Any] = {"dtype": precision, "trust_remote_code": trust_remote_code}
    streamed = _streams(name, weights, bytes_of_weights(auto, config, precision, trust_remote_code), place)
    try:
        if place.type != "cpu" and not streamed:
            options["device_map"] = {"": device}
        with without_bars():
            if streamed:
                return open_streamed(auto, name, place, **options), kind
            return auto.from_pretrained(name, use_safetensors=True, **options).eval(), kind
    except (OSError, ValueError, RuntimeError, KeyError) as fault:
        way = " with its weights streamed (hold them in memory, or check it with --tiny)" if streamed else ""
        raise CheckpointError(f"cannot open the model {name}{way}: {' '.join(str(fault).split())[:300]}") from fault


def _streams(name: str, weights: str | None, size: int | None, device: torch.device) -> bool:
    """Whether to stream: as asked, else where the weights do not fit. Raises UsageError for an unknown way."""
    if weights not in (None, "memory", "streamed"):
        raise UsageError(f"unknown weights {weights!r}: they are held in 'memory' or 'streamed'")
    if weights is not None:
        return weights == "streamed"
    if size is None or fits(size, device):
        return False
    free = free_memory(device) / 1e9
    text = "the weights of %s take %.1f GB, %.1f GB are free: they are streamed from their files, layer by layer"
    logging.getLogger(__name__).warning(text, name, size / 1e9, free)
    return True


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


def shrunk(name: str, trust_remote_code: bool) -> tuple[Build, Any]:
    """The shrunk configuration of a folder or hub name."""
    config = _config(name, trust_remote_code)
    build = Build(config.model_type, _kind(config))
    return build, shrink(config, build)


def _config(name: str, trust_remote_code: bool) -> Any:
    try:
        with quiet("huggingface_hub"):
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
