"""Do the texts that are measured on repeat each other?"""

from __future__ import annotations

from clockhands.findings import Finding, Reference, Table
from clockhands.inspection.drawing import percent, percent_range
from clockhands.inspection.measures.measure import WINDOWS, Measure
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.repeated_texts import RUN, SHARED, Repeats

MANY = 0.05
"""From this part of the windows on, repeats are to watch."""


class RepeatedText(Measure):
    """How many windows repeat another one, and how many tokens are fixed by their place."""

    name = "text"
    question = "Do its texts repeat each other?"
    references = ("running text",)
    method = (
        f"Two windows repeat each other if at least {SHARED:.0%} of the runs of {RUN} tokens of one occur in the "
        "other. Fixed by the place: how often two windows have the same token at the same place, beyond how often they "
        "have it at any two places; 0 in running text, 1 in one text many times. Tokens permuted: the same with the "
        "tokens of every window in another order, 20 times. Both describe the windows that were read and have no "
        "sampling error."
    )
    source = "runs of tokens after Broder 1997"
    group = "The text"
    rests_on = WINDOWS

    def run(self, reading: Reading) -> Finding:
        found = reading.capture.repeats
        sizes = {int(group): int((found.groups_N == group).sum()) for group in found.groups_N.unique()}
        return self.finding(
            _describe(found, reading.capture.num_texts),
            found.share,
            references=(Reference("running text", 0.0),),
            light="warn" if found.share > MANY or found.templated else "good",
            table=Table.of(
                ("first window of a group", "windows in it"), [item for item in sizes.items() if item[1] > 1]
            ),
            details={"fixed by the place": found.fixed},
        )


def _describe(found: Repeats, texts: int) -> str:
    count = texts - len(found.groups_N.unique())
    verdict = f"None of the {texts} windows repeats an earlier one."
    if count:
        verdict = (
            f"{count} of {texts} windows ({percent(found.share)}) {'repeat' if count > 1 else 'repeats'} "
            f"an earlier one, directly or through others: at least half of the runs of {RUN} tokens occur there too. "
            "Intervals take windows for independent, so they are too narrow; probes are judged on windows that "
            "repeat none they were fitted on."
        )
    if found.templated:
        verdict += (
            f" {percent(found.fixed)} of the tokens are fixed by their place (tokens permuted "
            f"{percent_range(*found.fixed_by_chance)}): what is measured of places is measured of those tokens too."
        )
    return verdict


def warning(finding: Finding) -> str:
    """Return what to tell a person beside the page; empty where texts hardly repeat each other."""
    return finding.verdict if finding.light == "warn" else ""
