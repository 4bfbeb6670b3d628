"""The verdicts as a table for a paper, with a paragraph on the methods and its references."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clockhands import __version__
from clockhands.comparison.plan_settings import METRICS
from clockhands.comparison.results import Comparison
from clockhands.comparison.score_matrix import find_groups, find_top, score_matrix
from clockhands.comparison.simultaneous import FEWEST_VARIANCES
from clockhands.comparison.statistics import MIN_SEEDS
from clockhands.comparison.verdicts import Verdict, judge

# fmt: off
SPECIAL = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
           "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "√": r"$\surd$",
           "·": r"$\cdot$", "×": r"$\times$", "−": r"$-$"}
# fmt: on
COLUMNS = ("Variant", "Score", "Low", "High", "Diff.", "Low", "High", "$p$", "Learned")
PREAMBLE = (
    r"% in the preamble: \usepackage{array,booktabs,siunitx,etoolbox} \robustify\bfseries; citations are of natbib"
)
LONG_NAME = 22
"""Letters of a name above which names are broken into lines, so that the table fits a page of 345 points."""
BROKEN = r">{\raggedright\arraybackslash}p{.28\linewidth}"
BOLD = r"\bfseries "
DAGGER = r"$^\dagger$"
NOTHING = "{--}"
"""In a column of numbers, what stands in braces is text."""

METHODS = r"""\paragraph{{Statistics.}} Every variant was trained with the same {seeds} random seeds, which decide
{decided}, and judged on the same {items}. Differences from the baseline ({baseline})
are paired by seed and item. Standard errors count seeds and {units} as samples \citep{{cameron2011}};
intervals and $p$ values {together}.{ceiling} Variants count as equivalent where two one-sided tests show a
difference below {margin} \citep{{schuirmann1987}}. Seeds that diverged or did not learn are counted by
themselves, with the exact interval of their share \citep{{clopper1934}}, and compared by Fisher's exact
test after \citet{{tarone1990}}; scores are of the seeds that learned. Where too few learned for an
interval, the scores of all seeds are compared by an exact rank test. Computed with Clockhands
\citep{{clockhands}}."""
SAME_TEXT, REDRAWN = "batches and initial weights", "training text, batches and initial weights"
CEILING = r""" Where fewer than ten {units} tell two variants apart, the exact interval of a share is
taken where it is wider."""
TOGETHER = r"""hold for all {comparisons} comparisons together, by the largest of the $t$ statistics
\citep{{dunnett1955}}{moderated}"""
ALONE = r"are those of a $t$ test"
APART = r"are those of $t$ tests, at a level divided by the {comparisons} comparisons (Bonferroni)"
MODERATED = r", with variances over seeds moderated across variants \citep{smyth2004}"

BIBLIOGRAPHY = r"""@article{cameron2011, author = {Cameron, A. Colin and Gelbach, Jonah B. and Miller, Douglas L.},
  title = {Robust Inference With Multiway Clustering}, journal = {Journal of Business \& Economic Statistics},
  volume = {29}, number = {2}, pages = {238--249}, year = {2011}}
@article{clopper1934, author = {Clopper, C. J. and Pearson, E. S.},
  title = {The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial},
  journal = {Biometrika}, volume = {26}, number = {4}, pages = {404--413}, year = {1934}}
@article{dunnett1955, author = {Dunnett, Charles W.},
  title = {A Multiple Comparison Procedure for Comparing Several Treatments with a Control},
  journal = {Journal of the American Statistical Association}, volume = {50}, number = {272}, pages = {1096--1121},
  year = {1955}}
@article{schuirmann1987, author = {Schuirmann, Donald J.},
  title = {A Comparison of the Two One-Sided Tests Procedure and the Power Approach for Assessing the Equivalence of
  Average Bioavailability}, journal = {Journal of Pharmacokinetics and Biopharmaceutics}, volume = {15}, number = {6},
  pages = {657--680}, year = {1987}}
@article{smyth2004, author = {Smyth, Gordon K.},
  title = {Linear Models and Empirical {Bayes} Methods for Assessing Differential Expression in Microarray Experiments},
  journal = {Statistical Applications in Genetics and Molecular Biology}, volume = {3}, number = {1}, year = {2004}}
@article{tarone1990, author = {Tarone, R. E.}, title = {A Modified {Bonferroni} Method for Discrete Data},
  journal = {Biometrics}, volume = {46}, number = {2}, pages = {515--522}, year = {1990}}
