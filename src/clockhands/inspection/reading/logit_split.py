"""Attention logits split exactly into content, position and constant.

The input of an attention layer on text n at place t is written x = μ + pos_t + rest: the mean over everything, what the
place adds to it, and what this text adds to both. The layer is run on μ, on μ + pos and on x; queries and keys of a
part are what it adds to those before it. Between this input and the queries everything is affine (a norm of queries or
keys is held at what it did to the real input), so that the order plays no role. Hence

    logits_ij = Σ_a Σ_b s · q_a,i · k_b,j + E_ij        a, b in {constant, position, content}

with E what the layer adds itself (ALiBi, T5's bias, DeBERTa's and Transformer-XL's terms), split the same way. The
constant carries μ and every bias of the projections. μ and pos come from the other half of the texts: estimated from
the same ones, noise would pass as position (about one part in the number of texts).

Where the words themselves say where they stand (RePo, CARoPE, Selective RoPE, PaTH, Forgetting), their places are held
at the real input's, and the products are then linear again. What remains is named ``data-dependent``: the constant
part's logits at the places that these words chose, less those at the places that μ would choose.

Source: the four terms of Ke et al. 2021 (TUPE, eq. 6) with a third part, so that layer norm and biases have a place;
constant–content and constant–position are the u and v terms of Dai et al. 2019 (Transformer-XL).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from clockhands.inspection.reading.attention_call import AttentionCall
from clockhands.inspection.reading.held_norms import HeldNorms
from clockhands.inspection.reading.layer import Layer
from clockhands.shapes import Bool, Float, Int, Tensor

PARTS = ("content", "position", "constant")
PRODUCTS = tuple(f"{query}–{key}" for query in PARTS for key in PARTS)
ADDED = tuple(f"added, {part}" for part in PARTS)
DATA = "data-dependent"
TERMS = (*PRODUCTS, *ADDED, DATA)
"""The names of all terms: query part – key part, what the layer adds itself to the logits, and what places that the
words chose themselves add to them."""


@dataclass(frozen=True)
class Parts:
    """Queries, keys and added logits of each part, for one batch, with the real logits they sum to.

    Where words choose their places, ``kernel`` is the constant's product at the places that μ would choose, ``data``
    the term of that name, and ``pairs`` what the layer adds for any queries and keys (PaTH).
    """

    q: dict[str, Float[Tensor, "B H S K"]]
    k: dict[str, Float[Tensor, "B H T K"]]
    added: dict[str, Float[Tensor, "B H S T"]]
    real: AttentionCall
    scale: float
    kernel: Float[Tensor, "B H S T"] | None = None
    data: Float[Tensor, "B H S T"] | None = None
    pairs: Callable[[Tensor, Tensor], Tensor] | None = None

    def compute_term(self, name: str) -> Float[Tensor, "B H S T"]:
        """One of ``TERMS``, in logits."""
        if name == DATA:
            return torch.zeros_like(self.real.logits_BHST) if self.data is None else self.data
        if name in ADDED:
            return self.added[name.removeprefix("added, ")]
        if name == "constant–constant" and self.kernel is not None:
            return self.kernel
        query, key = name.split("–")
        product = self.scale * self.q[query] @ self.k[key].transpose(-1, -2)
        return product if self.pairs is None else product + self.pairs(self.q[query], self.k[key])

    def sum_terms(self) -> Float[Tensor, "B H S T"]:
        """The sum of all terms."""
        if self.kernel is not None:
            return torch.stack([self.compute_term(name) for name in TERMS]).sum(0)
        q, k = sum(self.q.values()), sum(self.k.values())
        assert isinstance(q, Tensor) and isinstance(k, Tensor)
        total = self.scale * q @ k.transpose(-1, -2)
        for added in self.added.values():
            total += added
        return total if self.data is None else total + self.data

    def measure_error(self) -> float:
        """The largest deviation of the sum from the real logits, relative to the largest logit."""
        logits = self.real.logits_BHST.masked_fill(~self.real.mask_BHST, 0.0)
        missed = (self.sum_terms().masked_fill(~self.real.mask_BHST, 0.0) - logits).abs().max()
        return float(missed / logits.abs().max().clamp_min(1e-30))


@dataclass(frozen=True)
class Split:
    """How the variance of one layer's logits divides over ``TERMS``, text by text.

    ``cov_NHt`` sums term × logit and ``var_NH`` logit², logits centred over the keys of each query; ``error`` is the
    reconstruction error of ``Parts.error``, the worst over all texts. ``offsets_HJ`` sums the centred logits of all
    texts over the pairs of each offset, from key 1-T to T-1 places after the query.
    """

    cov_NHt: Float[Tensor, "N H t"]
    var_NH: Float[Tensor, "N H"]
    error: float
    offsets_HJ: Float[Tensor, "H J"]

    def head_shares(self) -> Float[Tensor, "H t"]:
        """Shares of each head; each row sums to 1. A share can be slightly negative: a covariance can."""
        return self.cov_NHt.sum(0) / self.var_NH.sum(0)[:, None].clamp_min(1e-30)

    def layer_shares(self) -> Float[Tensor, " t"]:
        """Shares of the layer: all heads' logits pooled, so that heads with large logits count for more."""
        return self.cov_NHt.sum((0, 1)) / self.var_NH.sum().clamp_min(1e-30)


