"""A run as the page needs it: plain data of its model, and its weights."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
import torch

from clockhands.data import Pair
from clockhands.errors import UsageError
from clockhands.exploring.controls import list_applicable, read_amplitude, read_token_scale
from clockhands.exploring.support import check_support, describe_tokens, list_stacks, read_rules
from clockhands.findings import join_words
from clockhands.generation.engines import get_end_tokens, get_start_token
from clockhands.inspection.estimators.matrix_statistics import read_exact_hands
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.sentences import encode_sentences
from clockhands.model import TransformerConfig
from clockhands.model.block import Block
from clockhands.model.position_config import StackSide
from clockhands.models.subject import Subject
from clockhands.options import defaults_of, options_of
from clockhands.runs import Run
from clockhands.schemes import CATALOGUE, Index, RoPE, Sinusoidal
from clockhands.schemes.bias.alibi import Alibi
from clockhands.schemes.bias.t5 import T5Bias
from clockhands.shapes import Float, Tensor

MOST_TOKENS = 512
"""The longest list of tokens whose pairs stand in a page: two tables of as many rows and columns, a bit each."""
_NO_SCHEME: dict[str, Any] = {
    "name": "none", "options": {}, "combine": "add", "everyLayer": False, "skipEvery": 0, "frequencies": [],
}  # fmt: skip
"""The scheme of a side without one."""
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
    same_length = defaultdict(set)
    for text in texts:
        same_length[len(text)].add(tuple(text))
    same_length.pop(0, None)
    for rows in same_length.values():
        ids_NT = np.array(list(rows))
        next_VV[edge, ids_NT[:, 0]] = next_VV[ids_NT[:, -1], edge] = True
        next_VV[ids_NT[:, :-1], ids_NT[:, 1:]] = True
        for first in range(ids_NT.shape[1] - 1):
            before_VV[ids_NT[:, first, None], ids_NT[:, first + 1 :]] = True
    texts_V = np.bincount([token for text in texts for token in set(text)], minlength=vocabulary)
    met_VV = np.outer(texts_V, texts_V) / max(len(texts), 1)
    rare_VV = (met_VV > 0) & (met_VV < least)
    next_VV[:edge, :edge] |= rare_VV
    before_VV |= rare_VV
    lengths = [len(text) for text in texts if len(text)]
    return {
        "shortest": min(lengths, default=0),
        "longest": max(lengths, default=0),
        # The first bit of each digit is its highest.
        "next": np.packbits(next_VV).tobytes().hex(),
        "before": np.packbits(before_VV).tobytes().hex(),
    }


def describe_scheme(run: Run, side: StackSide) -> dict[str, Any]:
    """Return the name of a side's scheme, every option with its value, and what the page needs besides."""
    position = run.model.config.transformer_config.get_position_config(side)
    scheme = run.model.transformer.get_stack(side).schemes.at_input
    data: dict[str, Any] = {
        **_NO_SCHEME,
        "name": position.scheme,
        "options": {**defaults_of(options_of(CATALOGUE[position.scheme])), **position.options},
        "combine": position.combine,
        "everyLayer": position.every_layer,
        "skipEvery": position.skip_every,
    }
    if isinstance(scheme, (Sinusoidal, RoPE)):
        data["frequencies"] = scheme.frequencies().detach().tolist()
    if isinstance(scheme, Sinusoidal):
        data["amplitude"] = read_amplitude(scheme)
    elif isinstance(scheme, Index):
        data["step"] = scheme.encode(torch.tensor([[0, 1]]))[0, 1].tolist()
    elif isinstance(scheme, RoPE) and scheme.alpha_F is not None:
        data["factors"] = scheme.alpha_F.detach().double().exp().tolist()
    # The values of two options follow from the side: the form of ALiBi, and the directions of T5.
    elif isinstance(scheme, Alibi):
        data["options"]["form"] = scheme.form
        data["slopes"] = scheme.compute_slopes().detach().tolist()
    elif isinstance(scheme, T5Bias):
        data["options"]["bidirectional"] = scheme.bidirectional
        data["starts"] = scheme.starts_N.tolist()
    return data


def pack_tensors(tensors: Mapping[str, Tensor], dtype: str = "float16") -> tuple[bytes, dict[str, Any]]:
    """Return the little-endian numbers of tensors, and where each begins, in numbers, with its shape.

    Tied ones share one place.
    """
    places: dict[str, Any] = {}
    kept: dict[tuple[int, ...], dict[str, Any]] = {}
    parts, offset = [], 0
    for name, tensor in tensors.items():
        key = (tensor.data_ptr(), *tensor.shape)
        if key not in kept:
            kept[key] = {"offset": offset, "shape": list(tensor.shape)}
            parts.append(tensor.detach().cpu().float().numpy().astype(f"<{np.dtype(dtype).str[1:]}").tobytes())
            offset += tensor.numel()
        places[name] = kept[key]
    return b"".join(parts), places


