"""Does order matter to what comes out? Interventions, not correlations: on each token, on their mean, on the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional as F

from clockhands.findings import Figure, Finding, Light, Panel, Reference, Table
from clockhands.inspection.drawing import level, mark, percent, percent_range, skip
from clockhands.inspection.estimators.intervals import bootstrap, mean_interval
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.subject.influence import Influence
from clockhands.inspection.subject.subject import Subject
from clockhands.shapes import Float, Int, Tensor

TOKENS = "Does order matter to the state of each token?"
QUESTION = "Does order matter to the mean of the output?"
LOSS = "Does order matter to the next token?"
INTERVENTIONS = (
    " Shifted: every position k later (where the table ends before that, in windows cut by as much, at most by half). "
    "Mean row: every position row replaced by the mean of the rows in use, a neutral baseline (row 0 is not: it is an "
    "outlier in most trained models). Permuted: the same tokens in another order. Others permuted: every eighth token "
    "stays where it is and the others change places; those that stay are measured. Interval: texts resampled."
)
TOKENS_METHOD = (
    "The last hidden state of every ordinary token before and after an intervention. A token that is moved is followed "
    "to its new place, so that a state is always compared with a state of the same token. The squared change over the "
    "mean squared distance of the states of two random tokens of the texts: 0 is no change, 1 makes each state as "
    "different as that of another token." + INTERVENTIONS
)
METHOD = (
    "The mean of the last hidden states over ordinary tokens, before and after an intervention; its squared change "
    "over the mean squared distance of two different texts: 0 is no change, 1 makes the text as different as another "
    "one. A mean hides what happens to single tokens: a model that copies each token's neighbour changes all of its "
    "states and hardly their mean." + INTERVENTIONS
)
LOSS_METHOD = (
    "The same token is predicted twice: after the tokens before it in their order, and after the same tokens permuted. "
    "At a quarter, a half and three quarters of each window and at its end; natural logarithms. Interval: the mean of "
    "the difference over texts, Student's t."
)
STEPS = (1, 4, 16, 64)
MOST_TEXTS = 24
LOSS_TEXTS = 32
STAYING = 8
"""One token in so many stays where it is while the others are permuted."""
CHANGED = 1e-6
"""Squared changes below this part of a distance are rounding."""

PERMUTED, OTHERS, MEAN_ROW, ANOTHER = (
    "tokens permuted",
    "other tokens permuted",
    "position rows replaced by their mean",
    "another text",
)


@dataclass(frozen=True)
class Effect:
    """One intervention: relative squared change per text of a token's state and of the texts' mean state.

    ``cosine`` is that of the mean states before and after. ``pooled_N`` is None where only some tokens are compared.
    """

    name: str
    tokens_N: Float[Tensor, " N"]
    pooled_N: Float[Tensor, " N"] | None
    cosine: float | None = None

    @property
    def tokens(self) -> float:
        """The change of a token's state."""
        return float(self.tokens_N.mean())

    @property
    def pooled(self) -> float | None:
        """The change of a text's mean state."""
        return None if self.pooled_N is None else float(self.pooled_N.mean())


Run = Callable[..., tuple[Tensor, ...] | None]


def last_states(run: Run, capture: Capture, ids_NT: Int[Tensor, "N T"]) -> Float[Tensor, "N t D"] | None:
    """Compute the last states of the tokens that count; None if ``run`` cannot. Windows may be cut."""
    batches, ordinary_T = [], capture.ordinary_T[: ids_NT.shape[1]]
    for rows in torch.arange(len(ids_NT)).split(8):
        states = run(ids_NT[rows], **capture.given(rows))
        if states is None:
            return None
        batches.append(states[-1].float().cpu()[:, ordinary_T])
    return torch.cat(batches)


def squared_distance(rows_ND: Float[Tensor, "N D"]) -> float:
    """Return the mean squared distance of two different rows; 0 where they differ by rounding only."""
    centred = rows_ND.double() - rows_ND.double().mean(0)
    between = 2 * float(centred.square().sum()) / max(len(rows_ND) - 1, 1)
    return between if between > 1e-9 * float(rows_ND.double().square().sum(-1).mean()) else 0.0