def compute_means(layer: Layer, rows: Int[Tensor, " n"]) -> tuple[Float[Tensor, "1 T D"], Float[Tensor, "1 T D"]]:
    """μ (the same at every place) and pos, from these texts."""
    place = layer.inputs_NTD[rows].double().mean(0, keepdim=True)
    mean = place.mean(1, keepdim=True)
    kind = layer.inputs_NTD.dtype
    return mean.expand_as(place).to(kind), (place - mean).to(kind)


def split_batches(layer: Layer, *, crossfit: bool = True) -> Iterator[tuple[Int[Tensor, " n"], Parts]]:
    """Split the logits of every text, batch by batch, with the texts each batch holds."""
    count = len(layer.inputs_NTD)
    everything = torch.arange(count)
    folds = [everything[0::2], everything[1::2]] if crossfit and count > 1 else [everything]
    for here, rows in enumerate(folds):
        mean, place = compute_means(layer, folds[len(folds) - 1 - here])
        alone = (layer.replay(mean), layer.replay(mean + place))
        for batch in rows.split(layer.batch):
            x = layer.inputs_NTD[batch]
            yield (
                batch,
                _held(layer, x, mean, place, alone[0])
                if layer.needs_holding
                else _parts(layer, layer.replay(x), alone),
            )


def _parts(layer: Layer, real: AttentionCall, alone: tuple[AttentionCall, AttentionCall]) -> Parts:
    """Each part is what it adds to those before it: μ, then the place, then the words."""
    mean, both = alone
    added = _steps(layer.bias(mean), layer.bias(both), layer.bias(real))
    data = None
    if layer.rewrites_logits:
        data, added["content"] = added["content"], torch.zeros_like(added["content"])
    q, k = _steps(mean.q_BHSK, both.q_BHSK, real.q_BHSK), _steps(mean.k_BHTK, both.k_BHTK, real.k_BHTK)
    return Parts(q, k, added, real, layer.scale, data=data)


def _steps(mean: Tensor, both: Tensor, real: Tensor) -> dict[str, Tensor]:
    steps = {"content": real - both, "position": both - mean, "constant": mean}
    return {name: step.expand(len(real), *step.shape[1:]) for name, step in steps.items()}


