"""What is saved and loaded, or enters in place of token ids, gives what the model itself gives."""

from __future__ import annotations

import copy
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, put_in, refusals
from clockhands.checking.models.adapter import device_of
from clockhands.checking.models.subject import Subject, is_large, reload
from clockhands.models.facts import list_arguments
from clockhands.models.streaming import is_streamed

_SHARD = "256MB"  # streamed weights are in memory while their shard is written
_loading_check = partial(check, uses=("saving and loading",))


@_loading_check("load.round_trip", "a buffer that is neither saved nor made again", huggingface=True)
def _round_trip(subject: Subject) -> Measurement:
    """Saved and loaded, the model gives the same logits."""
    module: Any = subject.module
    dtype = next(module.parameters()).dtype
    with tempfile.TemporaryDirectory() as folder:
        _require_room(module, folder)
        module.save_pretrained(folder, max_shard_size=_SHARD)
        loaded = reload(module, folder, dtype, streamed=is_large(subject.adapter))
        return _compare_with(subject, loaded)


def _compare_with(subject: Subject, model: Any) -> Measurement:
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    ids = subject.tokens(1, 24)
    return Measurement(difference(put_in(subject, model).logits(ids), subject.logits(ids)))


@_loading_check("load.config", "a configuration that saving changes", huggingface=True)
def _config(subject: Subject) -> Measurement:
    """After saving, the class and the configuration of the model give the same model."""
    if is_large(subject.adapter) or is_streamed(subject.get_module()):
        raise Inapplicable("too large for a second copy")
    twin = subject.copy_untouched()
    module: Any = twin.module
    with tempfile.TemporaryDirectory() as folder:
        _require_room(module, folder)
        module.save_pretrained(folder)
    again = type(module)(copy.deepcopy(module.config)).to(device_of(subject.adapter), subject.dtype).eval()
    again.load_state_dict(module.state_dict())
    return _compare_with(subject, again)


def _require_room(module: nn.Module, folder: str) -> None:
    needed = sum(p.numel() * p.element_size() for p in module.parameters())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise Inapplicable(f"{needed / 1e9:.1f} GB to be written, {free / 1e9:.1f} GB free in {Path(folder).parent}")


@_loading_check("load.meta", "a non-persistent buffer left uninitialised", needs=("module",))
def _meta(subject: Subject) -> Measurement:
    """Built without storage and filled from its state dict, the model gives the same logits.

    The adapter's own ``fresh()`` builds it on the meta device, as large models are loaded in plain PyTorch.
    """
    fresh = getattr(subject.adapter, "fresh", None)
    if fresh is None:
        raise Inapplicable("the adapter has no fresh()")
    with torch.device("meta"):
        twin = fresh()
    module = twin.module
    module.to_empty(device=device_of(subject.adapter))
    for parameter in (*module.parameters(), *module.buffers()):
        torch.nn.init.constant_(parameter, 0.37) if parameter.is_floating_point() else parameter.zero_()
    for part in module.modules():
        getattr(part, "reset_buffers", lambda: None)()
    module.load_state_dict(subject.get_module().state_dict())
    module.to(next(subject.get_module().parameters()).dtype).eval()
    ids = subject.tokens(1, 24)
    return Measurement(difference(twin.logits(ids), subject.logits(ids)))


@_loading_check("load.state", "a table that grows and is saved grown", needs=("module",))
def _state(subject: Subject) -> Measurement:
    """Reading a long text leaves the state dict as it was.

    Names and shapes are compared, with the longest text that the model claims to read.
    """
    twin = subject.copy_model(subject.seed, subject.dtype)
    module = twin.get_module()
    before = {name: tuple(t.shape) for name, t in module.state_dict().items()}
    length = min(subject.facts.limit or 96, 96) - 4
    twin.logits(twin.tokens(1, max(length, 8)))
    after = {name: tuple(t.shape) for name, t in module.state_dict().items()}
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return Measurement(float(bool(changed)), f"changed: {', '.join(changed[:3])}" if changed else "")


@check("inputs.embeds", "positions that are made from ids alone", uses=("inputs_embeds",), huggingface=True)
def _embeds(subject: Subject) -> Measurement:
    """inputs_embeds of the model's own embedding give what the ids give."""
    module: Any = subject.module
    adapter: Any = subject.adapter
    table = module.get_input_embeddings()
    if adapter.task == "seq2seq":
        raise Inapplicable("of an encoder-decoder encoder_outputs are compared")
    if "inputs_embeds" not in list_arguments(module) or table is None:
        raise Inapplicable("the model takes no inputs_embeds")
    ids = subject.tokens(2, 12)
    with torch.no_grad():
        vectors = table(ids)
        if not isinstance(vectors, torch.Tensor):
            raise Inapplicable("the embedding of the model gives more than vectors")
        with refusals("the model refuses", ValueError, about="input_ids", most=160):
            output = module(inputs_embeds=vectors, **({"use_cache": False} if adapter.cache_name else {}))
    logits = output.logits if "logits" in output else output.last_hidden_state
    return Measurement(difference(logits[:, -ids.shape[1] :], subject.logits(ids)))


@check(
    "inputs.encoder_outputs",
    "a mask or a bias that is made from the source's ids",
    uses=("encoder_outputs",),
    huggingface=True,
)
def _encoder_outputs(subject: Subject) -> Measurement:
    """A source that was encoded before gives what its ids give."""
    module: Any = subject.module
    adapter: Any = subject.adapter
    if adapter.task != "seq2seq" or not subject.aligned:
        raise Inapplicable("about encoder-decoders")
    ids = subject.tokens(2, 12)
    source = adapter.inputs(ids)["input_ids"]
    with torch.no_grad():
        encoded = module.get_encoder()(input_ids=source)
        output = module(encoder_outputs=encoded, decoder_input_ids=ids, use_cache=False)
    return Measurement(difference(output.logits, subject.logits(ids)))