@misc{clockhands, author = {{The Clockhands authors}},
  title = {Clockhands: the Workbench for how {Transformers} Know Word Order}, note = {Version VERSION},
  year = {2026}}"""


def write_latex(comparison: Comparison) -> str:
    """Return a table (booktabs, siunitx) with caption and label, a paragraph on the methods, and its BibTeX entries.

    A difference whose interval excludes 0 is bold. The entries are written to ``clockhands.bib`` when LaTeX runs.
    """
    verdicts = judge(comparison)
    entries = BIBLIOGRAPHY.replace("VERSION", __version__)
    return "\n".join([
        f"% {comparison.signature}", PREAMBLE, *_write_table(comparison, verdicts), "",
        _write_methods(comparison, verdicts), "", r"\begin{filecontents}[noheader,overwrite]{clockhands.bib}", entries,
        r"\end{filecontents}", "",
    ])  # fmt: skip


def _write_table(comparison: Comparison, verdicts: Sequence[Verdict]) -> list[str]:
    """Return the lines of the table, with caption and label."""
    digits = comparison.plan.digits
    cells = [_write_row(verdict, digits) for verdict in verdicts]
    formats = [_make_format([row[column] for row in cells]) for column in range(1, 8)]
    names = BROKEN if any(len(verdict.variant) > LONG_NAME for verdict in verdicts) else "l"
    ranked = any(DAGGER in row[0] for row in cells)
    head = " & ".join(name if name == "Variant" or name == "Learned" else f"{{{name}}}" for name in COLUMNS)
    rows = [" & ".join(row) + r" \\" for row in cells]
    return [
        r"\begin{table}", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{_write_caption(comparison, ranked)}}}", rf"\label{{tab:{_make_label(comparison.plan.title)}}}",
        r"\smallskip", rf"\begin{{tabular}}{{{names}{''.join(formats)}c}}", r"\toprule",
        head + r" \\", r"\midrule", *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip


def _make_format(cells: Sequence[str]) -> str:
    """Return the column of siunitx for these cells, no wider than they need."""
    numbers = [cell.removeprefix(BOLD).lstrip("<") for cell in cells if cell != NOTHING]
    whole, decimals = 1, 1
    for number in numbers:
        before, _, after = number.lstrip("+-").partition(".")
        whole, decimals = max(whole, len(before)), max(decimals, len(after))
    sign = "+" if any(number[0] in "+-" for number in numbers) else ""
    less = "<" if any("<" in cell for cell in cells) else ""
    return f"S[table-format={less}{sign}{whole}.{decimals},detect-weight,retain-explicit-plus]"


def _write_row(verdict: Verdict, digits: int) -> list[str]:
    """Return one verdict as the cells of ``COLUMNS``."""
    gap = verdict.difference
    if gap is not None and gap.seeds < MIN_SEEDS:
        gap = None  # an interval over a few of the seeds tells nothing
    scores = (verdict.score, *((None, None) if verdict.learning.mixed else verdict.interval or (None, None)))
    decided = verdict.kind in ("better", "worse")
    bold = BOLD if decided and gap is not None and gap.significant else ""
    differences = (None, None, None) if gap is None else (gap.value, gap.low, gap.high)
    learned, total = verdict.learning.counts
    return [
        escape(verdict.variant) + ("" if bold or not decided else DAGGER),
        *(NOTHING if value is None else f"{value:.{digits}f}" for value in scores),
        *(NOTHING if value is None else f"{bold}{value + 0.0:+.{digits}f}" for value in differences),
        NOTHING if gap is None else "<0.001" if gap.adjusted < 0.001 else f"{gap.adjusted:.3f}",
        f"{learned}/{total}",
    ]


def _write_caption(comparison: Comparison, ranked: bool) -> str:
    """Return the caption: the metric, the budget, and what the columns mean; ``ranked``: a name has a dagger."""
    plan = comparison.plan
    kind, amount = plan.budget
    metric = METRICS[plan.metric]
    dagger = r"$\dagger$: by an exact test of all seeds, since too few learned for an interval. " if ranked else ""
    return (
        f"{escape(plan.title)}{'' if plan.title.endswith('?') else '.'} {escape(metric[0].upper() + metric[1:])}, "
        f"{len(plan.seeds)} seeds, {amount:,g} {kind} each. Low and high bound \\SI{{95}}{{\\percent}} intervals; "
        f"of differences from {escape(plan.baseline)} they hold, as $p$ does, for all comparisons together. Bold: "
        f"better or worse, by an interval over at least {MIN_SEEDS} seeds that excludes 0. {dagger}Learned: seeds that "
        "learned, of all."
    )


def _write_methods(comparison: Comparison, verdicts: Sequence[Verdict]) -> str:
    """Return the paragraph on the statistics."""
    plan, groups = comparison.plan, find_groups(comparison)
    items = score_matrix(comparison, plan.baseline).shape[1]
    count = f"{items:,} test items" if groups is None else f"{items:,} test items in {len(set(groups)):,} groups"
    units = "test items" if groups is None else "groups of test items"
    return METHODS.format(
        seeds=len(plan.seeds),
        decided=REDRAWN if plan.redraw_text else SAME_TEXT,
        items=count,
        baseline=escape(plan.baseline),
        units=units,
        together=_describe_family(verdicts),
        ceiling="" if find_top(plan) is None else CEILING.format(units=units),
        margin=plan.margin_text,
    )


def _describe_family(verdicts: Sequence[Verdict]) -> str:
    """Say for which comparisons intervals and p hold: ``find_differences`` compares those of enough seeds together."""
    others = len(verdicts) - 1
    if others == 1:
        return ALONE
    together = sum(verdict.difference is not None and verdict.difference.seeds >= MIN_SEEDS for verdict in verdicts)
    if together < 2:
        return APART.format(comparisons=others)
    return TOGETHER.format(comparisons=together, moderated=MODERATED if together >= FEWEST_VARIANCES else "")


def _make_label(title: str) -> str:
    """Return a label for references: the letters and digits of the title."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "comparison"


def escape(text: str) -> str:
    """Return text with what LaTeX would take as a command written as itself."""
    return "".join(SPECIAL.get(letter, letter) for letter in text)
