"""A run as the page needs it: plain data of its model, and its weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from clockhands.data import Pair
from clockhands.exploring.controls import list_applicable, read_amplitude, read_token_scale
from clockhands.exploring.support import check_support, list_stacks
from clockhands.exploring.tokenizer_rules import describe_tokens, read_rules
from clockhands.generation.engines import get_end_tokens, get_start_token
from clockhands.model import TransformerConfig
from clockhands.model.block import Block
from clockhands.model.config_fields import StackSide
from clockhands.options import options_of
from clockhands.runs import Run
from clockhands.schemes import CATALOGUE, Index, RoPE, Scheme, Sinusoidal
from clockhands.schemes.bias.alibi import Alibi
from clockhands.schemes.bias.t5 import T5Bias
from clockhands.shapes import Tensor

MOST_TOKENS = 512
"""The longest list of tokens whose pairs stand in a page: two tables of as many rows and columns, a bit each."""
LEAST_MEETINGS = 20.0
"""Two tokens that would by chance be together in fewer texts count as seen: that they never met tells nothing."""


def describe_order(texts: Sequence[Sequence[int]], vocabulary: int, least: float = LEAST_MEETINGS) -> dict[str, Any]:
    """Describe texts, given as token ids without special tokens, as `TrainedOrder` of the page's script reads it.

    ``next`` tells which token stood right behind which, its last row the beginning of a text and its last column the
    end; ``before`` which token stood anywhere before which. Both are bits in hexadecimal digits, row after row.
    """
    edge = vocabulary
    next_VV = np.zeros((vocabulary + 1, vocabulary + 1), bool)
    before_VV = np.zeros((vocabulary, vocabulary), bool)
    for ids in {tuple(text) for text in texts if len(text)}:
        whole = np.array(ids)
        next_VV[[edge, *ids], [*ids, edge]] = True
        firsts, seconds = np.triu_indices(len(ids), 1)
        before_VV[whole[firsts], whole[seconds]] = True
    texts_V = np.zeros(vocabulary)
    for text in texts:
        texts_V[list(set(text))] += 1
    met_VV = np.outer(texts_V, texts_V) / max(len(texts), 1)
    rare_VV = (met_VV > 0) & (met_VV < least)
    next_VV[:edge, :edge] |= rare_VV
    before_VV |= rare_VV
    lengths = [len(text) for text in texts if len(text)]
    return {
        "shortest": min(lengths, default=0),
        "longest": max(lengths, default=0),
        "next": _write_bits(next_VV),
        "before": _write_bits(before_VV),
    }


def _write_bits(table: NDArray[np.bool_]) -> str:
    """Return bits in hexadecimal digits, the first bit of each digit its highest."""
    return np.packbits(table).tobytes().hex()


def describe_scheme(run: Run, side: StackSide) -> dict[str, Any]:
    """Return the name of a side's scheme, every option with its value, and what the page needs besides."""
    position = run.model.config.transformer_config.get_position_config(side)
    scheme = run.model.transformer.get_stack(side).schemes.at_input
    defaults = {name: option.default for name, option in options_of(CATALOGUE[position.scheme]).items()}
    options = {**defaults, **position.options}
    # The options whose value follows from the side: which form of ALiBi, and which directions of T5.
    resolved: dict[str, Any] = {"form": scheme.form} if isinstance(scheme, Alibi) else {}
    resolved |= {"bidirectional": scheme.bidirectional} if isinstance(scheme, T5Bias) else {}
    return {
        "name": position.scheme,
        "options": options | resolved,
        "combine": position.combine,
        "everyLayer": position.every_layer,
        "skipEvery": position.skip_every,
        "frequencies": scheme.frequencies().detach().tolist() if isinstance(scheme, (Sinusoidal, RoPE)) else [],
        **_read_learned(scheme),
    }