def list_tensors(run: Run) -> dict[str, Tensor]:
    """Return what the page multiplies by: all parameters of the layers, and the tables of the schemes.

    They have the names of the state dict without ``model.``, but the stack of a language model is called ``encoder``.
    The table of a side's scheme is called ``encoder.table`` or ``decoder.table``.
    """
    model, config = run.model.transformer, run.model.config.transformer_config
    tensors: dict[str, Tensor] = {
        name: tensor for name, tensor in model.named_parameters(remove_duplicate=False) if ".schemes." not in name
    }
    for side in list_stacks(config).values():
        parameter = {"learned": "table_LP", "t5": "table_HN"}.get(config.get_position_config(side).scheme)
        if parameter:
            tensors[f"{side}.table"] = getattr(model.get_stack(side).schemes.at_input, parameter)
    # A learned scale of the tokens, which has no axes, is told as a number, with the rules.
    tensors = {name: tensor for name, tensor in tensors.items() if tensor.dim()}
    if config.architecture != "decoder":
        return tensors
    return {name.replace("decoder.", "encoder.", 1): tensor for name, tensor in tensors.items()}


@contextmanager
@torch.no_grad()
def hold_packed(run: Run) -> Iterator[None]:
    """Round the weights inside the block as a page holds them, so that a run counts what a page counts.

    Where two tokens are nearly as likely, weights of half precision write another text than whole ones.
    """
    tensors = list(list_tensors(run).values())
    trained = [tensor.detach().clone() for tensor in tensors]
    try:
        for tensor in tensors:
            tensor.copy_(tensor.to(torch.float16))
        yield
    finally:
        for tensor, values in zip(tensors, trained, strict=True):
            tensor.copy_(values)


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


def _list_sizes(run: Run, config: TransformerConfig) -> dict[str, Any]:
    """Return the sizes of a model as the page names them; a language model has the page's encoder alone."""
    is_decoder = config.architecture == "decoder"
    return {
        "kind": config.architecture,
        "dModel": config.d_model,
        "heads": config.num_heads,
        "headDim": config.resolved_head_dim,
        "dFf": config.d_ff,
        "encoderLayers": config.decoder_layers if is_decoder else config.encoder_layers,
        "decoderLayers": 0 if is_decoder else config.decoder_layers,
        "norm": config.norm,
        "vocabulary": config.vocab_size,
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
    }


def _list_rules(run: Run, config: TransformerConfig) -> dict[str, Any]:
    """Return how a model computes, as the page names it."""
    is_decoder = config.architecture == "decoder"
    return {
        "eps": config.norm_eps,
        "normKind": config.norm_kind,
        "preNorm": config.norm == "pre",
        "finalNorm": config.has_final_norm,
        "embeddingNorm": config.embedding_norm,
        "causalEncoder": config.causal_encoder or is_decoder,
        "keyHeads": config.resolved_num_kv_heads,
        "outputScale": config.output_scale,
        "activation": config.activation,
        "gated": config.gated,
        "residual": config.residual,
        "startId": 0 if is_decoder else get_start_token(run.model),
        "endIds": get_end_tokens(run.model),
    }


def describe_model(
    run: Run, name: str, label: str, task: str, pairs: Sequence[Pair], dtype: str = "float16"
) -> ExplorerModel:
    """Return a run's model with held-out pairs. ``name`` is its key on the page; ``dtype`` that of its weights there.

    Raises UsageError with every reason for which it does not run in a page.
    """
    check_support(run)
    tensors, most = list_tensors(run), float(np.finfo(dtype).max)
    large = [key for key, tensor in tensors.items() if not float(tensor.detach().abs().max()) <= most]
    if large:
        raise UsageError(
            f"a page holds weights in {dtype}, up to {most:,.0f}, and those of {join_words(large)} are larger or no "
            "numbers"
        )
    weights, places = pack_tensors(tensors, dtype)
    config: TransformerConfig = run.model.config.transformer_config
    tokenizers, stacks, is_decoder = run.tokenizers, list_stacks(config), config.architecture == "decoder"
    # A language model has the page's encoder alone.
    schemes, applicable = {"decoder": _NO_SCHEME}, {"decoder": list[str]()}
    token_scales, attention_scales = {"decoder": 1.0}, {"decoder": 1.0}
    scale = config.attention_scale
    attention_scales["cross"] = config.resolved_head_dim**-0.5 if scale is None else scale
    for side, own in stacks.items():
        stack = run.model.transformer.get_stack(own)
        schemes[side], applicable[side] = describe_scheme(run, own), list_applicable(run, own)
        token_scales[side] = read_token_scale(run, own)
        # As the model itself chooses it for the self-attention of a side.
        attention_scales[side] = cast(Block, stack.blocks[0]).attention.choose_scale(stack.schemes.at_input)
    data = {
        "id": name,
        "label": label,
        "task": task,
        "config": _list_sizes(run, config),
        "rules": {**_list_rules(run, config), "tokenScale": token_scales, "attentionScale": attention_scales},
        "schemes": schemes,
        "applicable": applicable,
        "tokens": describe_tokens(tokenizers.source, config.get_vocabulary_size(stacks["encoder"])),
        "targetTokens": None if tokenizers.shared else describe_tokens(tokenizers.target, config.vocab_size),
        # The texts of a language model do not end.
        "tokenizer": read_rules(tokenizers.source, ends=not is_decoder),
        "targetTokenizer": read_rules(tokenizers.target, ends=not is_decoder),
        "heldOut": [{"source": pair.source, "target": pair.target} for pair in pairs],
        "tensors": places,
        "weights": {"element": f"explorer-weights-{name}", "type": dtype},
    }
    return ExplorerModel(data, weights)


