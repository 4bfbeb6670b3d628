"""Plan which examples are in which batch; the plan of an epoch depends only on the seed and its number.

The whole epoch is planned for all processes together; each of them reads its share of every batch. So a run can stop
anywhere and go on at the same batch, and N processes see the batches that one would see.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from clockhands.errors import UsageError

Indices: TypeAlias = NDArray[np.int64]
MIXED = 1.0
"""How many batches an example is moved at most from its place in the sorted epoch, so that epochs differ."""


class PlannedBatches(Sampler[list[int]], ABC):
    """Batches planned an epoch at a time; a ``batch_sampler`` for torch's DataLoader.

    Process ``shard`` of ``shards`` gets every ``shards``-th example of each batch. If a batch has fewer examples than
    there are processes, a process without one gets the first example with labels that no loss counts (index ``~i``), so
    that all processes make the same number of steps. ``len`` is the number of batches, the same in every epoch.
    """

    def __init__(self, *, seed: int, shard: int, shards: int) -> None:
        if not 0 <= shard < shards:
            raise UsageError(f"shard={shard} of shards={shards}; shards are counted from 0")
        self.seed, self.shard, self.shards = seed, shard, shards
        self.epoch = self.start = 0

    @abstractmethod
    def plan(self, epoch: int) -> list[Indices]:
        """Return all batches of an epoch, for all processes together, in order."""

    @abstractmethod
    def __len__(self) -> int: ...

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Let the next iteration give this epoch, from batch ``start`` on."""
        self.epoch, self.start = epoch, start

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.plan(self.epoch)[self.start :]:
            own = batch[self.shard :: self.shards]
            yield own.tolist() if len(own) else [~int(batch[0])]

    def _random(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, epoch))


class LengthBatches(PlannedBatches):
    """Every example once an epoch, in batches of ``batch_size`` examples or of at most ``tokens`` tokens.

    ``lengths_NC`` has a row for each example and a column for each side that is padded (source and target). A batch
    of n examples counts n times its longest side, pads included: that is bounded by ``tokens``.
    With ``bucketed``, examples of like lengths go together, chosen anew in each epoch among their likes; the batches
    come in random order. Without ``shuffle`` nothing is random: for evaluation.

    Raises UsageError unless one of ``tokens`` and ``batch_size`` is given, for ``tokens`` without ``bucketed``, and for
    an example longer than ``tokens``.
    """

    def __init__(
        self,
        lengths_NC: NDArray[np.int64],
        *,
        tokens: int | None = None,
        batch_size: int | None = None,
        bucketed: bool = True,
        shuffle: bool = True,
        seed: int = 0,
        shard: int = 0,
        shards: int = 1,
    ) -> None:
        super().__init__(seed=seed, shard=shard, shards=shards)
        self.longest_N = lengths_NC.max(axis=1, initial=0)
        if (tokens is None) == (batch_size is None):
            raise UsageError(f"tokens={tokens}, batch_size={batch_size}: bound batches by one of them")
        if tokens is not None and not bucketed:
            raise UsageError(f"tokens={tokens} bounds batches of like lengths; with bucketed=False give batch_size")
        if batch_size is not None and batch_size < 1:
            raise UsageError(f"batch_size={batch_size}; a batch holds at least one example")
        if tokens is not None and len(self.longest_N) and self.longest_N.max() > tokens:
            row = int(self.longest_N.argmax())
            raise UsageError(
                f"example {row + 1} has {self.longest_N[row]} tokens, more than a batch of tokens={tokens} holds; "
                "raise it, or leave out long examples with max_length"
            )
        # Ascending for odd lengths and descending for even ones: examples beside each other are alike also where one
        # length ends and the next begins.
        self.difference_N = (lengths_NC[:, 0] - lengths_NC[:, -1]) * np.where(self.longest_N % 2, 1, -1)
        self.tokens, self.batch_size, self.bucketed, self.shuffle = tokens, batch_size, bucketed, shuffle
        # The longest side alone decides where the sorted epoch is cut, so the cuts are the same in every epoch.
        longest_N = np.sort(self.longest_N)
        self.cuts = _cut_by_tokens(longest_N, tokens) if tokens else list(range(0, len(longest_N), batch_size or 1))

    def __len__(self) -> int:
        return len(self.cuts)

    def plan(self, epoch: int) -> list[Indices]:
        """See the base class."""
        rng = self._random(epoch)
        batches = np.split(self._order(rng), self.cuts[1:]) if self.cuts else []
        if self.shuffle and self.bucketed:
            return [batches[number] for number in rng.permutation(len(batches))]
        return list(batches)

    def _order(self, rng: np.random.Generator) -> Indices:
        """Order the examples by their longest side, then by how much longer the source is; neighbours are mixed."""
        count = len(self.longest_N)
        if not self.bucketed:
            return rng.permutation(count) if self.shuffle else np.arange(count)
        if not self.shuffle:
            return np.lexsort((self.difference_N, self.longest_N))
        order_N = np.lexsort((rng.random(count), self.difference_N, self.longest_N))
        longest_N = self.longest_N[order_N]
        far_N = MIXED * rng.random(count)
        if self.tokens is None:
            return order_N[np.argsort(np.arange(count) + far_N * (self.batch_size or 1))]
        # The cuts by tokens hold as long as the lengths stay in order: nothing moves from one length to another.
        return order_N[np.lexsort((np.arange(count) + far_N * (self.tokens // np.maximum(longest_N, 1)), longest_N))]


class RandomBatches(PlannedBatches):
    """``batches`` batches an epoch, each of ``batch_size`` examples that are drawn at random with replacement.

    ``examples`` is how many there are. It is for windows that may start anywhere in a text. Raises UsageError for a
    number below 1.
    """

    def __init__(
        self, examples: int, *, batch_size: int, batches: int, seed: int = 0, shard: int = 0, shards: int = 1
    ) -> None:
        super().__init__(seed=seed, shard=shard, shards=shards)
        if min(examples, batch_size, batches) < 1:
            raise UsageError(f"examples={examples}, batch_size={batch_size}, batches={batches}: all are at least 1")
        self.examples, self.batch_size, self.batches = examples, batch_size, batches

    def __len__(self) -> int:
        return self.batches

    def plan(self, epoch: int) -> list[Indices]:
        """See the base class."""
        return list(self._random(epoch).integers(0, self.examples, (self.batches, self.batch_size)))


def _cut_by_tokens(sorted_N: Indices, tokens: int) -> list[int]:
    """Return where batches start: each takes as many of the ascending lengths as fit when padded to its last."""
    cuts, start = [], 0
    while start < len(sorted_N):
        cuts.append(start)
        ahead = sorted_N[start : start + tokens // max(int(sorted_N[start]), 1)]
        start += int(np.count_nonzero(ahead * np.arange(1, len(ahead) + 1) <= tokens))
    return cuts
