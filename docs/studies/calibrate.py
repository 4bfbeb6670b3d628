"""Write docs/studies/calibration.md: how often a difference is shown where there is none, and where there is one."""

from __future__ import annotations

from pathlib import Path

from clockhands.comparison.calibration import LAWS, Law, Rate, promised, shown
from clockhands.files import write_text

DRAWN = 1000
HEAD = """# Does the comparison itself tell the truth?

Scores of two variants are simulated as seed + item + chance, with known standard deviations, and compared as
`clockhands compare` compares them. Where the variants are equal, a difference should be shown in 5 % of comparisons;
where the difference that the tool promises to see is planted, in 80 %. 95 % intervals of both shares are exact binomial
ones (Clopper & Pearson 1934). Where items decide, the power is higher than promised, because the promise here counts
the freedom of the seeds alone.

| what decides | seeds | items | sd by seed, item, chance | shown although equal | planted | shown when planted |
| --- | --- | --- | --- | --- | --- | --- |
"""
TAIL = """
Written by `python docs/studies/calibrate.py`; the tests repeat it with fewer draws.
"""


def share(rate: Rate) -> str:
    low, high = rate.interval
    return f"{100 * rate.value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def row(law: Law) -> str:
    planted = promised(law)
    cells = (law.name, law.seeds, law.items, f"{law.seed:g}, {law.item:g}, {law.noise:g}",
             share(shown(law, drawn=DRAWN)), f"{planted:.2f}",
             share(shown(law, planted, drawn=DRAWN, seed=1)))  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    text = HEAD + "\n".join(map(row, LAWS)) + "\n" + TAIL
    write_text(Path(__file__).parent / "calibration.md", text)
