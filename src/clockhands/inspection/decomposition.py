"""Attention logits split exactly into content, position and constant.

The input of an attention layer on text n at place t is written x = μ + pos_t + rest: the mean over everything, what the
place adds to it, and what this text adds to both. Between this input and the logits everything is affine (a norm of
queries or keys is held at what it did to the real input), so the layer run on each part alone, less what it gives to
zero, yields queries and keys that add up to the real ones. Hence

    logits_ij = Σ_a Σ_b s · q_a,i · k_b,j + E_ij        a, b in {constant, position, content}

with E what the layer adds itself (ALiBi, T5's bias, DeBERTa's and Transformer-XL's terms), split the same way. The
constant carries μ and every bias of the projections. μ and pos come from the other half of the texts: estimated from
the same ones, noise would pass as position (about one part in the number of texts).

Source: the four terms of Ke et al. 2021 (TUPE, eq. 6) with a third part, so that layer norm and biases have a place;
constant–content and constant–position are the u and v terms of Dai et al. 2019 (Transformer-XL).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from clockhands.inspection.calls import AttentionCall
from clockhands.inspection.capture import Layer
from clockhands.shapes import Bool, Float, Int, Tensor

PARTS = ("content", "position", "constant")
PRODUCTS = tuple(f"{query}–{key}" for query in PARTS for key in PARTS)
ADDED = tuple(f"added, {part}" for part in PARTS)
TERMS = PRODUCTS + ADDED
"""The names of all terms: query part – key part, then what the layer adds itself to the logits."""


@dataclass(frozen=True)
class Parts:
    """Queries, keys and added logits of each part, for one batch, with the real logits they sum to."""

    q: dict[str, Float[Tensor, "B H S K"]]
    k: dict[str, Float[Tensor, "B H T K"]]
    added: dict[str, Float[Tensor, "B H S T"]]
    real: AttentionCall
    scale: float

    def term(self, name: str) -> Float[Tensor, "B H S T"]:
        """One of ``TERMS``, in logits."""
        if name in ADDED:
            return self.added[name.removeprefix("added, ")]
        query, key = name.split("–")
        return self.scale * self.q[query] @ self.k[key].transpose(-1, -2)

    def total(self) -> Float[Tensor, "B H S T"]:
        """The sum of all terms."""
        q, k = sum(self.q.values()), sum(self.k.values())
        assert isinstance(q, Tensor) and isinstance(k, Tensor)
        total = self.scale * q @ k.transpose(-1, -2)
        for added in self.added.values():
            total += added
        return total

    def error(self) -> float:
        """The largest deviation of the sum from the real logits, relative to the largest logit."""
        logits = self.real.logits_BHST.masked_fill(~self.real.allowed_BHST, 0.0)
        missed = (self.total().masked_fill_(~self.real.allowed_BHST, 0.0) - logits).abs().max()
        return float(missed / logits.abs().max().clamp_min(1e-30))


@dataclass(frozen=True)
class Split:
    """How the variance of one layer's logits divides over ``TERMS``, text by text.

    ``cov_NHt`` sums term × logit and ``var_NH`` logit², logits centred over the keys of each query; ``error`` is the
    reconstruction error of ``Parts.error``, the worst over all texts.
    """

    cov_NHt: Float[Tensor, "N H t"]
    var_NH: Float[Tensor, "N H"]
    error: float

    def heads(self) -> Float[Tensor, "H t"]:
        """Shares of each head; each row sums to 1. A share can be slightly negative: a covariance can."""
        return self.cov_NHt.sum(0) / self.var_NH.sum(0)[:, None].clamp_min(1e-30)

    def layer(self) -> Float[Tensor, " t"]:
        """Shares of the layer: all heads' logits pooled, so that heads with large logits count for more."""
        return self.cov_NHt.sum((0, 1)) / self.var_NH.sum().clamp_min(1e-30)

    def interval(self, term: str, draws: int = 400) -> tuple[float, float]:
        """The 95 % interval of the layer's share of one term, by resampling texts."""
        generator = torch.Generator().manual_seed(0)
        count = len(self.var_NH)
        picks = torch.randint(count, (draws, count), generator=generator)
        cov = self.cov_NHt[..., TERMS.index(term)].sum(1)[picks].sum(1)
        shares = (cov / self.var_NH.sum(1)[picks].sum(1).clamp_min(1e-30)).sort().values
        return float(shares[int(0.025 * draws)]), float(shares[int(0.975 * draws) - 1])


def means(layer: Layer, rows: Int[Tensor, " n"]) -> tuple[Float[Tensor, "1 T D"], Float[Tensor, "1 T D"]]:
    """μ (the same at every place) and pos, from these texts."""
    place = layer.inputs_NTD[rows].double().mean(0, keepdim=True)
    mean = place.mean(1, keepdim=True)
    kind = layer.inputs_NTD.dtype
    return mean.expand_as(place).to(kind), (place - mean).to(kind)


