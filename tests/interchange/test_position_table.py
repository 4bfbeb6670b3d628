"""Layouts of transformers' configurations: the whole model of transformers with our schemes in the place of its own.

Those are here whose weights are not copied; of the others ``test_weights`` compares the whole copy with the model.
Queries and keys reach our attention as the model projects (and norms) them; its rotation, its windows, chunks, sinks
and temperature are taken out, and the scheme of each layer stands in for them. So models are equal whole, logits and
all, also those whose other parts (experts, gated norms) this project does not have.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from clockhands import positions
from clockhands.attention import attend
from clockhands.errors import CheckpointError
from clockhands.interchange.position_table import read_position_table
from clockhands.model import Transformer
from clockhands.schemes import Composition, NoPosition, RoPE, Scheme, Sinks, SSMax
from tests.model.peers import without_yarn
from tests.model.tiny import core, words

LENGTH, LAYERS = 21, 6
SIZES = {
    "vocab_size": 41, "hidden_size": 48, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "intermediate_size": 48,
    "num_key_value_heads": 2, "head_dim": 12, "pad_token_id": 0,
    "experts_implementation": "eager",  # the other one has no float64
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 500.0}
GEMMA_4_BASES = {"sliding_attention": 10_000.0, "full_attention": 1_000_000.0}  # transformers' own


@dataclass(frozen=True)
class Peer:
    """A model of transformers in small, and what of it rotates."""

    model: str
    config: dict[str, Any]
    rotate: str = "apply_rotary_pos_emb"
    reorder: Callable[[Tensor], Tensor] = lambda heads: heads
    restore: Callable[[Tensor], Tensor] | None = None  # where values are rotated: from the order of ours to theirs


def _move_first(count: int) -> Callable[[Tensor], Tensor]:
    """Put the last ``count`` of 12 channels first: MLA has the slice that rotates, of 4, behind the others."""
    return lambda heads: torch.cat([heads[..., 12 - count :], heads[..., : 12 - count]], dim=-1)


PEERS = {
    "qwen3-next": Peer(
        "Qwen3NextForCausalLM",
        {
            "partial_rotary_factor": 0.5, "layer_types": ["full_attention"] * LAYERS, "num_experts": 2,
            "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "num_experts_per_tok": 1,
        },
    ),
    "deepseek-v4": Peer(
        "DeepseekV4ForCausalLM",
        {
            "num_key_value_heads": 1, "partial_rotary_factor": 1 / 3, "sliding_window": 5, "q_lora_rank": 8,
            "o_lora_rank": 4, "o_groups": 2, "layer_types": ["sliding_attention"] * LAYERS, "moe_intermediate_size": 16,
            "mlp_layer_types": ["moe"] * LAYERS, "n_routed_experts": 2, "num_experts_per_tok": 1, "hc_mult": 2,
        },
        reorder=_move_first(4), restore=_move_first(8),
    ),
    "mistral-large-4": Peer(
        "MistralLarge4TextModel",
        {
            "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 12, "kv_lora_rank": 8, "head_dim": 4,
            "num_key_value_heads": 4, "first_k_dense_replace": LAYERS, "rope_parameters": YARN, "index_head_dim": 8,
            "index_n_heads": 2, "index_topk": 64,
        },
        "apply_rotary_pos_emb_interleave", _move_first(4),
    ),
    "gemma-4": Peer(
        "Gemma4ForCausalLM",
        {"sliding_window": 5, "global_head_dim": 12, "vocab_size_per_layer_input": 41}
        | {"hidden_size_per_layer_input": 8},
    ),
}  # fmt: skip


def _fill(ending: str, value: float) -> Callable[[nn.Module], None]:
    """Set the numbers of this name in all layers."""

    def change(model: nn.Module) -> None:
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith(ending):
                tensor.fill_(value)

    return change


NO_WINDOWS = {"windows": {"sliding_window": 64}}
GEMMA_4_WITHOUT_SHARE = {kind: {"rope_type": "default", "rope_theta": base} for kind, base in GEMMA_4_BASES.items()}
WITHOUT: dict[str, dict[str, dict[str, Any] | Callable[[nn.Module], None]]] = {
    "qwen3-next": {"partial rotation": {"partial_rotary_factor": 1.0}},
    "deepseek-v4": NO_WINDOWS | {"sinks": _fill("sinks", -1e4)},
    "mistral-large-4": {
        "layers without rotation": {"no_rope_layers": [1] * LAYERS},
        "YaRN": without_yarn(PEERS["mistral-large-4"].config),
        "learned frequencies": _fill("alpha", 0.0),
        "temperature": _fill("softmax_scaling.scale", 0.0),
    },
    "gemma-4": NO_WINDOWS | {"proportional": {"rope_parameters": GEMMA_4_WITHOUT_SHARE}},
}
"""What a model stands for, and what in its configuration or its numbers takes that away."""
CASES = [(name, feature) for name in PEERS for feature in ("nothing", *WITHOUT[name])]


def make_tiny(name: str, without: str = "nothing") -> Any:
    """Make the peer in float64, without one of its features."""
    family, change = getattr(transformers, PEERS[name].model), WITHOUT[name].get(without, {})
    settings = {**SIZES, **PEERS[name].config, **({} if callable(change) else change)}
    torch.manual_seed(3)
    theirs = family(family.config_class(**copy.deepcopy(settings))).eval().double()
    with torch.no_grad():
        for key, parameter in theirs.named_parameters():
            parameter.add_(torch.randn(parameter.shape) * (1.0 if "sinks" in key else 0.1))
        for key, buffer in theirs.named_buffers():
            if key.endswith("alpha"):  # the logarithms of learned factors, which begin at 0
                buffer.normal_(std=0.2)  # small, because transformers computes these angles in float32
    if callable(change):
        change(theirs)
    return theirs


def list_layers(theirs: Any) -> Any:
    return getattr(theirs, "model", theirs).layers


def build_layers(theirs: Any) -> list[Scheme]:
    """The scheme of each layer, from the model's configuration alone; sinks get the model's numbers."""
    config = theirs.config.to_dict()
    width = config.get("qk_nope_head_dim", 8) + 4 if "qk_nope_head_dim" in config else 12
    sizes = {"d_model": 48, "num_heads": 4, "head_dim": width, "decoder_layers": LAYERS}
    made = Transformer(core(kind="decoder", **sizes, decoder=read_position_table(config)))
    schemes = [made.get_stack("decoder").schemes.get_scheme(layer) for layer in range(LAYERS)]
    for scheme, layer in zip(schemes, list_layers(theirs), strict=True):
        for part in scheme.parts if isinstance(scheme, Composition) else (scheme,):
            if isinstance(part, Sinks):
                part.sink_H.data.copy_(layer.self_attn.sinks)
            if isinstance(part, SSMax) and part.bias_H is not None:
                part.slope_H.data.copy_(layer.self_attn.softmax_scaling.scale)
                part.bias_H.data.copy_(layer.self_attn.softmax_scaling.bias)
            if isinstance(part, RoPE) and part.alpha_F is not None:
                part.alpha_F.data.copy_(theirs.rotary_emb.alpha)
    return [scheme.double() for scheme in schemes]


def put_in_place(theirs: Any, schemes: list[Scheme], peer: Peer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Take the model's own positions out, and put our attention in; return the layers that have called it."""
    module = __import__(type(theirs).__module__, fromlist=["_"])
    # Keys come beside queries, or cosines of three axes: Gemma 4 rotates the one after the other.
    monkeypatch.setattr(module, peer.rotate, lambda q, *rest, **named: (q, rest[0]) if rest[0].dim() == 4 else q)
    called: list[int] = []

    def ours(layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, scaling: float, **rest: Any) -> Any:
        groups = q.shape[1] // k.shape[1]
        k, v = (heads.repeat_interleave(groups, dim=1) for heads in (k, v))
        pos, scheme = positions.count_up(len(q), q.shape[2]), schemes[int(layer.layer_idx)]
        called.append(int(layer.layer_idx))
        q, k = peer.reorder(q), peer.reorder(k)
        v = v if peer.restore is None else peer.reorder(v)
        out = attend(scheme, q, k, v, pos, pos, causal=True, scale=scaling)
        out = out if peer.restore is None else peer.restore(out)
        return out.transpose(1, 2).contiguous(), None

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "ours", ours)
    monkeypatch.setitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "ours", _make_mask)
    theirs.config._attn_implementation = "ours"
    for layer in list_layers(theirs):
        if hasattr(layer.self_attn, "softmax_scaling"):
            monkeypatch.setattr(layer.self_attn.softmax_scaling, "forward", lambda q, *_, **__: q)
    return called


