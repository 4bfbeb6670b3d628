"""The tour, two studies of one seed, on one page; and what came out of them.

That is translations of every variant, learning curves, role-swapped sentences and attention. All of it is a Finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clockhands import __version__
from clockhands.comparison import Comparison
from clockhands.comparison.task_findings import find_plan_ceiling
from clockhands.data import Pair
from clockhands.files import lock_folder
from clockhands.findings import SHARE, Figure, Finding, Findings, Reference, Table, draw_columns, join_words
from clockhands.generation import Score, Translation, compute_cross_attention, draw_cross_attention, translate
from clockhands.generation.score import bound_share
from clockhands.inspection import inspect
from clockhands.runs import Run
from clockhands.studies.answer import answer_question
from clockhands.studies.study import Study
from clockhands.studies.tour.encoding_findings import find_encoding, find_loudness
from clockhands.studies.tour.training import (
    MAIN,
    NO_POSITION,
    NO_SCALE,
    ROLES,
    ROLES_BLIND,
    TOUR,
    Translators,
    train_translators,
)

VARIANTS = (MAIN, NO_POSITION, NO_SCALE)


def _find_exact_match(study: Study, comparison: Comparison, translators: Translators) -> Finding:
    """Return the exact match of the three translators on numbers that they have not seen."""
    exact = {variant: translators[variant].exact for variant in VARIANTS}
    main, blind, quiet = exact.values()
    rows = [(variant, score.value, score.low, score.high) for variant, score in exact.items()]
    return Finding(
        name="tour.exact",
        question=study.question,
        verdict=f"{answer_question(study, comparison)} {describe_without_factor(main, quiet)} "
        f"{find_plan_ceiling(comparison.plan).sentence}",
        value=main.value,
        unit="%",
        interval=(main.low, main.high),
        references=(
            Reference("without positions", blind.value, (blind.low, blind.high)),
            Reference("without √d_model", quiet.value, (quiet.low, quiet.high)),
        ),
        light="good" if main.value > 99 else "warn",
        table=Table.of(("variant", "exact match %", "from", "to"), rows),
        figure=_draw_bars(rows),
        method="Greedy decoding of the test split; exact 95 % intervals over the test items (Clopper & Pearson 1934); "
        "one seed.",
        source="the *numbers* corpus: German says tens and units the other way round",
        details={"group": "What it learnt"},
    )


def describe_without_factor(main: Score, quiet: Score) -> str:
    """Say what a model that lacks the factor √d after as many steps shows: that it is later, and not that it fails."""
    if quiet.high < main.low:
        return (
            "Without the factor it learns later, not never: how far it is after as many steps differs from seed to "
            "seed, and with more steps it gets as far (`clockhands study scale`)."
        )
    return "Whether a model without the factor is behind after as many steps is undecided with one seed."


def _draw_bars(rows: Sequence[tuple[Any, ...]], **levels: float) -> Figure:
    """Draw the exact match of each row (name, value, from, to, ...), with its interval."""
    names, values, low, high = zip(*(row[:4] for row in rows), strict=True)
    return draw_columns(
        "bars", names, {"": values}, intervals={"": (low, high)}, levels=levels, height=0.45,
        title="Held-out sentences translated exactly", ylabel="% exactly right", ylim=(0, 105),
    )  # fmt: skip


def find_examples(translators: Translators) -> Finding:
    """Return a few held-out numbers as each translator writes them."""
    blind = translators[NO_POSITION]
    written = [[text.text for text in translators[variant].evaluation.translations] for variant in VARIANTS]
    wrong = [i for i, pair in enumerate(blind.pairs) if written[1][i] != pair.target]
    chosen = [*wrong[:2], *(i for i in range(len(blind.pairs)) if i not in wrong[:2])][:4]
    rows = [(blind.pairs[i].source, blind.pairs[i].target, *(texts[i] for texts in written)) for i in chosen]
    right = [sum(row[2 + column] == row[1] for row in rows) for column in range(len(VARIANTS))]
    return Finding(
        name="tour.examples",
        question="What do they write?",
        verdict="\n".join(f"{row[0]} → {row[2]}. Without positions: {row[3]}." for row in rows[:2]),
        value=right[0],
        unit=f"of {len(rows)} right",
        table=Table.of(("source", "reference", *VARIANTS), rows),
        method="The first two held-out numbers that the reader without positions gets wrong, and the first two others.",
        details={"group": "What it learnt"},
    )


def _find_training_curves(translators: Translators) -> Finding:
    """Return the training loss of the three translators by step."""
    losses = {
        variant: {line["step"]: line["loss"] for line in translators[variant].run.metrics if "loss" in line}
        for variant in VARIANTS
    }
    final = {variant: list(by_step.values())[-1] for variant, by_step in losses.items()}
    return Finding(
        name="tour.curves",
        question="How do they learn?",
        verdict=(
            f"The loss ends at {final[MAIN]:.3f} nats per token; without positions at "
            f"{final[NO_POSITION]:.3f}, without √d_model at {final[NO_SCALE]:.3f}."
        ),
        value=final[MAIN],
        unit="nats per token",
        references=(Reference("without positions", final[NO_POSITION]),),
        figure=draw_columns(
            "line", None, losses, height=0.5, title="Loss while they learn", xlabel="step",
            ylabel="training loss, nats per token", yscale="log",
        ),
        method="Mean training loss since the line before, from metrics.jsonl of each run. Same batches in all three.",
        details={"group": "What it learnt"},
    )  # fmt: skip


def find_roles(study: Study, comparison: Comparison, translators: Translators) -> Finding:
    """Return whether "Tom bit a dog" and "a dog bit Tom" are told apart, with positions and without."""
    seeing, blind = translators[ROLES], translators[ROLES_BLIND]
    ceiling = 100 * find_plan_ceiling(comparison.plan).share
    apart, blind_apart = (measure_told_apart(t.pairs, t.evaluation.translations)[0] for t in (seeing, blind))
    rows = [
        ("with positions", seeing.exact.value, seeing.exact.low, seeing.exact.high, apart),
        ("without positions", blind.exact.value, blind.exact.low, blind.exact.high, blind_apart),
    ]
    return Finding(
        name="tour.roles",
        question=study.question,
        verdict=(
            f"{answer_question(study, comparison)} Of the pairs of sentences that differ in order alone, {apart:.0f} % "
            f"get two translations with positions and {blind_apart:.0f} % without."
        ),
        value=seeing.exact.value,
        unit="%",
        interval=(seeing.exact.low, seeing.exact.high),
        references=(Reference("best without order", ceiling),),
        light="good" if seeing.exact.value > ceiling else "bad",
        table=Table.of(("model", "exact match %", "from", "to", "swapped pairs told apart %"), rows),
        figure=_draw_bars(rows, **{"ceiling of an order-blind reader": ceiling}),
        method=(
            "A translator of the *roles* corpus, with and without positions. The ceiling is that of all sentences that "
            "the corpus can draw: every bag of tokens gets its most frequent translation. Exact 95 % intervals over "
            "the pairs of sentences with the same words, which count as one (Clopper & Pearson 1934); one seed."
        ),
        source="the *roles* corpus: English tells roles by order, Esperanto by the ending -n",
        details={"group": "Word order"},
    )


def measure_told_apart(pairs: Sequence[Pair], translations: Sequence[Translation]) -> tuple[float, float, float]:
    """Return how many percent of role-swapped pairs of sources get two translations, with the exact interval."""
    written: dict[tuple[str, ...], set[str]] = {}
    sources: dict[tuple[str, ...], set[str]] = {}
    for pair, translation in zip(pairs, translations, strict=True):
        bag = tuple(sorted(pair.source.split()))
        written.setdefault(bag, set()).add(translation.text)
        sources.setdefault(bag, set()).add(pair.source)
    twins = [bag for bag, texts in sources.items() if len(texts) > 1]
    share = sum(len(written[bag]) > 1 for bag in twins) / len(twins)
    low, high = bound_share(share, len(twins))
    return 100 * share, 100 * low, 100 * high


def find_attention(opened: Run, pair: Pair) -> Finding:
    """Return the cross-attention of one translation, per layer and head."""
    weights_LHST, sources, targets = compute_cross_attention(opened, pair.source)
    sharpest_LH = weights_LHST.max(dim=-1).values.mean(dim=-1)
    layer, head = divmod(int(sharpest_LH.argmax()), sharpest_LH.shape[1])
    focus = float(sharpest_LH[layer, head])
    order_S = weights_LHST[layer, head].argmax(dim=-1)
    backwards = int((order_S.diff() < 0).sum())
    most_S = [int(t) for t in order_S]
    rows = [(targets[s], sources[t], float(weights_LHST[layer, head, s, t])) for s, t in enumerate(most_S)]
    return Finding(
        name="tour.attention",
        question="Which source words did each target word look at?",
        verdict=(
            f"Translating {pair.source!r}, head {head + 1} of layer {layer + 1} puts {100 * focus:.0f} % of its weight "
            f"on one source token at a time (evenly spread it would be {100 / len(sources):.0f} %), and goes back "
            f"{backwards} time{'s' if backwards != 1 else ''} on its way through {len(targets)} target tokens."
        ),
        value=focus,
        unit=SHARE,
        references=(Reference("evenly spread", 1 / len(sources)),),
        figure=draw_cross_attention(opened, pair.source),
        table=Table.of(("target token", "source token it looked at most", "weight"), rows),
        method="The weights of the decoder's cross-attention while it writes its own greedy translation.",
        source="Vaswani et al. 2017, section 3.2.3",
        details={"group": "Word order"},
    )


TWINS = {"Tom bit a dog": "Tomo mordis hundon", "a dog bit Tom": "hundo mordis Tomon"}
"""The two sentences with their translations, as the *roles* corpus has them."""


def find_opening(translators: Translators) -> Finding:
    """Return what becomes of "Tom bit a dog" and "a dog bit Tom", and how many such pairs are told apart."""
    both = [translators[name] for name in (ROLES, ROLES_BLIND)]
    written = [[translation.text for translation in translate(translator.run, TWINS)] for translator in both]
    seeing, blind = [measure_told_apart(translator.pairs, translator.evaluation.translations) for translator in both]
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


def describe_twins(seeing: Sequence[str], blind: Sequence[str]) -> str:
    """Say what the two sentences become, with positions and without, and which translations are right.

    >>> describe_twins(["Tomo mordis hundon", "hundo mordis Tomon"], ["hundo mordis Tomon", "hundo mordis Tomon"])
    '“Tom bit a dog” becomes “Tomo mordis hundon”, and “a dog bit Tom” “hundo mordis Tomon”: both are right. Without \
positions both become “hundo mordis Tomon”: one of them is wrong.'
    """

    def count_right(written: Sequence[str]) -> str:
        right = sum(text == wanted for text, wanted in zip(written, TWINS.values(), strict=True))
        return ("both are wrong", "one of them is wrong", "both are right")[right]

    (first_source, second_source), (first, second) = TWINS, seeing
    seen = f"“{first_source}” becomes “{first}”, and “{second_source}” “{second}”: {count_right(seeing)}."
    become = f"both become “{blind[0]}”" if blind[0] == blind[1] else f"they become “{blind[0]}” and “{blind[1]}”"
    return f"{seen} Without positions {become}: {count_right(blind)}."


CHOSEN = ("logits.layers", "heads.positional", "survival", "cause")
"""Those that every reader of a tour can follow; ``clockhands inspect`` has the others."""


def tour(
    out: str | Path = "runs/tour",
    *,
    overwrite: bool = False,
    show: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Findings:
    """Train the translator of *numbers* into ``out``, and its variants into ``out/variants``; measure all.

    ``say`` is told what is being done; ``show`` draws the progress of every training. Raises UsageError if ``out``
    exists and ``overwrite`` is not given, BusyError if another process writes there.
    """
    with lock_folder(Path(out)):
        translators, comparisons = train_translators(Path(out), overwrite=overwrite, show=show, say=say)
        say("measuring")
        return _measure_tour(translators, comparisons)


def _measure_tour(translators: Translators, comparisons: Mapping[str, Comparison]) -> Findings:
    main = translators[MAIN]
    # Those of ``clockhands inspect`` on the run, so that both pages say the same.
    inspected = inspect(main.run.path, command=f"clockhands inspect {main.run.path}")
    inside = [inspected[name] for name in CHOSEN]
    items: list[Finding] = [
        find_opening(translators),
        _find_exact_match(TOUR["numbers"], comparisons["numbers"], translators),
        find_examples(translators),
        _find_training_curves(translators),
        *find_encoding(main.run),
        find_loudness(translators),
        *(replace(finding, details={**finding.details, "group": "Inside the encoder"}) for finding in inside),
        find_roles(TOUR["roles"], comparisons["roles"], translators),
        find_attention(main.run, main.pairs[0]),
    ]
    record, training, config = main.run.record, main.run.recipe.training, main.run.recipe.model
    layers = " + ".join(str(config.count_layers(side)) for side in config.stack_sides)
    schemes = join_words(dict.fromkeys(config.get_position_config(side).name for side in config.stack_sides))
    return Findings(
        title="What word order is worth: a tour",
        items=tuple(items),
        facts={
            "model": f"Transformer, {config.architecture}, {layers} layers, d_model {config.d_model}, "
            f"{schemes} encoding",
            "parameters": record["parameters"],
            "trained on": f"numbers: German number words to English, {training.max_steps} steps of "
            f"{main.run.recipe.batches.size} pairs",
            "versions": f"clockhands {__version__}, torch {record['torch']}, transformers {record['transformers']}",
        },
        signature=f"tour|steps:{training.max_steps}|seed:{training.seed}|v:{__version__}",
        command="clockhands tour",
        opening=("tour.exact", "tour.roles", "loudness.scale"),
    )
