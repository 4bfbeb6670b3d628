"""A model that does not run in a page: where position enters it, as numbers, and its attention in a few sentences.

The page computes on the first and shows the second as it was recorded here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from clockhands.errors import UsageError
from clockhands.exploring.model_data import ExplorerModel, pack_tensors
from clockhands.inspection.estimators.hands import read_exact_hands
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.sentences import encode_sentences
from clockhands.models.subject import Subject
from clockhands.schemes import RoPE
from clockhands.shapes import Float, Tensor

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
    frequencies = _read_rotation(subject)
    if frequencies:
        layout = "interleaved" if getattr(subject, "interleaved", False) else "half"
        options = {"layout": layout, **_find_base(frequencies)}
        return scheme | {"name": "rope", "options": options, "frequencies": frequencies}, None
    return scheme | {"name": "none" if kernels is None else "bias"}, None


def _read_rotation(subject: Subject) -> list[float]:
    """Return the radians per position of each rotating pair: of the first layer that has any."""
    for module in subject.model.modules():
        if isinstance(module, RoPE):
            own: list[float] = module.frequencies().detach().tolist()
            return own
    for name, buffer in subject.model.named_buffers():
        if name.endswith("inv_freq") and "original" not in name:
            theirs: list[float] = buffer.detach().double().flatten().tolist()
            return theirs
    return []


def _find_base(frequencies: Sequence[float]) -> dict[str, float]:
    """Return the base whose geometric progression the frequencies are, b^(-i/n); nothing where they are another."""
    count = len(frequencies)
    if count < 2 or frequencies[1] <= 0:
        return {}
    base = (frequencies[0] / frequencies[1]) ** count
    expected = [base ** (-index / count) for index in range(count)]
    alike = all(math.isclose(a, b, rel_tol=1e-2) for a, b in zip(frequencies, expected, strict=True))
    return {"base": float(f"{base:.4g}")} if alike and base > 1 else {}
