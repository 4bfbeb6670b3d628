"""Run a model that is larger than the memory: its weights stay in their files and are read layer by layer."""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clockhands.errors import CheckpointError, UsageError
from clockhands.machine import measure_free_memory
from clockhands.pretrained import load_model, refuse_not_finite, refuse_untied
from clockhands.progress import quiet

_WARNING_LOGGER = "accelerate.big_modeling"
"""The logger that warns of weights without storage, which are wanted here."""
_WEIGHT_SHARE = 0.8
"""The share of the free memory that weights may take; the rest is for what is computed from them."""


class _Guard(TorchDispatchMode):
    """Raises where a weight without storage is used: PyTorch itself would sometimes return arbitrary numbers."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket not in (torch.ops.aten.detach, torch.ops.aten.alias):
            for leaf in tree_leaves((args, kwargs)):
                if isinstance(leaf, Tensor) and leaf.is_meta:
                    raise RuntimeError(
                        "a module uses a weight of another module, or asks for its device, while it is not in memory"
                    )
        return func(*args, **(kwargs or {}))


def open_streamed(opener: Any, name: str, device: torch.device, **options: Any) -> Any:
    """Load a model as ``pretrained.load_model(opener, name, **options)`` does, but leave its weights in their files.

    Its parameters have no storage: they are read when the layer that owns them is called, and dropped when it returns.
    If the model (or a copy of it, which takes no memory) is cast to another number type, they are converted when they
    are read. Weights that transformers stores in another form than it uses, such as experts one by one, are written
    once to a temporary folder, which exists as long as the model.

    Every weight is read once, and the model runs on a few tokens. Raises CheckpointError for a weight that is NaN or
    infinite, RuntimeError for a layer that uses weights outside of it.
    """
    folder = tempfile.mkdtemp(prefix="clockhands-")
    try:
        options |= {"device_map": {"": "disk"}, "offload_folder": folder}
        with quiet(_WARNING_LOGGER):
            model = load_model(opener, name, **options).eval()
            stored = _find_offloaded(model)
            _find_dropped_copies(model, stored.index)
            refuse_untied(model, stored, name)
            refuse_not_finite(_read_stored(model, stored, name), name)
            _read_by_layer(model, device)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(model, shutil.rmtree, folder, ignore_errors=True)
    return model


def _find_dropped_copies(model: Any, index: dict[str, Any]) -> None:
    """Read a tied weight from where the other stands, where an index names it in a file that does not hold it."""
    for pair in model.get_expanded_tied_weights_keys(all_submodels=True).items():
        for name, other in (pair, pair[::-1]):
            entry = index.get(name)
            if entry is None or "safetensors_file" not in entry or other not in index:
                continue
            with safe_open(entry["safetensors_file"], framework="pt") as file:
                if entry.get("weight_name", name) not in file.keys():  # noqa: SIM118
                    index[name] = index[other]


def _read_stored(model: nn.Module, stored: Any, source: str) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight with its name, one in memory at a time; raise CheckpointError for one of another shape."""
    needed = {name: weight.shape for name, weight in model.named_parameters(remove_duplicate=False)}
    for name in stored:
        weight = stored[name]
        if weight.shape != needed.get(name, weight.shape):
            raise CheckpointError(
                f"the weights in {source} are not those of the model that its config.json describes: {name} has shape "
                f"{list(weight.shape)}, not {list(needed[name])}; put back the files that were saved together"
            )
        yield name, weight


def _read_by_layer(model: Any, device: torch.device) -> None:
    """Make the model read its weights one layer at a time, onto ``device``; transformers reads matrix by matrix.

    Some modules use the weights of a module inside them without calling it, so what stands outside the layers is read
    as a whole too. The model then runs on a few tokens, in which no weight may be missing.
    """
    from accelerate import dispatch_model
    from accelerate.hooks import remove_hook_from_module

    layers = set(model._no_split_modules or ())
    whole = set(layers)  # the classes that are read at once: layers, and modules that hold no list of modules
    for module in model.modules():
        if not any(isinstance(part, nn.ModuleList) or type(part).__name__ in layers for part in module.modules()):
            whole.add(type(module).__name__)
    index = _find_offloaded(model).index
    remove_hook_from_module(model, recurse=True)
    for part in model.modules():  # of two names of one weight, accelerate would read the first alone
        for name, weight in part.named_parameters(recurse=False):
            part.register_parameter(name, nn.Parameter(weight.detach(), requires_grad=weight.requires_grad))
    dispatch_model(
        model,
        {"": "disk"},
        main_device=str(device),
        offload_index=index,
        preload_module_classes=sorted(whole),
        skip_keys=model._skip_keys_device_placement,
    )
    for name in ("to", "cuda"):  # accelerate's, which refuse a cast too
        vars(model).pop(name, None)
    ids = torch.arange(8, device=device)[None]
    inputs = {"input_ids": ids, "decoder_input_ids": ids} if model.config.is_encoder_decoder else {"input_ids": ids}
    with torch.no_grad(), _Guard():
        model(**inputs)


def is_streamed(module: nn.Module) -> bool:
    """Return whether weights of the module are read from their files only while it runs."""
    return any(getattr(getattr(part, "_hf_hook", None), "offload", False) for part in module.modules())


def find_device(module: nn.Module) -> torch.device:
    """Return the device on which the module computes: where its weights are, or are read to."""
    hook = getattr(module, "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    if device is None:
        device = next((tensor.device for tensor in chain(module.parameters(), module.buffers())), "cpu")
    return torch.device(device)


def decide_streaming(name: str, weights: str | None, size: int | None, device: torch.device) -> bool:
    """Return whether to stream the weights: as ``weights`` says, else if ``size`` bytes do not fit, with a log message.

    ``size`` is None if it is not known; then they are not streamed. Raises UsageError for an unknown ``weights``.
    """
    if weights not in (None, "memory", "streamed"):
        raise UsageError(f"unknown weights {weights!r}: they are held in 'memory' or 'streamed'")
    if weights is not None:
        return weights == "streamed"
    free = measure_free_memory(device)
    if size is None or size <= _WEIGHT_SHARE * free:
        return False
    text = "the weights of %s take %.1f GB, %.1f GB are free: they are streamed from their files, layer by layer"
    logging.getLogger(__name__).warning(text, name, size / 1e9, free / 1e9)
    return True


def _find_offloaded(model: nn.Module) -> Any:
    """Return accelerate's reader of the weights: their names, files and values."""
    maps = (getattr(getattr(part, "_hf_hook", None), "weights_map", None) for part in model.modules())
    return next(weights.dataset for weights in maps if weights is not None)