MOST_ROWS = 512
"""The most rows of a table, which is as far as the page draws one."""
MOST_CELLS = 260_000
"""The most numbers of a table: a wide one is cut to fewer rows."""
MOST_WEIGHTS = 1_500_000
"""The most attention weights, of all heads in all sentences together."""
_LOUD = ("positions", "offset", "shuffledRows", "loudness")
_APPLICABLE: Mapping[str, tuple[str, ...]] = {
    "learned": _LOUD,
    "sinusoidal": (*_LOUD, "base", "stoppedHand", "sineOnly"),
    "rope": ("positions", "offset", "base", "stoppedHand"),
    "bias": ("loudness",),
    "none": (),
}
"""The controls of the page that act on each form of position."""


def record_model(subject: Subject, name: str, label: str, texts: Sequence[str], reason: str) -> ExplorerModel:
    """Return what a page shows of a model that it does not run; ``reason`` is a sentence that says why it does not.

    Raises UsageError where neither positions nor attention can be shown, for a text that cannot be read, and for more
    attention than a page holds; and what ``capture`` raises.
    """
    sentences = encode_sentences(subject, texts, option="--text")
    captures = [
        capture(subject.model, subject.forward, torch.tensor([sentence.ids]), ordinary_T=sentence.ordinary_T)
        for sentence in sentences
    ]
    for taken in captures:
        if not taken.layers:
            raise UsageError(f"the attention of {subject.name} cannot be recorded: {taken.unread_reason}")
    attention = [_read_attention(taken) for taken in captures]
    kernels = None if not captures else _read_kernels(max(captures, key=lambda taken: taken.length))
    scheme, table = _read_positions(subject, kernels)
    if scheme["name"] == "none" and not sentences:
        raise UsageError(
            f"there is nothing to show of {subject.name}: {subject.mechanism_sentence[:-1].lower()}; give sentences "
            '(--text "...") to record its attention'
        )
    arrays = {f"sentence.{index}": weights for index, weights in enumerate(attention)}
    arrays |= {key: values for key, values in (("table", table), ("kernels", kernels)) if values is not None}
    weights, places = pack_tensors(arrays)
    layers, heads = attention[0].shape[:2] if attention else (0, subject.num_heads)
    sizes = {
        "kind": "recorded",
        # The width of the picture of the positions: two channels for each hand.
        "dModel": 2 * len(scheme["frequencies"]) or (64 if table is None else table.shape[1]),
        "heads": heads,
        "headDim": 0,
        "dFf": 0,
        "encoderLayers": layers,
        "decoderLayers": 0,
        "norm": "pre",
        "vocabulary": subject.vocabulary_size or 0,
        "parameters": subject.count_parameters(),
    }
    shown = []
    for sentence in sentences:
        rows = zip(sentence.ids, sentence.tokens, sentence.ordinary_T.tolist(), strict=True)
        tokens = [{"id": number, "text": text, "special": not usual} for number, text, usual in rows]
        shown.append({"text": sentence.text, "tokens": tokens})
    data = {
        "id": name,
        "label": label,
        "task": subject.mechanism_sentence,
        "reason": reason,
        "config": sizes,
        "scheme": scheme,
        "applicable": {"encoder": list(_APPLICABLE[scheme["name"]]), "decoder": []},
        "sentences": shown,
        "tensors": places,
        "weights": {"element": f"explorer-weights-{name}", "type": "float16"},
    }
    return ExplorerModel(data, weights)


