"""Probes that read a property back out of vectors: ridge regression, and a small network for what is not linear.

Probes are fitted and judged on repeated random splits of the texts. Texts that repeat each other stay on one side,
unless all texts do.

In names of tensors ``n`` are texts, tokens or splits, as the docstring of each function says, ``m`` texts held out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from clockhands.inspection.estimators.intervals import compute_t_factor
from clockhands.shapes import Float, Int, Tensor

STRENGTH = 1e-3
"""Ridge strength, relative to the mean variance of a dimension. Without it, errors explode where there are about as
many tokens as dimensions."""
BLOCKS, SPLITS = 8, 10
"""Blocks that the texts are divided into, and random choices of the blocks that are held out: the splits."""


@dataclass(frozen=True)
class CrossValidation:
    """Repeated random splits of N texts: ``blocks`` of texts, by number, and the blocks held out in each split."""

    blocks: tuple[Int[Tensor, " _n"], ...]
    held_out_blocks: tuple[tuple[int, ...], ...]

    @classmethod
    def draw(cls, groups_N: Int[Tensor, " N"], num_splits: int = SPLITS, seed: int = 0) -> CrossValidation:
        """Divide texts into blocks of about equal size, and choose a quarter of the blocks for every split.

        Args:
            groups_N: the group of each text; a group is never divided. Where all N ≥ 2 texts are one group, they are
                divided one by one, since nothing could be fitted otherwise.
            num_splits: how many splits are drawn, at most as many as there are.
            seed: of the order of the groups and of the choices.
        """
        generator = torch.Generator().manual_seed(seed)
        if len(groups_N.unique()) < 2:
            groups_N = torch.arange(len(groups_N))
        groups = groups_N.unique()
        count = min(BLOCKS, len(groups))
        sizes = [0] * count
        members: list[list[int]] = [[] for _ in range(count)]
        for group in groups[torch.randperm(len(groups), generator=generator)]:
            texts = (groups_N == group).nonzero().flatten().tolist()
            smallest = min(range(count), key=sizes.__getitem__)
            members[smallest] += texts
            sizes[smallest] += len(texts)
        choices = list(itertools.combinations(range(count), max(1, count // 4)))
        order = torch.randperm(len(choices), generator=generator)[:num_splits].tolist()
        return cls(tuple(torch.tensor(sorted(block)) for block in members), tuple(choices[i] for i in order))

    @property
    def num_texts(self) -> int:
        """How many texts there are."""
        return sum(len(block) for block in self.blocks)

    @property
    def fitted_texts(self) -> float:
        """How many texts a probe is fitted on, on average over the splits."""
        return self.num_texts / (1 + self.held_out_ratio)

    @property
    def held_out_ratio(self) -> float:
        """Texts held out over texts fitted on, on average over the splits."""
        sizes = [len(self.blocks[block]) for blocks in self.held_out_blocks for block in blocks]
        held_out = sum(sizes) / len(self.held_out_blocks)
        return held_out / (self.num_texts - held_out)

    def __iter__(self) -> Iterator[tuple[Int[Tensor, " n"], Int[Tensor, " m"]]]:
        """Yield for each split the texts to fit on and those held out, by number."""
        for blocks in self.held_out_blocks:
            fitted = [block for index, block in enumerate(self.blocks) if index not in blocks]
            yield torch.cat(fitted), torch.cat([self.blocks[index] for index in blocks])


@dataclass(frozen=True)
class Ridge:
    """Ridge regression with intercept on every split: each block is summed up once for all splits.

    Attributes:
        x_NTD: the states of N texts of T tokens, in float32.
        y_NTC: what is to be read from them, C numbers for each token, in float32.
        splits: the texts to fit on and those held out.
        fit_NTD: other states to fit on; None for the same ones.
    """

    x_NTD: Float[Tensor, "N T D"]
    y_NTC: Float[Tensor, "N T C"]
    splits: CrossValidation
    fit_NTD: Float[Tensor, "N T D"] | None = None

    def predict(self) -> Iterator[tuple[Int[Tensor, " m"], Float[Tensor, "m T C"]]]:
        """Yield for each split the numbers of the m texts held out, and the predictions on them."""
        x_NTD = self.x_NTD if self.fit_NTD is None else self.fit_NTD
        x_offset, y_offset = x_NTD.mean((0, 1)), self.y_NTC.mean((0, 1))  # so that sums of squares do not cancel
        sums = []  # of each block Σ x xᵀ, Σ x yᵀ, Σ x and Σ y
        for block in self.splits.blocks:
            x, y = (x_NTD[block] - x_offset).flatten(0, 1), (self.y_NTC[block] - y_offset).flatten(0, 1)
            # The products of one block are summed in float32, which is faster; blocks are added up in float64.
            sums.append(((x.T @ x).double(), (x.T @ y).double(), x.double().sum(0), y.double().sum(0)))
        totals = [torch.stack(parts).sum(0) for parts in zip(*sums, strict=True)]
        for blocks, (fitted, held_out) in zip(self.splits.held_out_blocks, self.splits, strict=True):
            # A split is all blocks less those held out: their sums are subtracted, and nothing is summed again.
            gram, cross, x_sum, y_sum = (total - sum(sums[b][i] for b in blocks) for i, total in enumerate(totals))
            count = len(fitted) * x_NTD.shape[1]
            # Σ(x−x̄)(y−ȳ)ᵀ = Σxyᵀ − Σx Σyᵀ / n.
            gram, cross = gram - x_sum[:, None] * x_sum / count, cross - x_sum[:, None] * y_sum / count
            scale, weights = float(gram.diagonal().mean()), torch.zeros_like(cross)  # zero where x does not vary
            if scale > 0:
                # The penalty grows with the states, so that it is the same for a model whose states are twice as long.
                penalty = STRENGTH * scale * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
                weights = torch.linalg.solve(gram + penalty, cross)
            x_mean, y_mean = (x_offset + x_sum / count).float(), (y_offset + y_sum / count).float()
            yield held_out, (self.x_NTD[held_out] - x_mean) @ weights.float() + y_mean


def compute_corrected_interval(scores_n: Float[Tensor, " n"], held_out_ratio: float) -> tuple[float, float]:
    """Return the 95 % interval of a score over n repeated splits, its variance corrected for their overlap.

    Student's t with the variance σ² (1/n + held_out_ratio), Nadeau & Bengio 2003, equation 9. For n < 2 both
    ends are the mean.

    Args:
        scores_n: the score in each split.
        held_out_ratio: texts held out over texts fitted on (``CrossValidation.held_out_ratio``).
    """
    num_splits, mean = len(scores_n), float(scores_n.double().mean())
    if num_splits < 2:
        return mean, mean
    # Splits share texts, so that their scores vary less than independent ones would: ρ / (1−ρ) is added to 1/n.
    error = (float(scores_n.double().var()) * (1 / num_splits + held_out_ratio)) ** 0.5
    half = compute_t_factor(num_splits - 1) * error
    return mean - half, mean + half


def find_nearest_row(predicted_ND: Float[Tensor, "N D"], rows_VD: Float[Tensor, "V D"]) -> Int[Tensor, " N"]:
    """Return the number of the row with the largest cosine to each prediction."""
    unit_VD = F.normalize(rows_VD, dim=-1)
    # Some predictions at a time: the products with all rows of a large vocabulary are many.
    return torch.cat([(part @ unit_VD.T).argmax(-1) for part in predicted_ND.split(1024)])


def fit_network_r2(
    train_ND: Float[Tensor, "N D"],
    targets_N: Float[Tensor, " N"],
    test_nD: Float[Tensor, "n D"],
    answers_n: Float[Tensor, " n"],
    steps: int = 300,
) -> float:
    """Fit a two-layer network to one number of each vector and return its R² on the test vectors.

    An extra input is the log of the length of each vector less the mean vector: a model without positional encoding can
    hold the position in that length (Chi et al. 2023), and a linear probe cannot read it.

    Args:
        train_ND: vectors of N tokens to fit on.
        targets_N: the number of each that is to be read.
        test_nD: vectors of n other tokens.
        answers_n: their numbers, which must vary.
        steps: updates of Adam, of 512 tokens each.
    """
    mean, scale = train_ND.mean(0), train_ND.std().clamp_min(1e-12)
    target_mean, target_scale = targets_N.mean(), targets_N.std().clamp_min(1e-12)

    def add_length(x: Tensor) -> Tensor:
        x = (x - mean) / scale
        return torch.cat([x, x.norm(dim=-1, keepdim=True).clamp_min(1e-12).log()], dim=-1)

    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        x, y = add_length(train_ND), ((targets_N - target_mean) / target_scale)[:, None]
        network = nn.Sequential(nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, 1)).to(x)
        optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
        for _ in range(steps):
            batch = torch.randint(len(x), (512,))
            loss = F.mse_loss(network(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        predicted_n = network(add_length(test_nD)).squeeze(-1) * target_scale + target_mean
    return float(1 - (predicted_n - answers_n).square().sum() / (answers_n - answers_n.mean()).square().sum())
