"""Do the texts that are measured on repeat each other?"""

from __future__ import annotations

from clockhands.findings import SHARE, Finding, Reference, Table
from clockhands.inspection.measures.measure import TEXT_HEADING, WINDOWS, Measure
from clockhands.inspection.measures.survival import MOST_TEXTS
from clockhands.inspection.number_format import format_percent, format_percent_range
from clockhands.inspection.reading.capture import LEAST_SHARED, NGRAM
from clockhands.inspection.reading.reading import Reading

WARNING_SHARE = 0.05
"""From this share of windows that repeat an earlier one, the finding is a warning."""


class RepeatedText(Measure):
    """How many windows repeat another one, and how many tokens are fixed by their position."""

    name = "text"
    question = "Do its texts repeat each other?"
    references = ("running text",)
    method = (
        f"Two windows repeat each other if at least {LEAST_SHARED:.0%} of the runs of {NGRAM} tokens of one occur in "
        "the other. Fixed by the position: how often two windows have the same token at the same position, beyond how "
        "often they have the same token at any two positions; 0 in running text, 1 in one text many times. Tokens "
        "permuted: the same with the tokens of every window in another order, 20 times. The two shares, of "
        "windows that repeat and of tokens that are fixed, describe the windows that were read and have no sampling "
        "error."
    )
    source = "runs of tokens after Broder 1997"
    heading = TEXT_HEADING
    rests_on = WINDOWS

    def run(self, reading: Reading) -> Finding:
        """Count windows that repeat an earlier one; the value is their share of all windows."""
        repeats, length = reading.capture.repeats, int(reading.capture.ordinary_T.sum())
        first_windows, sizes = repeats.groups_N.unique(return_counts=True)
        num_texts = len(repeats.groups_N)
        count = num_texts - len(sizes)
        verdict = f"None of the {num_texts:,} windows repeats an earlier one."
        if count:
            # Probes are judged on windows that repeat those they were fitted on only if all that they read do.
            probed = "that do not repeat those they were fitted on"
            if len(repeats.groups_N[:MOST_TEXTS].unique()) == 1:
                which = "all windows" if num_texts <= MOST_TEXTS else f"the first {MOST_TEXTS}, which they read,"
                probed = f"that repeat those they were fitted on, since {which} repeat each other"
            verdict = (
                f"{count:,} of {num_texts:,} windows ({format_percent(repeats.share)}) "
                f"{'repeat' if count > 1 else 'repeats'} an earlier one, directly or through others: at least half of "
                f"the runs of {min(NGRAM, length)} tokens occur there too. The intervals treat windows as independent, "
                f"so they are too narrow; probes are judged on windows {probed}."
            )
        if repeats.templated:
            verdict += (
                f" {format_percent(repeats.fixed)} of the tokens are fixed by their position (tokens permuted "
                f"{format_percent_range(*repeats.fixed_by_chance)}): what is measured of positions is measured of "
                "those tokens too."
            )
        return self.make_finding(
            verdict,
            repeats.share,
            unit=SHARE,
            references=(Reference("running text", 0.0),),
            light="warn" if repeats.share > WARNING_SHARE or repeats.templated else "good",
            table=Table.of(
                ("first window of a group", "windows in it"),
                [row for row in zip(first_windows, sizes, strict=True) if row[1] > 1],
            ),
            details={"fixed by the place": repeats.fixed},  # saved findings keep this name
        )
