"""Language models of other projects, converted to ours, so that a page runs them.

A family says how its configuration becomes one of ours, and which of its matrices each of ours consists of. Whether
that is true of a checkpoint is measured: converted, it has to compute the logits that it computes as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clockhands.data import Tokenizers
from clockhands.errors import ClockhandsError, UsageError
from clockhands.exploring.support import LARGEST
from clockhands.model.huggingface import ClockhandsForCausalLM
from clockhands.model.huggingface_config import ClockhandsConfig
from clockhands.models.subject import Subject
from clockhands.runs import Run
from clockhands.shapes import Tensor

ALIKE = 1e-3
"""The largest difference of a logit from that of the original, in standard deviations: rounding alone."""
_PROBED = 128
"""The most tokens of the texts on which both are compared."""
_SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id")
_ACTIVATIONS = {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu",
                "silu": "silu", "swish": "silu"}  # fmt: skip
"""Our names of the activations of transformers."""


@dataclass(frozen=True)
class Family:
    """How an architecture of transformers is one of ours.

    Args:
        configure: makes the settings of a ``TransformerConfig``.
        parts: the matrices and norms outside the layers, ours and theirs.
        layers: where the layers are.
        layer: what is in each layer: our name, and the names of theirs whose rows it holds one below the other.
        transposed: whether matrices in the layers are [inputs, columns].
    """

    configure: Callable[[Any], dict[str, Any]]
    parts: Mapping[str, str]
    layers: str
    layer: Mapping[str, Sequence[str]]
    transposed: bool = False


def convert_checkpoint(subject: Subject, source: str | Path) -> Run:
    """Return a language model of another project as a run of ours, with its model and tokenizer in memory.

    Raises UsageError with the reason where it cannot be converted, or does not compute the same afterwards.
    """
    original = getattr(subject, "language_model", None)
    if original is None:
        raise UsageError("it is no language model that continues text")
    config = original.config
    if config.model_type not in FAMILIES:
        raise UsageError(f"a page runs models of Clockhands and of {', '.join(FAMILIES)}, not of {config.model_type}")
    count = sum(parameter.numel() for parameter in original.parameters())
    if count > LARGEST:
        raise UsageError(f"it has {count:,} parameters, and a page runs at most {LARGEST:,}")
    if subject.tokenizer is None:
        raise UsageError("it came without a tokenizer")
    model = _convert(FAMILIES[config.model_type], original)
    _check_logits(model, original)
    run = Run(Path(source), device="cpu")
    # Where cached_property keeps what it has computed: there is no folder of ours to open.
    vars(run).update(model=model, tokenizers=Tokenizers(subject.tokenizer, subject.tokenizer))
    return run


def _convert(family: Family, original: Any) -> Any:
    """Build a model of ours, and copy the weights into it."""
    config = original.config
    # A configuration that says nothing has the ids of the whole GPT-2, which a small vocabulary does not hold.
    ids: dict[str, Any] = {name: _keep_known_ids(getattr(config, name, None), config.vocab_size) for name in _SPECIAL}
    table = {
        "kind": "decoder",
        "norm": "pre",
        "token_scale": "one",
        "tying": "target" if config.tie_word_embeddings else "none",
        "dropout": 0.0,
        "vocab_size": config.vocab_size,
        **family.configure(config),
    }
    try:
        model = ClockhandsForCausalLM(ClockhandsConfig(transformer=table, **ids)).eval()
        _copy_weights(family, original.state_dict(), model)
    except ClockhandsError as fault:
        raise UsageError(f"it is no model of ours by its configuration: {fault}") from fault
    return model


def _keep_known_ids(ids: Any, size: int) -> Any:
    """Return one id or several as they are, less those that are no token's; None where none is left."""
    known = [
        number for number in (ids if isinstance(ids, list) else [ids]) if number is not None and 0 <= number < size
    ]
    return known if len(known) > 1 else known[0] if known else None


@torch.no_grad()
def _copy_weights(family: Family, theirs: Mapping[str, Tensor], model: Any) -> None:
    """Copy every parameter. Raises UsageError where one is missing, of another shape, or left over."""
    used: set[str] = set()
    for name, parameter in model.model.named_parameters():
        values = _find_values(family, theirs, name, used)
        if values is None and name.endswith(".bias"):
            parameter.zero_()
            continue
        if values is None or values.shape != parameter.shape:
            raise UsageError(f"its weights have nothing that fits {name}, {list(parameter.shape)}")
        parameter.copy_(values)
    left = [name for name in theirs if name not in used and name != "lm_head.weight"]
    if left:
        raise UsageError(f"it has weights that no model of ours has: {left[0]}")