def _make_mask(*_: Any, **settings: Any) -> Tensor | None:
    """The causal mask, which Mistral Large 4 cuts by itself; what else is masked, our schemes have to say."""
    cut = settings.get("allow_is_causal_skip") is False
    return torch.ones(2, 1, LENGTH, LENGTH, dtype=torch.bool).tril() if cut else None


@pytest.mark.parametrize(("name", "without"), CASES)
@torch.no_grad()
def test_a_model_with_our_schemes_gives_its_logits(name: str, without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64, so that models that differ cannot pass as the rounding of equal ones; also without a feature."""
    peer, text = PEERS[name], words(2, LENGTH)
    theirs = make_tiny(name, without)
    expected = theirs(input_ids=text)[0]
    if without != "nothing":
        complete = make_tiny(name)(input_ids=text)[0]
        assert (complete - expected).abs().max() > 1e-3, f"{without} makes no difference to the model of transformers"
    schemes = build_layers(theirs)
    called = put_in_place(theirs, schemes, peer, monkeypatch)
    got = theirs(input_ids=text)[0]
    assert called == list(range(LAYERS))
    assert expected.dtype == torch.float64 and expected.std() > 0.02, "the logits say nothing"
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    for scheme in schemes:
        monkeypatch.setattr(scheme, "active_hooks", frozenset)
        monkeypatch.setattr(scheme, "after_rotation", NoPosition)
        monkeypatch.setattr(scheme, "rotate", lambda q, k, *_: (q, k))
    assert (theirs(input_ids=text)[0] - expected).abs().max() > 1e-3, "without the schemes it is another model"


def test_what_no_scheme_does_is_refused() -> None:
    kinds = ["sliding_attention", "heavily_compressed_attention"]
    compressed = {"model_type": "deepseek_v4", "num_hidden_layers": 2, "hidden_size": 8, "layer_types": kinds}
    with pytest.raises(CheckpointError, match=r"layers of the kind heavily_compressed_attention, which attend to comp"):
        read_position_table(compressed)
    with pytest.raises(CheckpointError, match=r"has ALiBi .* which read_position_table does not turn into schemes"):
        read_position_table({"model_type": "falcon", "alibi": True, "num_hidden_layers": 2, "hidden_size": 8})