def _read_learned(scheme: Scheme) -> dict[str, Any]:
    if isinstance(scheme, Sinusoidal):
        return {"amplitude": read_amplitude(scheme)}
    if isinstance(scheme, Index):
        return {"step": scheme.encode(torch.tensor([[0, 1]]))[0, 1].tolist()}
    if isinstance(scheme, RoPE) and scheme.alpha_F is not None:
        return {"factors": scheme.alpha_F.detach().double().exp().tolist()}
    if isinstance(scheme, Alibi):
        return {"slopes": scheme.slopes_OH.detach().abs().tolist()}
    return {"starts": scheme.starts_N.tolist()} if isinstance(scheme, T5Bias) else {}


_TABLES = {"learned": "table_LP", "t5": "table_HN"}
"""The parameter of a scheme that is its table."""


def pack_weights(run: Run, dtype: str = "float16") -> tuple[bytes, dict[str, Any]]:
    """Return the little-endian numbers of all weights, and where each tensor begins, in numbers, with its shape.

    Tensors have the names of the state dict without ``model.``, but the stack of a language model is called
    ``encoder``; tied ones share one place. The table of a side's scheme is called ``encoder.table`` or
    ``decoder.table``.
    """
    places: dict[str, Any] = {}
    kept: dict[int, dict[str, Any]] = {}
    numbers: list[np.ndarray[Any, Any]] = []
    offset = 0
    for name, tensor in _list_tensors(run).items():
        place = kept.get(tensor.data_ptr())
        if place is None or place["shape"] != list(tensor.shape):
            place = kept[tensor.data_ptr()] = {"offset": offset, "shape": list(tensor.shape)}
            numbers.append(tensor.detach().cpu().float().numpy().astype(f"<{np.dtype(dtype).str[1:]}").ravel())
            offset += tensor.numel()
        places[name] = place
    return b"".join(array.tobytes() for array in numbers), places


@contextmanager
@torch.no_grad()
def hold_packed(run: Run, dtype: torch.dtype = torch.float16) -> Iterator[None]:
    """Round the weights inside the block as ``pack_weights`` does, so that a run counts what a page counts.

    Where two tokens are nearly as likely, weights of half precision write another text than whole ones.
    """
    tensors = list(_list_tensors(run).values())
    trained = [tensor.detach().clone() for tensor in tensors]
    try:
        for tensor in tensors:
            tensor.copy_(tensor.to(dtype))
        yield
    finally:
        for tensor, values in zip(tensors, trained, strict=True):
            tensor.copy_(values)


def _list_tensors(run: Run) -> dict[str, Tensor]:
    """Return what the page multiplies by: all parameters of the layers, and the tables of the schemes."""
    model = run.model.transformer
    tensors: dict[str, Tensor] = {
        name: tensor for name, tensor in model.named_parameters(remove_duplicate=False) if ".schemes." not in name
    }
    config = run.model.config.transformer_config
    for side in list_stacks(config).values():
        parameter = _TABLES.get(config.get_position_config(side).scheme)
        if parameter:
            tensors[f"{side}.table"] = getattr(model.get_stack(side).schemes.at_input, parameter)
    # A learned scale of the tokens is told as a number, with the rules.
    named = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor) and tensor.dim()}
    if config.architecture != "decoder":
        return named
    return {name.replace("decoder.", "encoder.", 1): tensor for name, tensor in named.items()}


@dataclass(frozen=True)
class ExplorerModel:
    """A model on its way to the page: its data, ready for JSON, and the numbers of its weights."""

    data: dict[str, Any]
    weights: bytes

    @property
    def is_live(self) -> bool:
        """Whether the page runs it; else it shows what was recorded."""
        return bool(self.data["config"]["kind"] != "recorded")

    def read_array(self, name: str) -> np.ndarray[Any, Any]:
        """Return one of the arrays in ``weights``, as float32."""
        place, dtype = self.data["tensors"][name], np.dtype(self.data["weights"]["type"]).newbyteorder("<")
        count = math.prod(place["shape"])
        array = np.frombuffer(self.weights, dtype, count, place["offset"] * dtype.itemsize)
        return array.reshape(place["shape"]).astype(np.float32)


