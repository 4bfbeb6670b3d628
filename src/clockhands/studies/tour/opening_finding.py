"""What opens the tour: one sentence and its twin of the same words, translated with positions and without."""

from __future__ import annotations

from collections.abc import Sequence

from clockhands.comparison.exact import bound_share
from clockhands.findings import Finding, Reference, Table
from clockhands.generation import translate
from clockhands.studies.tour.result_findings import count_told_apart
from clockhands.studies.tour.training import ROLES, ROLES_BLIND, Translator, Translators

TWINS = {"Tom bit a dog": "Tomo mordis hundon", "a dog bit Tom": "hundo mordis Tomon"}
"""The two sentences with their translations, as the *roles* corpus has them."""


def find_opening(translators: Translators) -> Finding:
    """Return what becomes of "Tom bit a dog" and "a dog bit Tom", and how many such pairs are told apart."""
    written = [
        [translation.text for translation in translate(translators[name].run, TWINS)] for name in (ROLES, ROLES_BLIND)
    ]
    seeing, blind = (measure_told_apart(translators[name]) for name in (ROLES, ROLES_BLIND))
    value, low, high = seeing
    return Finding(
        name="tour.order",
        question="What becomes of “Tom bit a dog” without positions?",
        verdict=f"{describe_twins(*written)} Of the pairs of held-out sentences that differ in order alone, "
        f"{value:.0f} % get two translations with positions, {blind[0]:.0f} % without.",
        value=value,
        unit="% of pairs told apart",
        interval=(low, high),
        references=(Reference("without positions", blind[0], blind[1:]),),
        light="good" if written[0] == list(TWINS.values()) else "warn",
        table=Table.of(
            ("English", "with positions", "without positions", "correct"),
            list(zip(TWINS, *written, TWINS.values(), strict=True)),
        ),
        method=(
            "Greedy translation by two models of the *roles* corpus, one with positions and one without. The two "
            "sentences themselves may have been trained on; the pairs that are counted were not. Exact 95 % intervals "
            "(Clopper & Pearson 1934); one seed."
        ),
        source="the *roles* corpus: English tells roles by order, Esperanto by the ending -n",
        details={"group": "Word order", "opening": describe_twins(*written)},
    )


def measure_told_apart(translator: Translator) -> tuple[float, float, float]:
    """Return the percentage of role-swapped test pairs that get two translations, with its exact interval."""
    apart, total = count_told_apart(translator.pairs, translator.evaluation.translations)
    low, high = bound_share(apart / total, total)
    return 100 * apart / total, 100 * low, 100 * high


def describe_twins(seeing: Sequence[str], blind: Sequence[str]) -> str:
    """Say what the two sentences become, with positions and without, and which translations are right.

    >>> describe_twins(["Tomo mordis hundon", "hundo mordis Tomon"], ["hundo mordis Tomon", "hundo mordis Tomon"])
    '“Tom bit a dog” becomes “Tomo mordis hundon”, and “a dog bit Tom” “hundo mordis Tomon”: both are right. Without \
positions both become “hundo mordis Tomon”: one of them is wrong.'
    """
    (first_source, second_source), (first, second) = TWINS, seeing
    seen = f"“{first_source}” becomes “{first}”, and “{second_source}” “{second}”: {_count_right(seeing)}."
    if blind[0] == blind[1]:
        return f"{seen} Without positions both become “{blind[0]}”: {_count_right(blind)}."
    return f"{seen} Without positions they become “{blind[0]}” and “{blind[1]}”: {_count_right(blind)}."


def _count_right(written: Sequence[str]) -> str:
    """Say how many of the two translations are right."""
    right = sum(text == wanted for text, wanted in zip(written, TWINS.values(), strict=True))
    return ("both are wrong", "one of them is wrong", "both are right")[right]