def _held(layer: Layer, x: Tensor, mean: Tensor, place: Tensor, own: AttentionCall) -> Parts:
    """The same with norms and places held at what this text gave them; ``own`` ran on μ alone, with nothing held."""
    frozen = HeldNorms(layer.module, layer.scheme)
    with frozen.record():
        real = layer.replay(x)
    with frozen.applied():
        at_mean, at_both = layer.replay(mean.expand_as(x)), layer.replay((mean + place).expand_as(x))
    split = _parts(layer, real, (at_mean, at_both))
    if not layer.locates_tokens:
        return split
    bias = layer.bias(own)
    kernel = (layer.scale * own.q_BHSK @ own.k_BHTK.transpose(-1, -2)).expand_as(real.logits_BHST)
    nothing = torch.zeros_like(real.logits_BHST)
    return replace(
        split,
        added={"content": nothing, "position": nothing, "constant": bias.expand_as(nothing)},
        kernel=kernel,
        data=at_mean.logits_BHST - kernel - bias,
        pairs=frozen.pairs if layer.scheme is not None and "bias" in layer.scheme.active_hooks() else None,
    )


def centre_logits(logits_BHST: Tensor, counted_BHST: Bool[Tensor, "B H S T"]) -> Tensor:
    """Logits less their mean over the keys that count, zero elsewhere: softmax does not see a row's constant."""
    kept = torch.where(counted_BHST, logits_BHST, 0.0)
    number = counted_BHST.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(counted_BHST, kept - kept.sum(-1, keepdim=True) / number, 0.0)


def split(
    layer: Layer, ordinary_T: Bool[Tensor, " T"], overhear: Callable[[AttentionCall], None] = lambda call: None
) -> Split:
    """Decompose one layer over all texts; only ordinary tokens count as queries and keys.

    ``overhear`` is handed the attention of every batch on the way, for whatever else is to be counted.
    """
    count, error = len(layer.inputs_NTD), 0.0
    cov = var = offsets_HJ = torch.empty(0)
    for rows, batch in split_batches(layer):
        overhear(batch.real)
        counted = batch.real.mark_counted(ordinary_T)
        logits = centre_logits(batch.real.logits_BHST, counted)
        if not cov.numel():
            cov = torch.zeros(count, logits.shape[1], len(TERMS), dtype=torch.float64)
            var = torch.zeros(count, logits.shape[1], dtype=torch.float64)
            offsets_HJ = torch.zeros(logits.shape[1], 2 * logits.shape[-1] - 1, dtype=torch.float64)
        cov[rows] = _covariances(batch, logits).cpu()
        var[rows] = logits.double().square().sum((-1, -2)).cpu()
        offsets_HJ += sum_by_offset(logits.sum(0, dtype=torch.float64)).cpu()
        error = max(error, batch.measure_error())
    return Split(cov, var, error, offsets_HJ)


def sum_by_offset(matrix_HTT: Float[Tensor, "H T T"]) -> Float[Tensor, "H J"]:
    """Sum each diagonal, from the one T-1 below the main one to the one T-1 above it."""
    heads, length, _ = matrix_HTT.shape
    places = torch.arange(length, device=matrix_HTT.device)
    offset_TT = places - places[:, None] + length - 1
    sums_HJ = matrix_HTT.new_zeros(heads, 2 * length - 1)
    return sums_HJ.index_add_(1, offset_TT.flatten(), matrix_HTT.flatten(1))


def _with_logits(term: Tensor | None, logits: Tensor) -> Tensor:
    """Σ_ij term · logit per text and head; most layers add nothing."""
    if term is None or not bool(term.any()):
        return torch.zeros(logits.shape[:2], dtype=torch.float64, device=logits.device)
    return (term * logits).sum((-1, -2), dtype=torch.float64)


def _covariances(batch: Parts, logits: Tensor) -> Tensor:
    """Σ_ij term · logit for all terms, B × H × t; q·k is not formed: Σ_ij q_i·k_j L_ij = Σ_i q_i · (L k)_i."""
    if batch.kernel is not None:
        return torch.stack([_with_logits(batch.compute_term(name), logits) for name in TERMS], dim=-1)
    seen = {key: logits @ batch.k[key] for key in PARTS}
    columns = [
        batch.scale * (batch.q[query] * seen[key]).sum((-1, -2), dtype=torch.float64)
        for query in PARTS
        for key in PARTS
    ]
    columns += [_with_logits(batch.added[part], logits) for part in PARTS] + [_with_logits(batch.data, logits)]
    return torch.stack(columns, dim=-1)
