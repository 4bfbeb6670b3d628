"""Real target words a CPU second over Multi30k de-en: our batches and model against others' loop over random batches.

    python benchmarks/multi30k_epoch.py --data MULTI30K

The folder holds train.de and train.en. A byte-level BPE of 8000 tokens is trained on them, the same for all. The peers
read random batches of 128 sentences padded to the longest; ours are batches of like lengths, bounded by tokens.
Each round trains every contender on its next batches, a different sample of the epoch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import LIBRARIES, Pairs, Size, batch_of, make_step
from timing import OURS, ratio, report

from clockhands.data import LengthBatches, PairDataset, encode_pairs, open_corpus, train_tokenizers


def load(folder: Path) -> PairDataset:
    """The training pairs as ids."""
    corpus = open_corpus("parallel", source=str(folder / "train.de"), target=str(folder / "train.en"))
    tokenizers = train_tokenizers(corpus, kind="bpe", vocabulary=Size().vocabulary)
    return encode_pairs(corpus.pairs("train"), tokenizers)


def padding_share(lengths_NC: Any, batches: list[Any]) -> float:
    """The share of pads among all positions, every side of a batch padded to its longest."""
    padded = sum(len(batch) * lengths_NC[batch].max(axis=0).sum() for batch in batches)
    return 1 - float(sum(lengths_NC[batch].sum() for batch in batches) / padded)


def plans(data: PairDataset, tokens: int) -> dict[str, LengthBatches]:
    """The batches of ours, and those of everybody else."""
    ours = LengthBatches(data.lengths, tokens=tokens, seed=1)
    return {OURS: ours, "random": LengthBatches(data.lengths, batch_size=128, bucketed=False, seed=1)}


def tensors(data: PairDataset, plan: LengthBatches) -> Iterator[Pairs]:
    """A plan's batches for ever, from its first."""
    for indices in cycle(plan.plan(0)):
        pairs = [data[int(index)] for index in indices]
        sources = [torch.from_numpy(np.asarray(pair["input_ids"], np.int64)) for pair in pairs]
        targets = [torch.from_numpy(np.asarray(pair["labels"], np.int64)) for pair in pairs]
        yield batch_of(sources, targets)


class Loop:
    """One contender's loop: ``count`` batches each time, and the seconds that a real target word takes."""

    def __init__(self, step: Callable[[Pairs], float], batches: Iterator[Pairs], count: int) -> None:
        self.step, self.batches, self.count = step, batches, count
        self.words: list[int] = []

    def __call__(self) -> None:
        words = 0
        for pairs in islice(self.batches, self.count):
            self.step(pairs)
            words += pairs.real
        self.words.append(words)


def measure(data: PairDataset, tokens: int, rounds: int, count: int) -> dict[str, Any]:
    """Padding of the whole epoch, words a second over the measured batches, and ratios round by round."""
    from timing import interleave

    batches = plans(data, tokens)
    loops = {
        name: Loop(
            make_step(name, Size(), bf16=True), tensors(data, batches[name if name == OURS else "random"]), count
        )
        for name in LIBRARIES
    }
    taken = interleave(loops, rounds)
    per_word = {name: [t / w for t, w in zip(taken[name], loops[name].words[-rounds:], strict=True)] for name in loops}
    rates = {name: round(1 / statistics.median(seconds)) for name, seconds in per_word.items()}
    peers = {name: rate for name, rate in rates.items() if name != OURS}
    fastest = max(peers, key=lambda name: peers[name])
    return {
        "padding of our epoch": round(padding_share(data.lengths, batches[OURS].plan(0)), 4),
        "padding of the random epoch": round(padding_share(data.lengths, batches["random"].plan(0)), 4),
        "batches of our epoch": len(batches[OURS]),
        "target words per CPU second": rates,
        "fastest peer": fastest,
        "ours over fastest": ratio(per_word, fastest),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="MULTI30K")
    parser.add_argument("--tokens", type=int, default=2048, help="of one side of our batches, pads included")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=6, help="of a contender in a round")
    given = parser.parse_args()
    if not (given.data / "train.de").is_file():
        sys.exit(f"skipped: there is no train.de in {given.data}")
    torch.set_num_threads(1)
    results = measure(load(given.data), given.tokens, given.rounds, given.batches)
    setting = (
        f"the model and step of training_step.py in bf16 (CPU autocast); {given.rounds} rounds of "
        f"{given.batches} batches; ours of at most {given.tokens} tokens a side, the peers' of 128 random sentences"
    )
    report("multi30k_epoch", "python benchmarks/multi30k_epoch.py --data MULTI30K", setting, results)


if __name__ == "__main__":
    main()