def _find_values(family: Family, theirs: Mapping[str, Tensor], name: str, used: set[str]) -> Tensor | None:
    """Return the numbers of one of our parameters, and note of which of theirs they are; None where one is missing."""
    module, kind = name.rsplit(".", 1)
    in_layer = module.startswith("decoder.blocks.")
    if in_layer:
        _, _, layer, inner = module.split(".", 3)
        names = [f"{family.layers}.{layer}.{part}.{kind}" for part in family.layer[inner]]
    else:
        names = [f"{family.parts[module]}.{'weight' if kind == 'table_LP' else kind}"]
    if not all(part in theirs for part in names):
        return None
    used.update(names)
    values = [theirs[part].detach().cpu().float() for part in names]
    rows = [value.T if family.transposed and in_layer and value.dim() == 2 else value for value in values]
    return torch.cat(rows)


@torch.no_grad()
def _check_logits(model: Any, original: Any) -> None:
    """Raise UsageError unless both compute the same logits of random tokens."""
    length = min(_PROBED, getattr(original.config, "max_position_embeddings", _PROBED))
    generator = torch.Generator().manual_seed(0)
    ids_2S = torch.randint(model.config.vocab_size, (2, length), generator=generator)
    theirs = original(input_ids=ids_2S.to(original.device), use_cache=False).logits.cpu().float()
    ours = model(input_ids=ids_2S, use_cache=False).logits
    difference = float((ours - theirs).abs().max() / theirs.std())
    if not difference < ALIKE:
        raise UsageError(
            "as a model of ours it computes something else: logits differ by up to "
            f"{difference:.2g} standard deviations"
        )


def _name_activation(name: str) -> str:
    if name not in _ACTIVATIONS:
        raise UsageError(f"its activation is {name!r}, and a page computes {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _configure_gpt2(config: Any) -> dict[str, Any]:
    return {
        "d_model": config.n_embd,
        "num_heads": config.n_head,
        "d_ff": config.n_inner or 4 * config.n_embd,
        "decoder_layers": config.n_layer,
        "norm_eps": config.layer_norm_epsilon,
        "activation": _name_activation(config.activation_function),
        "attention_bias": True,
        "decoder": {"scheme": "learned", "max_length": config.n_positions},
    }


def _configure_llama(config: Any) -> dict[str, Any]:
    rotation = dict(config.rope_parameters)
    if rotation.get("rope_type", "default") != "default":
        raise UsageError(f"its frequencies are changed by the rule {rotation['rope_type']!r}, and a page has none")
    return {
        "d_model": config.hidden_size,
        "num_heads": config.num_attention_heads,
        "num_kv_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "d_ff": config.intermediate_size,
        "decoder_layers": config.num_hidden_layers,
        "norm_kind": "rms",
        "norm_eps": config.rms_norm_eps,
        "activation": _name_activation(config.hidden_act),
        "gated": True,
        "attention_bias": config.attention_bias,
        "ffn_bias": config.mlp_bias,
        "decoder": {"scheme": "rope", "base": float(rotation["rope_theta"])},
    }


FAMILIES: Mapping[str, Family] = {
    "gpt2": Family(
        _configure_gpt2,
        {
            "decoder.input.tokens": "transformer.wte",
            "decoder.schemes.0": "transformer.wpe",
            "decoder.norm": "transformer.ln_f",
            "output": "lm_head",
        },
        "transformer.h",
        {
            "attention_residual.norm": ("ln_1",),
            "attention.qkv": ("attn.c_attn",),
            "attention.out": ("attn.c_proj",),
            "feed_forward_residual.norm": ("ln_2",),
            "feed_forward.up": ("mlp.c_fc",),
            "feed_forward.down": ("mlp.c_proj",),
        },
        transposed=True,
    ),
    "llama": Family(
        _configure_llama,
        {"decoder.input.tokens": "model.embed_tokens", "decoder.norm": "model.norm", "output": "lm_head"},
        "model.layers",
        {
            "attention_residual.norm": ("input_layernorm",),
            "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "attention.out": ("self_attn.o_proj",),
            "feed_forward_residual.norm": ("post_attention_layernorm",),
            "feed_forward.up": ("mlp.gate_proj", "mlp.up_proj"),
            "feed_forward.down": ("mlp.down_proj",),
        },
    ),
}
"""The architectures that a page runs, by the ``model_type`` of their configuration."""
