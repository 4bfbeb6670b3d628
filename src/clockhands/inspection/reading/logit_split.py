"""Attention logits split exactly into the parts of content, position and constant, and shares of their variance.

The input of an attention layer at position i of a text is written x = μ + pos_i + content: μ is the mean over all texts
and positions, pos_i what the mean over texts at that position adds to it, and content what this text adds to both. The
layer is run on μ, on μ + pos and on x; the queries and keys of a part are what it adds to those of the parts before it.
Between the input and the queries everything is affine (norms of queries and keys are frozen at those of the real
input), so that the order of the parts plays no role. Hence

    logits_ij = Σ_a Σ_b s · q_a,i · k_b,j + E_ij        a, b in {constant, position, content}

with E what the layer adds itself (ALiBi, T5's bias, DeBERTa's and Transformer-XL's terms), split the same way. The
constant part carries μ and every bias of the projections. μ and pos are estimated from the other half of the texts
(for one text, from all others): from the same N texts, noise would pass as position (about 1/N of the variance).

Where a scheme computes positions from the tokens (RePo, PaTH and others), these are frozen at those of the real input,
and queries and keys are then affine in it again. What remains is the term ``data-dependent``: the logits of the
constant part at the positions of this text, less those at the positions that μ alone would get. Where a scheme rewrites
rows of logits (CoPE and others), what it changes counts as added, and that term is what the text's content changes of
all that is added.

Source: the four terms of Ke et al. 2021 (TUPE, eq. 6) with a third part, in which layer norm and biases have their
place; constant–content is the u term of Dai et al. 2019 (Transformer-XL), whose v term, of the distance, is in ``added,
constant``.

In names of tensors ``N`` are texts, ``n`` some of them, ``t`` the terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.inspection.reading.attention_hooks import ComputedAttention
from clockhands.inspection.reading.layer import FrozenNormsAndPositions, Layer, ProductBias
from clockhands.shapes import Bool, Float, Int, Tensor

PARTS = ("content", "position", "constant")
PRODUCTS = tuple(f"{query}–{key}" for query in PARTS for key in PARTS)
ADDED = tuple(f"added, {part}" for part in PARTS)
DATA_DEPENDENT = "data-dependent"
TERMS = (*PRODUCTS, *ADDED, DATA_DEPENDENT)
"""The names of all terms: query part – key part; what the layer adds to the logits, by part; and what changes where
positions, or what is added, are computed from the tokens. An axis ``t`` of a tensor has one entry for each."""


@dataclass(frozen=True)
class LogitParts:
    """Queries, keys and added logits of each part for one batch, with the real attention that they add up to.

    ``data_dependent`` is the term of that name, None where there is none. Where the scheme computes positions from the
    tokens, ``constant_product`` is the constant–constant term at the positions that μ alone would get, and
    ``compute_product_bias`` returns the part of the scheme's bias that depends on queries and keys (PaTH).
    """

    q: dict[str, Float[Tensor, "B H S K"]]
    k: dict[str, Float[Tensor, "B H T K"]]
    added: dict[str, Float[Tensor, "B H S T"]]
    real: ComputedAttention
    scale: float
    constant_product: Float[Tensor, "B H S T"] | None = None
    data_dependent: Float[Tensor, "B H S T"] | None = None
    compute_product_bias: ProductBias | None = None

    def compute_term(self, name: str) -> Float[Tensor, "B H S T"]:
        """Return one of ``TERMS``, in logits."""
        if name == DATA_DEPENDENT:
            return torch.zeros_like(self.real.logits_BHST) if self.data_dependent is None else self.data_dependent
        if name in ADDED:
            return self.added[name.removeprefix("added, ")]
        if name == "constant–constant" and self.constant_product is not None:
            return self.constant_product
        query, key = name.split("–")
        product = self.scale * self.q[query] @ self.k[key].transpose(-1, -2)
        if self.compute_product_bias is not None:
            product = product + self.compute_product_bias(self.q[query], self.k[key], self.scale)
        return product

    def measure_error(self) -> float:
        """Return the largest deviation of the sum of all terms from the real logits, relative to the largest logit."""
        if self.constant_product is not None:
            total = torch.stack([self.compute_term(name) for name in TERMS]).sum(0)
        else:
            # Σ_ab q_a·k_b = (Σ_a q_a)·(Σ_b k_b): one product in place of nine.
            q, k = torch.stack([*self.q.values()]).sum(0), torch.stack([*self.k.values()]).sum(0)
            total = self.scale * q @ k.transpose(-1, -2)
            for added in (*self.added.values(), self.data_dependent):
                if added is not None:
                    total += added
        logits = self.real.logits_BHST.masked_fill(~self.real.mask_BHST, 0.0)
        deviation = (total.masked_fill(~self.real.mask_BHST, 0.0) - logits).abs().max()
        return float(deviation / logits.abs().max().clamp_min(1e-30))


def compute_means(layer: Layer, rows: Int[Tensor, " n"]) -> tuple[Float[Tensor, "1 T D"], Float[Tensor, "1 T D"]]:
    """Return μ (the same at every position) and pos of these texts."""
    by_position = layer.inputs_NTD[rows].double().mean(0, keepdim=True)
    mean = by_position.mean(1, keepdim=True)
    dtype = layer.inputs_NTD.dtype
    return mean.expand_as(by_position).to(dtype), (by_position - mean).to(dtype)


def split_by_batch(layer: Layer, *, crossfit: bool = True) -> Iterator[tuple[Int[Tensor, " n"], LogitParts]]:
    """Yield the parts of the logits, batch by batch, each with the numbers of its texts.

    ``crossfit``: take the means from the other half of the texts; without it, and for one text, from the same ones.
    """
    count = len(layer.inputs_NTD)
    texts = torch.arange(count)
    halves = [texts[0::2], texts[1::2]] if crossfit and count > 1 else [texts]
    for rows, others in zip(halves, reversed(halves), strict=True):
        mean, position = compute_means(layer, others)
        runs = layer.replay(mean), layer.replay(mean + position)
        for batch in rows.split(layer.batch):
            yield batch, _split(layer, layer.inputs_NTD[batch], mean, position, runs)


def split_first_batch(layer: Layer) -> LogitParts:
    """Return the parts of the logits of the first batch, for what is the same in every text: the constant part."""
    return next(split_by_batch(layer))[1]


def split_first_text(layer: Layer) -> LogitParts:
    """Return the parts of the logits of the first text; the means come from all others."""
    mean, position = compute_means(layer, torch.arange(1, len(layer.inputs_NTD)))
    return _split(layer, layer.inputs_NTD[:1], mean, position)


def _split(
    layer: Layer, x: Tensor, mean: Tensor, position: Tensor,
    runs: tuple[ComputedAttention, ComputedAttention] | None = None,
) -> LogitParts:  # fmt: skip
    """Take differences of three runs, on μ, on μ + pos and on x: what each part adds to those before it.

    ``runs``: the first two, where they are known. Where the layer needs that, norms and positions are frozen at those
    of x.
    """
    at_mean, at_both = runs or (layer.replay(mean), layer.replay(mean + position))
    # The positions that μ alone would get: kept apart from those of the real input.
    unfrozen_mean, frozen = at_mean, None
    if layer.needs_freezing:
        frozen = FrozenNormsAndPositions(layer.module, layer.scheme)
        with frozen.record():
            real = layer.replay(x)
        with frozen.apply():
            at_mean, at_both = layer.replay(mean.expand_as(x)), layer.replay((mean + position).expand_as(x))
    else:
        real = layer.replay(x)
    all_runs = (real, at_both, at_mean)
    differences = []
    for of_x, of_both, of_mean in (
        [run.q_BHSK for run in all_runs],
        [run.k_BHTK for run in all_runs],
        [layer.compute_bias(run) for run in all_runs],
    ):
        parts = {"content": of_x - of_both, "position": of_both - of_mean, "constant": of_mean}
        # μ and pos are the same in every text: their parts are expanded to the batch.
        differences.append({name: part.expand(len(of_x), *part.shape[1:]) for name, part in parts.items()})
    q, k, added = differences
    if frozen is not None and layer.locates_tokens:
        bias, zeros = layer.compute_bias(unfrozen_mean), torch.zeros_like(real.logits_BHST)
        product = layer.scale * unfrozen_mean.q_BHSK @ unfrozen_mean.k_BHTK.transpose(-1, -2)
        return LogitParts(
            q, k, {"content": zeros, "position": zeros, "constant": bias.expand_as(zeros)}, real, layer.scale,
            constant_product=product.expand_as(zeros),
            data_dependent=at_mean.logits_BHST - product - bias,
            compute_product_bias=frozen.make_product_bias(),
        )  # fmt: skip
    data_dependent = None
    if layer.rewrites_logits:
        data_dependent, added["content"] = added["content"], torch.zeros_like(added["content"])
    return LogitParts(q, k, added, real, layer.scale, data_dependent=data_dependent)


@dataclass(frozen=True)
class LogitSplit:
    """How the variance of one layer's logits divides over ``TERMS``, text by text.

    ``cov_NHt`` sums term × logit, for each of ``TERMS``, and ``var_NH`` logit², logits centred over the keys of each
    query; ``error`` is the reconstruction error of ``LogitParts.measure_error``, the worst over all texts.
    ``logit_sums_by_offset_HJ`` sums the centred logits of all texts over the pairs of each offset, from key 1-T to T-1
    positions after the query. All are in float64, on the CPU.
    """

    cov_NHt: Float[Tensor, "N H t"]
    var_NH: Float[Tensor, "N H"]
    error: float
    logit_sums_by_offset_HJ: Float[Tensor, "H J"]

    def compute_head_shares(self) -> Float[Tensor, "H t"]:
        """Return the shares of each head. A share can be slightly negative: a covariance can.

        Each row sums to 1; that of a head whose logits are all equal is 0.
        """
        return self.cov_NHt.sum(0) / self.var_NH.sum(0)[:, None].clamp_min(1e-30)

    def compute_layer_shares(self) -> Float[Tensor, " t"]:
        """Return the shares of the layer, all heads pooled: heads with large logits count for more."""
        return self.cov_NHt.sum((0, 1)) / self.var_NH.sum().clamp_min(1e-30)


def centre_logits(logits_BHST: Tensor, included_BHST: Bool[Tensor, "B H S T"]) -> Tensor:
    """Return logits less their mean over the included keys, zero elsewhere: softmax ignores a constant of a row."""
    included = torch.where(included_BHST, logits_BHST, 0.0)
    num_keys = included_BHST.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(included_BHST, included - included.sum(-1, keepdim=True) / num_keys, 0.0)


def split_logits(
    layer: Layer, ordinary_T: Bool[Tensor, " T"], observe: Callable[[ComputedAttention], None] | None = None
) -> LogitSplit:
    """Split the logits of one layer over all texts; only ordinary tokens count as queries and keys.

    ``observe`` is called with the attention of every batch, for whatever else is counted of it.
    """
    length, rows, cov, var = len(ordinary_T), [], [], []
    sums_HJ, error = torch.zeros(()), 0.0
    positions = torch.arange(length)
    offset_TT = positions - positions[:, None] + length - 1  # 0 on the diagonal T-1 below the main one
    for batch, parts in split_by_batch(layer):
        if observe is not None:
            observe(parts.real)
        logits = centre_logits(parts.real.logits_BHST, parts.real.mark_ordinary_pairs(ordinary_T))
        rows.append(batch)
        cov.append(_compute_covariances(parts, logits).cpu())
        var.append(logits.double().square().sum((-1, -2)).cpu())
        sum_HTT = logits.sum(0, dtype=torch.float64).cpu()
        by_offset_HJ = sum_HTT.new_zeros(len(sum_HTT), 2 * length - 1)
        sums_HJ = sums_HJ + by_offset_HJ.index_add_(1, offset_TT.flatten(), sum_HTT.flatten(1))
        error = max(error, parts.measure_error())
    order = torch.cat(rows).argsort()  # the halves of the texts came one after the other
    return LogitSplit(torch.cat(cov)[order], torch.cat(var)[order], error, sums_HJ)


def _compute_covariances(parts: LogitParts, logits: Tensor) -> Tensor:
    """Return Σ_ij term · logit for all terms, B × H × t, in float64."""
    if parts.constant_product is not None:  # tokens choose positions: each term is formed as a matrix
        return torch.stack([(parts.compute_term(name) * logits).double().sum((-1, -2)) for name in TERMS], dim=-1)
    columns = []
    weighted_keys = {key: logits @ parts.k[key] for key in PARTS}
    for query in PARTS:
        for key in PARTS:
            # Σ_ij q_i·k_j L_ij = Σ_i q_i · (L k)_i, so that no product of two tokens is formed.
            column = (parts.q[query] * weighted_keys[key]).sum((-1, -2), dtype=torch.float64)
            columns.append(parts.scale * column)
    for term in (*(parts.added[part] for part in PARTS), parts.data_dependent):
        # Most terms that a layer could add are zero, and no product with them is formed.
        if term is None or not bool(term.any()):
            columns.append(torch.zeros_like(columns[0]))
        else:
            columns.append((term * logits).sum((-1, -2), dtype=torch.float64))
    return torch.stack(columns, dim=-1)


DISTANCE = "distance (curve and bias)"
CONTENT = "content–content"
PREFERRED_TOKENS = "preferred tokens (constant–content)"
PREFERRED_POSITIONS = "preferred positions (constant–position)"
TOKENS_CHOOSE = "tokens choose positions (data-dependent)"
"""Names of the groups that single measures ask for."""
TERM_GROUPS: dict[str, tuple[str, ...]] = {
    "position–position": ("position–position",),
    PREFERRED_POSITIONS: ("constant–position", "position–constant", "added, position"),
    DISTANCE: ("constant–constant", "added, constant"),
    CONTENT: ("content–content",),
    "content–position": ("content–position",),
    "position–content": ("position–content",),
    PREFERRED_TOKENS: ("constant–content", "content–constant"),
    "content × distance": ("added, content",),
    TOKENS_CHOOSE: (DATA_DEPENDENT,),
}
"""The terms of each group, by its name in figures; those that no token changes come first, and so stand together. Names
are query–key: content–position is a query's content that attends to positions. Preferred tokens attract every query
alike, by their own content and the constant part of the query; the reverse of that term goes with it. Preferred
positions are the same of positions. "Distance" is what no text changes: the constant–constant term, and what the
layer adds to all texts; it is a function of the distance where the scheme is one."""

POSITIONAL = ("position–position", PREFERRED_POSITIONS, DISTANCE)
"""The groups that do not depend on which tokens a text has."""
ROUNDING = 1e-6
"""Shares of the logits below this are rounding."""


def sum_groups(shares_t: Float[Tensor, " t"]) -> dict[str, float]:
    """Return the shares of ``TERMS`` added up into ``TERM_GROUPS``."""
    return {name: sum(float(shares_t[TERMS.index(term)]) for term in terms) for name, terms in TERM_GROUPS.items()}


def compute_positional_share(shares_t: Float[Tensor, " t"]) -> float:
    """Return the share of the groups in which position and distance act alone, whatever the tokens are."""
    groups = sum_groups(shares_t)
    return sum(groups[name] for name in POSITIONAL)


def compute_group_interval(split: LogitSplit, *groups: str, head: int | None = None) -> tuple[float, float]:
    """Return the 95 % interval of the share that these ``TERM_GROUPS`` have of the logits of a layer, or of one head.

    A text counts twice in a term of content or position: in its own logits, and in the means by position with which the
    logits of the other half are split. To first order both effects are equal, for the terms are bilinear. The texts are
    drawn with these means held fixed, which shows one of the two, so that what such terms add is taken twice.
    """
    heads = slice(None) if head is None else slice(head, head + 1)
    cov_Nt, var_N = split.cov_NHt[:, heads].sum(1), split.var_NH[:, heads].sum(1)
    numerator_N = torch.zeros_like(var_N)
    for name in groups:
        cov_N = cov_Nt[:, [TERMS.index(term) for term in TERM_GROUPS[name]]].sum(1)
        if name not in (DISTANCE, TOKENS_CHOOSE):
            cov_N = 2 * cov_N - var_N * cov_N.sum() / var_N.sum().clamp_min(1e-30)
        numerator_N = numerator_N + cov_N
    return bootstrap_ratio(numerator_N, var_N)