def parts(layer: Layer, *, crossfit: bool = True) -> Iterator[tuple[Int[Tensor, " n"], Parts]]:
    """Split the logits of every text, batch by batch, with the texts each batch holds."""
    count = len(layer.inputs_NTD)
    everything = torch.arange(count)
    folds = [everything[0::2], everything[1::2]] if crossfit and count > 1 else [everything]
    for here, rows in enumerate(folds):
        mean, place = means(layer, folds[len(folds) - 1 - here])
        once = None if layer.normalises else _fixed(layer, mean, place)
        for batch in rows.split(layer.batch):
            yield batch, _parts(layer, layer.inputs_NTD[batch], mean, place, once)


def _fixed(layer: Layer, mean: Tensor, place: Tensor) -> dict[str, AttentionCall]:
    """What does not depend on the text, run once."""
    return {"zero": layer.replay(torch.zeros_like(mean)), "mean": layer.replay(mean), "place": layer.replay(place)}


def _parts(layer: Layer, x: Tensor, mean: Tensor, place: Tensor, once: dict[str, AttentionCall] | None) -> Parts:
    inputs = {"rest": x - mean - place}
    if once is None:
        inputs |= {"zero": torch.zeros_like(x), "mean": mean.expand_as(x), "place": place.expand_as(x)}
    real, runs = layer.parts(x, inputs)
    runs = runs if once is None else {**once, **runs}
    zero = runs["zero"]
    zero_added = layer.bias(zero)
    q = {"content": runs["rest"].q_BHSK - zero.q_BHSK, "position": runs["place"].q_BHSK - zero.q_BHSK}
    k = {"content": runs["rest"].k_BHTK - zero.k_BHTK, "position": runs["place"].k_BHTK - zero.k_BHTK}
    added = {
        "content": layer.bias(runs["rest"]) - zero_added,
        "position": layer.bias(runs["place"]) - zero_added,
        "constant": layer.bias(runs["mean"]),
    }
    q["constant"], k["constant"] = runs["mean"].q_BHSK, runs["mean"].k_BHTK
    return Parts(_expand(q, len(x)), _expand(k, len(x)), _expand(added, len(x)), real, layer.scale)


def _expand(tensors: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    return {name: tensor.expand(count, *tensor.shape[1:]) for name, tensor in tensors.items()}


def centred(logits_BHST: Tensor, counted_BHST: Bool[Tensor, "B H S T"]) -> Tensor:
    """Logits less their mean over the keys that count, zero elsewhere: softmax does not see a row's constant."""
    kept = torch.where(counted_BHST, logits_BHST, 0.0)
    number = counted_BHST.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(counted_BHST, kept - kept.sum(-1, keepdim=True) / number, 0.0)


def split(layer: Layer, ordinary_T: Bool[Tensor, " T"]) -> Split:
    """Decompose one layer over all texts; only ordinary tokens count as queries and keys."""
    count, error = len(layer.inputs_NTD), 0.0
    cov = var = torch.empty(0)
    for rows, batch in parts(layer):
        ordinary = ordinary_T.to(batch.real.logits_BHST.device)
        counted = batch.real.allowed_BHST & ordinary[:, None] & ordinary
        logits = centred(batch.real.logits_BHST, counted)
        if not cov.numel():
            cov = torch.zeros(count, logits.shape[1], len(TERMS), dtype=torch.float64)
            var = torch.zeros(count, logits.shape[1], dtype=torch.float64)
        cov[rows] = _covariances(batch, logits).cpu()
        var[rows] = logits.double().square().sum((-1, -2)).cpu()
        error = max(error, batch.error())
    return Split(cov, var, error)


def _with_logits(added: Tensor, logits: Tensor) -> Tensor:
    """Σ_ij added · logit per text and head; most layers add nothing."""
    if not bool(added.any()):
        return torch.zeros(logits.shape[:2], dtype=torch.float64, device=logits.device)
    return (added.double() * logits.double()).sum((-1, -2))


def _covariances(batch: Parts, logits: Tensor) -> Tensor:
    """Σ_ij term · logit for all terms, B × H × t; q·k is never formed: Σ_ij q_i·k_j L_ij = Σ_i q_i · (L k)_i."""
    seen = {key: logits @ batch.k[key] for key in PARTS}
    columns = [
        batch.scale * (batch.q[query].double() * seen[key].double()).sum((-1, -2)) for query in PARTS for key in PARTS
    ]
    columns += [_with_logits(batch.added[part], logits) for part in PARTS]
    return torch.stack(columns, dim=-1)
