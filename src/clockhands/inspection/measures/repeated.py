"""Do the texts that are measured on repeat each other?"""

from __future__ import annotations

from clockhands.findings import Finding, Reference, Table
from clockhands.inspection.drawing import percent, percent_range
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.reading.repeated_texts import RUN, SHARED

QUESTION = "Do its texts repeat each other?"
METHOD = (
    f"Two windows repeat each other if at least {SHARED:.0%} of the runs of {RUN} tokens of one occur in the other. "
    "Fixed by the place: how often two windows have the same token at the same place, beyond how often they have it at "
    "any two places; 0 in running text, 1 in one text many times. Tokens permuted: the same with the tokens of every "
    "window in another order, 20 times. Both describe the windows that were read and have no sampling error."
)
MANY = 0.05
"""From this part of the windows on, repeats are to watch."""


def repeated(capture: Capture) -> Finding:
    """How many windows repeat another one, and how many tokens are fixed by their place."""
    found = capture.repeats
    count = capture.texts - len(found.groups_N.unique())
    verdict = f"None of the {capture.texts} windows repeats another one."
    if count:
        verdict = (
            f"{count} of {capture.texts} windows ({percent(found.share)}) {'repeat' if count > 1 else 'repeats'} "
            f"another one: at least half of the runs of {RUN} tokens occur there too. Intervals take windows for "
            "independent, so they are too narrow; probes are judged on windows that repeat none they were fitted on."
        )
    if found.templated:
        verdict += (
            f" {percent(found.fixed)} of the tokens are fixed by their place (tokens permuted "
            f"{percent_range(*found.fixed_by_chance)}): what is measured of places is measured of those tokens too."
        )
    rows = [
        (int(group), int((found.groups_N == group).sum()))
        for group in found.groups_N.unique()
        if int((found.groups_N == group).sum()) > 1
    ]
    return Finding(
        name="text",
        question=QUESTION,
        verdict=verdict,
        value=found.share,
        references=(Reference("running text", 0.0),),
        light="warn" if found.share > MANY or found.templated else "good",
        table=Table.of(("first window of a group", "windows in it"), rows),
        method=METHOD,
        source="runs of tokens after Broder 1997",
        details={"fixed by the place": found.fixed},
    )


def warning(finding: Finding) -> str:
    """What to tell a person beside the page; empty where texts hardly repeat each other."""
    return finding.verdict if finding.light == "warn" else ""
