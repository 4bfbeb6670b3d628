"""Reading a property back out of vectors: ridge regression, and a small network where a line cannot see.

Probes are fitted and judged on repeated random splits of the texts. Texts that repeat each other are never divided
between the two sides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from clockhands.shapes import Float, Int, Tensor

STRENGTH = 1e-3
"""Ridge strength relative to the mean variance of a dimension: without one, n ≈ d gives a spike of error."""
BLOCKS, REPEATS = 8, 10
"""Texts are dealt into so many blocks, and split so many times."""


@dataclass(frozen=True)
class CrossValidation:
    """Blocks of texts (indices), and which blocks are held out in each repeat."""

    blocks: tuple[Int[Tensor, " _n"], ...]
    held: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, groups_N: Int[Tensor, " N"], repeats: int = REPEATS, seed: int = 0) -> CrossValidation:
        """Deal texts into blocks, whole groups at a time, and choose a quarter of the blocks for every repeat.

        Where all texts are one group they are dealt one by one, for else nothing could be fitted.
        """
        generator = torch.Generator().manual_seed(seed)
        if len(groups_N.unique()) < 2:
            groups_N = torch.arange(len(groups_N))
        names = groups_N.unique()
        count = min(BLOCKS, len(names))
        sizes = [0] * count
        members: list[list[int]] = [[] for _ in range(count)]
        for name in names[torch.randperm(len(names), generator=generator)]:
            texts = (groups_N == name).nonzero().flatten().tolist()
            smallest = min(range(count), key=sizes.__getitem__)
            members[smallest] += texts
            sizes[smallest] += len(texts)
        choices = list(itertools.combinations(range(count), max(1, count // 4)))
        order = torch.randperm(len(choices), generator=generator)[:repeats].tolist()
        return cls(tuple(torch.tensor(sorted(block)) for block in members), tuple(choices[i] for i in order))

    @property
    def texts(self) -> int:
        """How many texts there are."""
        return sum(len(block) for block in self.blocks)

    @property
    def fitted(self) -> float:
        """How many texts a probe is fitted on, on average."""
        return self.texts / (1 + self.ratio)

    @property
    def ratio(self) -> float:
        """Texts held out over texts fitted on, on average over the repeats."""
        held = sum(len(self.blocks[block]) for blocks in self.held for block in blocks) / len(self.held)
        return held / (self.texts - held)

    def __iter__(self) -> Iterator[tuple[Int[Tensor, " n"], Int[Tensor, " m"]]]:
        """The texts to fit on and those to judge on, repeat by repeat."""
        for blocks in self.held:
            rest = [block for index, block in enumerate(self.blocks) if index not in blocks]
            yield torch.cat(rest), torch.cat([self.blocks[index] for index in blocks])


def solve(gram_DD: Float[Tensor, "D D"], cross_DC: Float[Tensor, "D C"]) -> Float[Tensor, "D C"]:
    """Return ridge weights from centred Σ x xᵀ and Σ x yᵀ; zero where x does not vary."""
    size = float(gram_DD.diagonal().mean())
    if not size > 0:
        return torch.zeros_like(cross_DC)
    strength = STRENGTH * size * torch.eye(len(gram_DD), dtype=gram_DD.dtype, device=gram_DD.device)
    return torch.linalg.solve(gram_DD + strength, cross_DC)


@dataclass
class Ridge:
    """Ridge regression with intercept on every split: sums of each block are made once, and added up split by split.

    ``x_NTD`` are states, ``y_NTC`` what is to be read from them, both float32. ``fit_NTD``: other states to fit on.
    """

    x_NTD: Float[Tensor, "N T D"]
    y_NTC: Float[Tensor, "N T C"]
    splits: CrossValidation
    fit_NTD: Float[Tensor, "N T D"] | None = None

    def predictions(self) -> Iterator[tuple[Int[Tensor, " m"], Float[Tensor, "m T C"]]]:
        """Predict on the texts held out, split by split."""
        x_NTD = self.x_NTD if self.fit_NTD is None else self.fit_NTD
        middle, goal = x_NTD.mean((0, 1)), self.y_NTC.mean((0, 1))  # so that sums of squares do not cancel
        sums = [self._sums(x_NTD[block] - middle, self.y_NTC[block] - goal) for block in self.splits.blocks]
        whole = [torch.stack(parts).sum(0) for parts in zip(*sums, strict=True)]
        for blocks, (fitted, held) in zip(self.splits.held, self.splits, strict=True):
            rest = [total - sum(sums[block][i] for block in blocks) for i, total in enumerate(whole)]
            gram, cross, x_sum, y_sum = rest
            count = len(fitted) * x_NTD.shape[1]
            gram, cross = gram - x_sum[:, None] * x_sum / count, cross - x_sum[:, None] * y_sum / count
            weights = solve(gram, cross).float()
            x_mean, y_mean = (middle + x_sum / count).float(), (goal + y_sum / count).float()
            yield held, (self.x_NTD[held] - x_mean) @ weights + y_mean

    @staticmethod
    def _sums(x_nTD: Tensor, y_nTC: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, y = x_nTD.flatten(0, 1), y_nTC.flatten(0, 1)
        return (x.T @ x).double(), (x.T @ y).double(), x.double().sum(0), y.double().sum(0)


def corrected_interval(scores_R: Float[Tensor, " R"], ratio: float) -> tuple[float, float]:
    """The 95 % interval of a score over R repeated splits, Student's t with the variance corrected for their overlap.

    ``ratio`` is texts held out over texts fitted on: σ² (1/R + ratio), Nadeau & Bengio 2003, equation 9.
    """
    from scipy.stats import t

    repeats, mean = len(scores_R), float(scores_R.double().mean())
    if repeats < 2:
        return mean, mean
    error = (float(scores_R.double().var()) * (1 / repeats + ratio)) ** 0.5
    reach = float(t.ppf(0.975, repeats - 1)) * error
    return mean - reach, mean + reach


def nearest_row(
    predicted_MD: Float[Tensor, "M D"], rows_VD: Float[Tensor, "V D"], block: int = 1024
) -> Int[Tensor, " M"]:
    """The row with the largest cosine to each prediction."""
    unit = F.normalize(rows_VD, dim=-1)
    return torch.cat([(part @ unit.T).argmax(-1) for part in predicted_MD.split(block)])


def fit_network_r2(
    train_ND: Float[Tensor, "N D"],
    places_N: Float[Tensor, " N"],
    test_MD: Float[Tensor, "M D"],
    answers_M: Float[Tensor, " M"],
    steps: int = 300,
) -> float:
    """Return R² on ``test`` of a two-layer network with the log of the centred length as an extra input.

    A model without positional encoding can hold the place in the size of its vectors (Chi et al. 2023), where a linear
    probe is blind.
    """
    mean, spread = train_ND.mean(0), train_ND.std().clamp_min(1e-12)
    middle, unit = places_N.mean(), places_N.std().clamp_min(1e-12)

    def features(x: Tensor) -> Tensor:
        x = (x - mean) / spread
        return torch.cat([x, x.norm(dim=-1, keepdim=True).clamp_min(1e-12).log()], dim=-1)

    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        x, y = features(train_ND), ((places_N - middle) / unit)[:, None]
        net = nn.Sequential(nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, 1)).to(x)
        optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
        for _ in range(steps):
            batch = torch.randint(len(x), (512,))
            loss = F.mse_loss(net(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        guess = net(features(test_MD)).squeeze(-1) * unit + middle
    return float(1 - (guess - answers_M).square().sum() / (answers_M - answers_M.mean()).square().sum())