def relative(change_N: Float[Tensor, " N"], distance: float) -> Float[Tensor, " N"]:
    """Return changes as parts of a distance; 0 where there is no distance, so that nothing can be told."""
    return change_N / distance if distance > 0 else torch.zeros_like(change_N)


def compared(name: str, before_NtD: Tensor, after_NtD: Tensor) -> Effect:
    """Compare the states of every token, and their means, before and after: both N × t × D, the same tokens."""
    tokens = (after_NtD - before_NtD).square().sum(-1).mean(1)
    first, second = before_NtD.mean(1), after_NtD.mean(1)
    pooled = (second - first).square().sum(-1)
    return Effect(
        name,
        relative(tokens, squared_distance(before_NtD.flatten(0, 1))),
        relative(pooled, squared_distance(first)),
        float(F.cosine_similarity(first, second, dim=-1).mean()),
    )


@dataclass(frozen=True)
class Interventions:
    """What every intervention did, and the names of those that were done by the same token ids in another order."""

    effects: tuple[Effect, ...]

    def __getitem__(self, name: str) -> Effect:
        return next(effect for effect in self.effects if effect.name == name)

    def get(self, name: str) -> Effect | None:
        """Return the effect of an intervention; None where the model does not allow it."""
        return next((effect for effect in self.effects if effect.name == name), None)

    @property
    def order(self) -> bool:
        """Whether order changes anything in the output."""
        permuted = self[PERMUTED]
        return max(permuted.tokens, permuted.pooled or 0.0, self[OTHERS].tokens) > CHANGED


def interventions(subject: Subject, capture: Capture) -> Interventions:
    """Run every intervention that this model allows."""
    ids = capture.ids_NT[:MOST_TEXTS]
    before = last_states(subject.forward, capture, ids)
    assert before is not None
    found = [_shifted(subject, capture, ids, step, before) for step in STEPS]
    if subject.tables() is not None:
        with subject.without_positions(capture.length):
            after = last_states(subject.forward, capture, ids)
        assert after is not None
        found.append(compared(MEAN_ROW, before, after))
    generator = torch.Generator().manual_seed(0)
    found.append(_permuted(subject, capture, ids, before, generator))
    found.append(_others_permuted(subject, capture, ids, before, generator))
    found.append(compared(ANOTHER, before, before.roll(1, dims=0)))
    return Interventions(tuple(effect for effect in found if effect is not None))


def _orders(count: int, texts: int, generator: torch.Generator) -> Int[Tensor, "N t"]:
    """One random order of ``count`` tokens for every text."""
    return torch.stack([torch.randperm(count, generator=generator) for _ in range(texts)])


def _permuted(
    subject: Subject, capture: Capture, ids_NT: Tensor, before_NtD: Tensor, generator: torch.Generator
) -> Effect:
    """All tokens in another order, each followed to its new place."""
    kept = capture.ordinary_T
    order_Nt = _orders(int(kept.sum()), len(ids_NT), generator)
    permuted = ids_NT.clone()
    permuted[:, kept] = ids_NT[:, kept].gather(1, order_Nt)
    after = last_states(subject.forward, capture, permuted)
    assert after is not None
    moved = before_NtD.gather(1, order_Nt[:, :, None].expand_as(before_NtD))
    effect = compared(PERMUTED, moved, after)
    return effect


def _others_permuted(
    subject: Subject, capture: Capture, ids_NT: Tensor, before_NtD: Tensor, generator: torch.Generator
) -> Effect:
    """Every eighth token stays and the others change places; what happens to those that stay."""
    places = capture.ordinary_T.nonzero().flatten()
    stays = torch.arange(len(places)) % STAYING == min(STAYING, len(places)) // 2
    moving = places[~stays]
    permuted = ids_NT.clone()
    permuted[:, moving] = ids_NT[:, moving].gather(1, _orders(len(moving), len(ids_NT), generator))
    after = last_states(subject.forward, capture, permuted)
    assert after is not None
    change = (after - before_NtD)[:, stays].square().sum(-1).mean(1)
    return Effect(OTHERS, relative(change, squared_distance(before_NtD.flatten(0, 1))), None)