def describe_model(
    run: Run, name: str, label: str, task: str, pairs: Sequence[Pair], dtype: str = "float16"
) -> ExplorerModel:
    """Return a run's model with held-out pairs. ``name`` is its key on the page; ``dtype`` that of its weights there.

    Raises UsageError with every reason for which it does not run in a page.
    """
    check_support(run)
    weights, places = pack_weights(run, dtype)
    tokenizers = run.tokenizers
    config: TransformerConfig = run.model.config.transformer_config
    stacks = list_stacks(config)
    ends = "decoder" in stacks  # the texts of a language model do not end
    data = {
        "id": name,
        "label": label,
        "task": task,
        "config": _describe_sizes(run),
        "rules": _describe_rules(run),
        "schemes": {"decoder": _NO_SCHEME, **{side: describe_scheme(run, own) for side, own in stacks.items()}},
        "applicable": {"decoder": [], **{side: list_applicable(run, own) for side, own in stacks.items()}},
        "tokens": describe_tokens(tokenizers.source, config.get_vocabulary_size(stacks["encoder"])),
        "targetTokens": None if tokenizers.shared else describe_tokens(tokenizers.target, config.vocab_size),
        "tokenizer": read_rules(tokenizers.source, ends=ends),
        "targetTokenizer": read_rules(tokenizers.target, ends=ends),
        "heldOut": [{"source": pair.source, "target": pair.target} for pair in pairs],
        "tensors": places,
        "weights": {"element": f"explorer-weights-{name}", "type": dtype},
    }
    return ExplorerModel(data, weights)


_NO_SCHEME: dict[str, Any] = {
    "name": "none",
    "options": {},
    "combine": "add",
    "everyLayer": False,
    "skipEvery": 0,
    "frequencies": [],
}
"""The decoder's scheme of a model without one."""


def _describe_sizes(run: Run) -> dict[str, Any]:
    config: TransformerConfig = run.model.config.transformer_config
    return {
        "kind": config.architecture,
        "dModel": config.d_model,
        "heads": config.num_heads,
        "headDim": config.resolved_head_dim,
        "dFf": config.d_ff,
        "encoderLayers": config.decoder_layers if config.architecture == "decoder" else config.encoder_layers,
        "decoderLayers": 0 if config.architecture == "decoder" else config.decoder_layers,
        "norm": config.norm,
        "vocabulary": config.vocab_size,
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
    }


def _describe_rules(run: Run) -> dict[str, Any]:
    config: TransformerConfig = run.model.config.transformer_config
    stacks = list_stacks(config)
    return {
        "eps": config.norm_eps,
        "normKind": config.norm_kind,
        "preNorm": config.norm == "pre",
        "finalNorm": config.has_final_norm,
        "embeddingNorm": config.embedding_norm,
        "causalEncoder": config.causal_encoder or config.architecture == "decoder",
        "keyHeads": config.resolved_num_kv_heads,
        "tokenScale": {"decoder": 1.0, **{side: read_token_scale(run, own) for side, own in stacks.items()}},
        "outputScale": config.output_scale,
        "activation": config.activation,
        "gated": config.gated,
        "residual": config.residual,
        "attentionScale": {
            "decoder": 1.0,
            **{
                # As the model itself chooses it for the self-attention of a side.
                side: cast(Block, stack.blocks[0]).attention.choose_scale(stack.schemes.at_input)
                for side, own in stacks.items()
                for stack in (run.model.transformer.get_stack(own),)
            },
            "cross": config.resolved_head_dim**-0.5 if config.attention_scale is None else config.attention_scale,
        },
        "startId": 0 if config.architecture == "decoder" else get_start_token(run.model),
        "endIds": get_end_tokens(run.model),
    }
