"""Tiny decoders exported on the spot, sound or with one fault that exports have."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, DynamicCache, GPT2Config, LlamaConfig, PretrainedConfig

from clockhands.checking.models.tiny import make_position_audible
from clockhands.checking.runtimes.naming import permute
from clockhands.model.huggingface_base import get_cache, name_cache

TRACED = 16  # what a frozen table knows
YARN = {"rope_type": "yarn", "rope_theta": 500_000.0, "factor": 4.0, "original_max_position_embeddings": 32}
ROPE = {"rope_type": "default", "rope_theta": 500_000.0}


def llama(rope: dict[str, Any] = ROPE) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=120, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rope_parameters=dict(rope), bos_token_id=1, eos_token_id=2,
    )  # fmt: skip


def gpt2() -> GPT2Config:
    return GPT2Config(vocab_size=120, n_positions=128, n_embd=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)


def make(config: PretrainedConfig, seed: int = 0) -> Any:
    """A decoder whose weights make position audible."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    return make_position_audible(model, seed)


PLACES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sound": lambda positions, ids: positions,
    "clamped": lambda positions, ids: positions.clamp(max=TRACED - 1),
    "wrapped": lambda positions, ids: positions % TRACED,
    "zero": lambda positions, ids: positions * 0,
    "lost": lambda positions, ids: torch.arange(ids.shape[1])[None].expand_as(ids),
    "first row": lambda positions, ids: positions[:1].expand_as(positions),
    "late": lambda positions, ids: positions + 2,
    "cut": lambda positions, ids: torch.arange(TRACED)[positions],
    "baked": lambda positions, ids: torch.arange(TRACED)[None].expand_as(ids),
    "maskless": lambda positions, ids: positions,
    "no past": lambda positions, ids: positions,
}
"""What each fault makes of position_ids; the last two are faults of the mask."""


class Export(nn.Module):
    """What is traced: a decoder that makes its mask itself, as exports do."""

    def __init__(self, model: Any, fault: str) -> None:
        super().__init__()
        self.model, self.fault = model, fault

    def forward(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, *past: Tensor) -> Any:
        cache = DynamicCache(config=self.model.config)
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        keys, queries = attention_mask.shape[1], input_ids.shape[1]
        place = torch.arange(keys)
        allowed = (place[None] <= torch.arange(queries)[:, None] + (keys - queries))[None]
        if self.fault == "no past":
            allowed = allowed & (place >= keys - queries)[None, None]
        real = torch.ones_like(attention_mask) if self.fault == "maskless" else attention_mask
        allowed = allowed & real.bool()[:, None]
        output = self.model(
            input_ids=input_ids,
            attention_mask=torch.where(allowed, 0.0, -1e9)[:, None],
            position_ids=PLACES[self.fault](position_ids, input_ids),
            use_cache=True,
            **name_cache(cache),
        )
        layers = get_cache(output).layers
        return (output.logits, *(tensor for layer in layers for tensor in (layer.keys, layer.values)))


def export(model: Any, path: Path, fault: str = "sound") -> Path:
    """Write ``model.onnx`` with the inputs and outputs that Optimum gives a decoder with a cache."""
    config = model.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = config.hidden_size // config.num_attention_heads
    slots = [f"{n}.{kind}" for n in range(config.num_hidden_layers) for kind in ("key", "value")]
    traced = TRACED if fault == "baked" else 5
    past = [torch.randn(2, heads, 3, width) for _ in slots]
    ids, mask = torch.randint(10, 100, (2, traced)), torch.ones(2, traced + 3, dtype=torch.int64)
    inputs = ["input_ids", "attention_mask", "position_ids", *(f"past_key_values.{slot}" for slot in slots)]
    outputs = ["logits", *(f"present.{slot}" for slot in slots)]
    axes = {name: {0: "batch", 2: "tokens"} for name in (*inputs[3:], *outputs[1:])}
    axes |= {name: {0: "batch", 1: name} for name in (*inputs[:3], "logits")}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Export(model, fault), (ids, mask, torch.arange(3, 3 + traced).repeat(2, 1), *past), str(path),
            input_names=inputs, output_names=outputs, dynamic_axes=axes, dynamo=False,
        )  # fmt: skip
    return path


def quantise(path: Path) -> Path:
    """Make the int8 form of an export, whose products share a scale among all tokens of a call."""
    from onnxruntime.quantization import quantize_dynamic

    small = path.with_name(f"int8-{path.name}")
    quantize_dynamic(path, small)
    return small


def unpermuted(model: Any) -> Any:
    """The same model with the rows of q and k in the order that another program expects."""
    changed = make(model.config)
    permute(changed, True)
    return changed


def drop(model: Any, rope: dict[str, Any]) -> Any:
    """The same weights under other settings of RoPE."""
    config = type(model.config).from_dict({**model.config.to_dict(), "rope_parameters": dict(rope)})
    changed = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    changed.load_state_dict(model.state_dict())
    return changed