def _shifted(subject: Subject, capture: Capture, ids_NT: Tensor, step: int, before_NtD: Tensor) -> Effect | None:
    """All positions ``step`` later, in windows short enough for the rows that there are; None if that is too short."""
    length = ids_NT.shape[1]
    room = length if subject.longest is None else min(length, subject.longest - step)
    if room < length / 2:
        return None
    after = last_states(partial(subject.shifted, step=step), capture, ids_NT[:, :room])
    if after is None:
        return None
    unmoved = before_NtD if room == length else last_states(subject.forward, capture, ids_NT[:, :room])
    assert unmoved is not None
    return compared(f"shifted by {step}", unmoved, after)


def tokens(found: Interventions) -> Finding:
    """How much the state of each token changes with the order of the tokens."""
    permuted, others = found[PERMUTED], found[OTHERS]
    if found[ANOTHER].tokens == 0.0:
        return skip(
            "cause.tokens", TOKENS, "Every token has the same last state, so there is no distance to measure by."
        )
    low, high = _span(permuted.tokens_N)
    verdict = (
        f"When the tokens of a text are permuted, the state of each token changes by {percent(permuted.tokens)} of the "
        f"squared distance between two random tokens (95 % interval {percent_range(low, high)}); where a token stays "
        f"in place and the others are permuted, by {percent(others.tokens)}."
    )
    return Finding(
        name="cause.tokens",
        question=TOKENS,
        verdict=verdict if found.order else "No token's state changes when the tokens are permuted: order is not seen.",
        value=permuted.tokens,
        interval=(low, high),
        references=(Reference("order ignored", 0.0), Reference("two random tokens", 1.0)),
        light="info" if found.order else "bad",
        table=Table.of(("intervention", "change of a token's state"), [(e.name, e.tokens) for e in found.effects]),
        figure=_figure(
            [(e.name, e.tokens_N) for e in found.effects if e.name != ANOTHER], "two random tokens", "a token's state"
        ),
        method=TOKENS_METHOD,
        source="shifted positions after Sinha et al. 2022",
    )


def cause(subject: Subject, found: Interventions, by_distance: bool) -> Finding:
    """How much the mean of the output changes when positions or the order of tokens are changed.

    ``by_distance``: whether attention was found to follow distances beyond its reference.
    """
    order = found[PERMUTED]
    assert order.pooled_N is not None and order.pooled is not None
    if found[ANOTHER].pooled == 0.0:
        return skip("cause", QUESTION, "All texts have the same mean output, so there is no distance to measure by.")
    low, high = _span(order.pooled_N)
    changes = (
        f"Permuting the tokens changes the mean of the output by {percent(order.pooled)} of the squared distance "
        f"between two texts (95 % interval {percent_range(low, high)})."
    )
    verdict = changes if order.pooled > CHANGED else "Permuting the tokens does not change the mean of the output."
    mean = found.get(MEAN_ROW)
    if mean is not None and mean.pooled is not None:
        verdict += f" Without its position rows the mean of the output changes by {percent(mean.pooled)}."
    light: Light = "info" if order.pooled > CHANGED else "bad"
    pooled = [(e.name, e.pooled_N) for e in found.effects if e.pooled_N is not None and e.name != ANOTHER]
    return Finding(
        name="cause",
        question=QUESTION,
        verdict=verdict + _shift_text(subject, found, by_distance),
        value=order.pooled,
        interval=(low, high),
        references=(Reference("order ignored", 0.0), Reference("another text", 1.0)),
        light=light,
        table=Table.of(
            ("intervention", "change of the mean", "cosine"),
            [(e.name, e.pooled, e.cosine) for e in found.effects if e.pooled is not None],
        ),
        figure=_figure(pooled, "another text", "the mean of the output"),
        method=METHOD,
        source="shifted positions after Sinha et al. 2022",
    )


def _shift_text(subject: Subject, found: Interventions, by_distance: bool) -> str:
    """What a shift of all positions does; that only distances matter is said where order and distance both do."""
    one = found.get("shifted by 1")
    if one is None and subject.unknown:
        return " Its positions were not shifted, for where it keeps them is not recorded here."
    only = found.order and by_distance
    if one is None:
        return " There are no absolute positions to shift" + (": only distances matter." if only else ".")
    if max(one.tokens, one.pooled or 0.0) < CHANGED:
        return " Shifting all positions changes nothing" + (": only distances matter." if only else ".")
    return f" Shifting all positions by one changes it by {percent(one.pooled or 0.0)}."