def _read_attention(taken: Capture) -> Float[Tensor, "L H T T"]:
    """Return the weights of every head. Raises UsageError where layers differ in heads, or for too many weights."""
    layers = [layer.replay(layer.inputs_NTD).weights_BHST[0].detach().cpu().float() for layer in taken.layers]
    shapes = {tuple(layer.shape) for layer in layers}
    if len(shapes) > 1:
        raise UsageError(f"its layers have different numbers of heads ({sorted(shapes)}), and the page shows one grid")
    weights_LHTT = torch.stack(layers)
    if weights_LHTT.numel() > MOST_WEIGHTS:
        raise UsageError(
            f"a sentence of {taken.length} tokens has {weights_LHTT.numel():,} attention weights in this model, and a "
            f"page holds {MOST_WEIGHTS:,}; give a shorter one (--text)"
        )
    return weights_LHTT


def _read_kernels(taken: Capture) -> Float[Tensor, "L H D"] | None:
    """Return what each head adds to a score by distance alone, from T - 1 tokens after the query to T - 1 before it.

    Less what it adds at distance 0, because the softmax sees differences alone (BLOOM adds m·j for the paper's
    m·(j - i)). None where some layer adds nothing, or something that depends on more than the distance. A bias that
    layers share may be added in some of them alone.
    """
    distance_TT = torch.arange(taken.length)[:, None] - torch.arange(taken.length)
    kernels = []
    for layer in taken.layers:
        call = layer.replay(layer.inputs_NTD)
        bias_HTT = layer.compute_bias(call)[0].detach().cpu().float()
        bias_HTT = bias_HTT - bias_HTT.diagonal(dim1=-2, dim2=-1)[..., None]
        mask_TT = call.mask_BHST[0].all(0).cpu()
        kernel_HD = torch.zeros(len(bias_HTT), 2 * taken.length - 1)
        for distance in range(1 - taken.length, taken.length):
            pairs_TT = (distance_TT == distance) & mask_TT
            if not bool(pairs_TT.any()):
                continue
            values_HP = bias_HTT[:, pairs_TT]
            if float((values_HP - values_HP[:, :1]).abs().max()) > 1e-2:
                return None
            kernel_HD[:, distance + taken.length - 1] = values_HP.mean(1)
        kernels.append(kernel_HD)
    return torch.stack(kernels) if any(bool(kernel_HD.any()) for kernel_HD in kernels) else None


def _read_positions(subject: Subject, kernels: Tensor | None) -> tuple[dict[str, Any], Tensor | None]:
    """Return the scheme as the page computes it, and its table."""
    tables = subject.read_tables()
    scheme: dict[str, Any] = {"name": "none", "options": {}, "combine": "add", "frequencies": []}
    if tables is not None:
        rows_ND = tables.positions_ND[: min(MOST_ROWS, max(8, MOST_CELLS // tables.positions_ND.shape[1]))]
        hands = read_exact_hands(rows_ND)
        if not hands.periods or hands.zero_pairs:
            return scheme | {"name": "learned"}, rows_ND
        layout = "interleaved" if hands.pairs[0][1] == 1 else "half"
        frequencies = [2 * math.pi / period for period in hands.periods]
        amplitude = float(rows_ND[:, hands.pairs[0]].norm(dim=-1).mean())
        options = {"layout": layout, "amplitude": amplitude, **_find_base(frequencies)}
        return scheme | {"name": "sinusoidal", "options": options, "frequencies": frequencies}, rows_ND
    # Radians per position of each rotating pair, in the first layer that has any.
    own = (module.frequencies() for module in subject.model.modules() if isinstance(module, RoPE))
    buffers = subject.model.named_buffers()
    theirs = (buffer for name, buffer in buffers if name.endswith("inv_freq") and "original" not in name)
    frequencies = next(chain(own, theirs), torch.zeros(0)).detach().flatten().tolist()
    if frequencies:
        layout = "interleaved" if subject.interleaved else "half"
        options = {"layout": layout, **_find_base(frequencies)}
        return scheme | {"name": "rope", "options": options, "frequencies": frequencies}, None
    return scheme | {"name": "none" if kernels is None else "bias"}, None


def _find_base(frequencies: Sequence[float]) -> dict[str, float]:
    """Return the base whose geometric progression the frequencies are, b^(-i/n); nothing where they are another."""
    count = len(frequencies)
    if count < 2 or frequencies[1] <= 0:
        return {}
    base = (frequencies[0] / frequencies[1]) ** count
    expected = [base ** (-index / count) for index in range(count)]
    alike = all(math.isclose(a, b, rel_tol=1e-2) for a, b in zip(frequencies, expected, strict=True))
    return {"base": float(f"{base:.4g}")} if alike and base > 1 else {}
