"""Which published orderings of ways to read further come out on the reference models.

python benchmarks/extending_orderings.py FOLDER

FOLDER holds what extending_pairs.py measured. An ordering is about the loss beyond the trained length. The models are
the sample: of each, the difference is the mean over its factors. Intervals are simultaneous over all orderings. Where
the models do not agree, the mean says little: each is then judged on its own texts too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.comparison.plan import MARGINS
from clockhands.comparison.statistics.paired import PairedDifference, estimate_difference

__all__ = ["FEWEST", "ORDERINGS", "Ordering", "judge_orderings"]

COMES_OUT, CONTRADICTED, UNDECIDED = VERDICTS = ("comes out", "contradicted", "undecided")
DEPENDS = "depends on the model"
FEWEST = 3
"""Models; fewer give no interval that is worth printing."""


@dataclass(frozen=True)
class Ordering:
    """A published claim that one method has a smaller loss than another.

    Args:
        better, worse: names of methods.
        factors: at which it is claimed.
        claim, source: in words.
        at_least: whether "as good" is claimed, which a margin decides.
    """

    better: str
    worse: str
    factors: tuple[int, ...]
    claim: str
    source: str
    at_least: bool = False


ALL = (2, 4, 8)
ORDERINGS = (
    Ordering("ntk", "linear", ALL, "untrained, a larger base (NTK) beats interpolation",
             "bloc97 2023; Peng et al. 2024, section 3.1"),
    Ordering("linear, trained", "ntk, trained", (4,), "after 200 steps interpolation is at least as good as NTK",
             "Peng et al. 2024, section 3.1; Chen et al. 2023", at_least=True),
    Ordering("linear, trained", "linear", (4,), "200 steps make interpolation better", "Chen et al. 2023, table 3"),
    Ordering("by-parts", "linear", ALL, "untrained, NTK by parts beats interpolation",
             "Peng et al. 2024, section 3.2"),
    Ordering("by-parts", "ntk", ALL, "untrained, NTK by parts beats NTK", "Peng et al. 2024, section 3.2"),
    Ordering("yarn", "ntk", (4, 8), "YaRN beats NTK from four times on", "Peng et al. 2024, table 1 (trained there)"),
    Ordering("yarn", "by-parts", ALL, "YaRN's temperature lowers the loss of NTK by parts",
             "Peng et al. 2024, section on YaRN"),
    Ordering("dynamic", "none", ALL, "untrained, a base that grows with the text beats none", "emozilla 2023"),
    Ordering("searched", "yarn", (8,), "untrained, searched factors beat YaRN at eight times",
             "Ding et al. 2024, table 1 (at two and four times)"),
    Ordering("self-extend", "none", ALL, "untrained, Self-Extend beats the model as it is",
             "Jin et al. 2024, table 1"),
    Ordering("rerope", "ntk", ALL, "untrained, ReRoPE beats NTK", "Su 2023"),
    Ordering("dual-chunk", "linear", ALL, "untrained, dual chunks beat interpolation", "An et al. 2024, table 1"),
)  # fmt: skip


def judge_orderings(pairs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each ordering with the mean difference of losses over models, its interval, and what it is in each model.

    An ordering comes out, or is contradicted, where the mean over models shows it, or every model does; it depends on
    the model where one shows it and another its reverse, with intervals simultaneous over all orderings and models.
    """
    most = len({pair["model"] for pair in pairs})
    for ordering in ORDERINGS:
        gaps = _list_gaps(ordering, pairs)
        told = {"ordering": ordering.claim, "source": ordering.source, "models": len(gaps)}
        if len(gaps) < FEWEST:
            yield {**told, "verdict": f"undecided: fewer than {FEWEST} models"}
            continue
        means_S = np.array([gaps_N.mean() for gaps_N in gaps.values()])
        gap = _estimate(means_S, len(ORDERINGS))
        by_model = {
            model: _decide(_estimate(gaps_N, most * len(ORDERINGS)), ordering.at_least)
            for model, gaps_N in gaps.items()
        }
        told |= {f"{verdict} in": [model for model, of in by_model.items() if of == verdict] for verdict in VERDICTS}
        yield {
            **told, "nats": round(gap.value, 3), "low": round(gap.low, 3), "high": round(gap.high, 3),
            "verdict": _join(_decide(gap, ordering.at_least), list(by_model.values())),
        }  # fmt: skip


def _list_gaps(ordering: Ordering, pairs: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return of each model by how much the method said to be worse loses more, by text: the mean over the factors."""
    by_model: dict[str, list[np.ndarray]] = {}
    for pair in pairs:
        entries = [pair["ordered"].get(name, {}) for name in (ordering.worse, ordering.better)]
        if pair["factor"] in ordering.factors and all("losses" in entry for entry in entries):
            worse_N, better_N = (np.array(entry["losses"]) for entry in entries)
            by_model.setdefault(pair["model"], []).append(worse_N - better_N)
    return {model: np.mean(gaps, axis=0) for model, gaps in by_model.items()}


def _estimate(gaps_N: np.ndarray, comparisons: int) -> PairedDifference:
    return estimate_difference(gaps_N[:, None], np.zeros((len(gaps_N), 1)), comparisons)


def _decide(gap: PairedDifference, at_least: bool) -> str:
    """Return what an interval says of a claim; "at least as good" may miss by the margin of a loss."""
    margin = MARGINS["loss"] if at_least else 0.0
    if gap.low > -margin:
        return COMES_OUT
    return CONTRADICTED if gap.high < -margin else UNDECIDED


def _join(mean: str, by_model: Sequence[str]) -> str:
    """Return the verdict on a claim from that on the mean over models, and those in each."""
    shown = set(by_model)
    if {COMES_OUT, CONTRADICTED} <= shown:
        return DEPENDS
    return shown.pop() if len(shown) == 1 and mean == UNDECIDED else mean


def main() -> None:
    """Print the orderings with their verdicts."""
    pairs = [json.loads(path.read_text("utf8")) for path in sorted(Path(sys.argv[1]).glob("*.pair.json"))]
    for entry in judge_orderings(pairs):
        interval = f"{entry['nats']:+.3f} [{entry['low']:+.3f}, {entry['high']:+.3f}]" if "nats" in entry else ""
        counts = ", ".join(f"{verdict} in {len(entry.get(f'{verdict} in', ()))}" for verdict in VERDICTS)
        print(f"{entry['verdict']}: {entry['ordering']} ({entry['source']}) {interval}, {counts}")


if __name__ == "__main__":
    main()