def loss(subject: Subject, capture: Capture, seen: Influence) -> Finding:
    """How much worse the next token is predicted when the tokens before it are permuted."""
    if subject.looks_across or not seen.causal:
        return skip("cause.loss", LOSS, "It is no language model that writes from left to right: it has no next token.")
    pair = token_losses(subject, capture)
    if pair is None:
        return skip("cause.loss", LOSS, "The model came without its output layer, so that it predicts no token.")
    ordered, permuted = pair
    difference_N = (permuted - ordered).mean(1)
    value, (low, high) = float(difference_N.mean()), mean_interval(difference_N)
    numbers = (
        f"The next token costs {float(ordered.mean()):.2f} nats, and {float(permuted.mean()):.2f} when the tokens "
        f"before it are permuted: {_signed(value)} nats (95 % interval {_signed(low)} to {_signed(high)})."
    )
    changed = float((permuted - ordered).abs().max()) > CHANGED
    if not changed:
        told, light = (
            "The next token is predicted alike in any order of the tokens before it: order is not used.",
            "bad",
        )
    elif low > 0:
        told, light = f"{numbers} Order helps to predict it.", "good"
    elif high < 0:
        told, light = f"{numbers} It predicts better without their order.", "warn"
    else:
        told, light = f"{numbers} Whether order helps is undecided.", "info"
    return Finding(
        name="cause.loss",
        question=LOSS,
        verdict=told,
        value=value,
        unit="nats",
        interval=(low, high),
        references=(Reference("order ignored", 0.0),),
        light=light,  # type: ignore[arg-type]
        table=Table.of(
            ("tokens before it", "in order", "permuted"),
            list(zip(_ends(capture), ordered.mean(0), permuted.mean(0), strict=True)),
        ),
        method=LOSS_METHOD,
        source="word order by permutation after Sinha et al. 2021; natural logarithms",
    )


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _ends(capture: Capture) -> list[int]:
    """How many tokens stand before those that are predicted."""
    length = int(capture.ordinary_T.nonzero()[-1])
    return sorted({max(2, round(length * part)) for part in (0.25, 0.5, 0.75, 1.0)})


def token_losses(subject: Subject, capture: Capture) -> tuple[Float[Tensor, "N e"], Float[Tensor, "N e"]] | None:
    """Negative log-likelihood of the tokens at the ends of N texts, in order and after permuted tokens."""
    ids, generator = capture.ids_NT[:LOSS_TEXTS], torch.Generator().manual_seed(0)
    columns: tuple[list[Tensor], list[Tensor]] = ([], [])
    for end in _ends(capture):
        kept = capture.ordinary_T[:end]
        permuted = ids[:, :end].clone()
        permuted[:, kept] = permuted[:, kept].gather(1, _orders(int(kept.sum()), len(ids), generator))
        for column, prefixes in zip(columns, (ids[:, :end], permuted), strict=True):
            parts = []
            for rows in torch.arange(len(ids)).split(8):
                logits = subject.next_logits(prefixes[rows])
                if logits is None:
                    return None
                parts.append(F.cross_entropy(logits.double().cpu(), ids[rows, end], reduction="none"))
            column.append(torch.cat(parts))
    return torch.stack(columns[0], dim=1), torch.stack(columns[1], dim=1)


def _span(change_N: Float[Tensor, " N"]) -> tuple[float, float]:
    return bootstrap(change_N, torch.ones_like(change_N))


def _figure(changes: Sequence[tuple[str, Tensor]], one: str, what: str) -> Figure:
    intervals = [_span(change_N) for _, change_N in changes]
    bars = mark(
        "bars",
        [name for name, _ in changes],
        [float(change_N.mean()) for _, change_N in changes],
        low=[low for low, _ in intervals],
        high=[high for _, high in intervals],
        emphasis="main",
    )
    return Figure((Panel((bars, level(1.0, one)), ylabel=f"change of {what}"),))
