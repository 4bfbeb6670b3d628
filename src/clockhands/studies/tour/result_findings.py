"""What came out: translations of every variant, learning curves, role-swapped sentences, attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from clockhands.data import Pair
from clockhands.findings import Figure, Finding, Mark, Panel, Reference, Table
from clockhands.generation import compute_cross_attention, draw_cross_attention
from clockhands.runs import Run
from clockhands.studies.tour.variants import MAIN, NO_POSITION, NO_SCALE, ROLES_BLIND, ROLES_MAIN

if TYPE_CHECKING:
    from clockhands.studies.tour.demonstration import Result

VARIANTS = (MAIN, NO_POSITION, NO_SCALE)


def translates(results: Mapping[str, Result]) -> Finding:
    """Exact match of the three translators on numbers that they have not seen."""
    main, blind, quiet = (results[trial.name] for trial in VARIANTS)
    shown = [(result.trial.label, result.exact, *result.interval) for result in (main, blind, quiet)]
    return Finding(
        name="tour.exact",
        question="Does it translate, and what does it need for that?",
        verdict=(
            f"{main.exact:.1f} % of {len(main.pairs):,} held-out numbers exactly right; without positions "
            f"{blind.exact:.1f} %, without the factor √d_model {quiet.exact:.1f} % after as many steps."
        ),
        value=main.exact,
        unit="%",
        interval=main.interval,
        references=(Reference("without positions", blind.exact), Reference("without √d_model", quiet.exact)),
        light="good" if main.exact > 99 else "warn",
        table=Table.of(("variant", "exact match %", "from", "to"), shown),
        figure=_bars(shown),
        method="Greedy decoding of the test split; 95 % intervals by bootstrap over the test items; one seed.",
        source="the *numbers* corpus: German says tens and units the other way round",
        details={"group": "What it learnt"},
    )


def _bars(rows: Sequence[tuple[Any, ...]], *more: Mark) -> Figure:
    """Exact match of each row (name, value, from, to, ...), with its interval."""
    names, values, low, high = zip(*(row[:4] for row in rows), strict=True)
    bars = Mark("bars", x=names, y=values, low=low, high=high)
    return Figure((Panel((bars, *more), ylabel="exact match %", ylim=(0, 105)),), height=0.45)


def examples(results: Mapping[str, Result]) -> Finding:
    """A few held-out numbers as each translator writes them."""
    blind = results[NO_POSITION.name]
    wrong = [i for i, pair in enumerate(blind.pairs) if blind.evaluation.translations[i].text != pair.target]
    chosen = [*wrong[:2], *(i for i in range(len(blind.pairs)) if i not in wrong[:2])][:4]
    rows = [
        (
            blind.pairs[i].source,
            blind.pairs[i].target,
            *(results[trial.name].evaluation.translations[i].text for trial in VARIANTS),
        )
        for i in chosen
    ]
    right = [sum(row[2 + column] == row[1] for row in rows) for column in range(len(VARIANTS))]
    return Finding(
        name="tour.examples",
        question="What do they write?",
        verdict="\n".join(f"{row[0]} → {row[2]}. Without positions: {row[3]}." for row in rows[:2]),
        value=right[0],
        unit=f"of {len(rows)} right",
        table=Table.of(("source", "reference", *(trial.label for trial in VARIANTS)), rows),
        method="The first two held-out numbers that the reader without positions gets wrong, and the first two others.",
        details={"group": "What it learnt"},
    )


def curves(results: Mapping[str, Result]) -> Finding:
    """Training loss of the three translators by step."""
    lines, final = [], {}
    for trial in VARIANTS:
        logged = [line for line in results[trial.name].run.metrics if "loss" in line]
        steps, losses = tuple(line["step"] for line in logged), tuple(line["loss"] for line in logged)
        lines.append(Mark("line", trial.label, x=steps, y=losses))
        final[trial.name] = losses[-1]
    return Finding(
        name="tour.curves",
        question="How do they learn?",
        verdict=(
            f"The loss ends at {final[MAIN.name]:.3f} nats per token; without positions at "
            f"{final[NO_POSITION.name]:.2f}, without √d_model at {final[NO_SCALE.name]:.2f}."
        ),
        value=final[MAIN.name],
        unit="nats per token",
        references=(Reference("without positions", final[NO_POSITION.name]),),
        figure=Figure(
            (Panel(tuple(lines), xlabel="step", ylabel="training loss, nats per token", yscale="log"),), height=0.5
        ),
        method="Mean training loss since the line before, from metrics.jsonl of each run. Same batches in all three.",
        details={"group": "What it learnt"},
    )


def roles(results: Mapping[str, Result]) -> Finding:
    """ "Tom bit a dog" and "a dog bit Tom": are twins told apart?"""
    seeing, blind = results[ROLES_MAIN.name], results[ROLES_BLIND.name]
    ceiling = 100 * _ceiling(seeing)
    apart = {result.trial.name: 100 * told_apart(result) for result in (seeing, blind)}
    rows = [
        ("with positions", seeing.exact, *seeing.interval, apart[seeing.trial.name]),
        ("without positions", blind.exact, *blind.interval, apart[blind.trial.name]),
    ]
    return Finding(
        name="tour.roles",
        question="Can it tell “Tom bit a dog” from “a dog bit Tom”?",
        verdict=(
            f"With positions {seeing.exact:.1f} % exactly right and {apart[seeing.trial.name]:.0f} % of the swapped "
            f"pairs told apart; without, {blind.exact:.1f} % and {apart[blind.trial.name]:.0f} %. No reader that is "
            f"blind to order can exceed {ceiling:.1f} %."
        ),
        value=seeing.exact,
        unit="%",
        interval=seeing.interval,
        references=(Reference("best without order", ceiling),),
        light="good" if seeing.exact > ceiling else "bad",
        table=Table.of(("model", "exact match %", "from", "to", "swapped pairs told apart %"), rows),
        figure=_bars(rows, Mark("hline", "ceiling of an order-blind reader", y=(ceiling,), emphasis="reference")),
        method=(
            "A translator of the *roles* corpus, with and without positions. The ceiling is computed from the test "
            "split: every bag of words gets its most frequent translation."
        ),
        source="the *roles* corpus: English tells roles by order, Esperanto by the ending -n",
        details={"group": "Word order"},
    )


def told_apart(result: Result) -> float:
    """Share of role-swapped pairs in the test split that get two different translations."""
    written: dict[tuple[str, ...], set[str]] = {}
    sizes: dict[tuple[str, ...], set[str]] = {}
    for pair, translation in zip(result.pairs, result.evaluation.translations, strict=True):
        bag = tuple(sorted(pair.source.split()))
        written.setdefault(bag, set()).add(translation.text)
        sizes.setdefault(bag, set()).add(pair.source)
    twins = [bag for bag, sources in sizes.items() if len(sources) > 1]
    return sum(len(written[bag]) > 1 for bag in twins) / len(twins)


def _ceiling(result: Result) -> float:
    from clockhands.data import order_blind_ceiling

    return order_blind_ceiling(result.pairs)


def attention(opened: Run, pair: Pair) -> Finding:
    """Cross-attention of one translation, per layer and head."""
    weights_LHST, sources, targets = compute_cross_attention(opened, pair.source)
    sharpest_LH = weights_LHST.max(dim=-1).values.mean(dim=-1)
    layer, head = divmod(int(sharpest_LH.argmax()), sharpest_LH.shape[1])
    focus = float(sharpest_LH[layer, head])
    order_S = weights_LHST[layer, head].argmax(dim=-1)
    backwards = int((order_S.diff() < 0).sum())
    return Finding(
        name="tour.attention",
        question="Which source words did each target word look at?",
        verdict=(
            f"Translating {pair.source!r}, head {head + 1} of layer {layer + 1} puts {100 * focus:.0f} % of its weight "
            f"on one source token at a time (evenly spread it would be {100 / len(sources):.0f} %), and goes back "
            f"{backwards} time{'s' if backwards != 1 else ''} on its way through {len(targets)} target tokens."
        ),
        value=focus,
        references=(Reference("evenly spread", 1 / len(sources)),),
        figure=draw_cross_attention(opened, pair.source),
        table=Table.of(
            ("target token", "source token it looked at most", "weight"),
            [
                (targets[s], sources[int(t)], float(weights_LHST[layer, head, s, int(t)]))
                for s, t in enumerate(torch.as_tensor(order_S))
            ],
        ),
        method="The weights of the decoder's cross-attention while it writes its own greedy translation.",
        source="Vaswani et al. 2017, section 3.2.3",
        details={"group": "Word order"},
    )
