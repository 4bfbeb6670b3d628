"""Do positions, and tokens, survive through the layers? What probes read back at every layer.

In names of tensors ``n`` are the random splits of the texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.findings import SHARE, Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import make_mark, make_reference_line
from clockhands.inspection.estimators.probes import compute_corrected_interval
from clockhands.inspection.measures.layer_probes import (
    ProbeScores,
    fit_position_network,
    probe_layers,
    probe_without_residuals,
)
from clockhands.inspection.measures.measure import LAYERS_HEADING, TASK, Measure, make_untrained_reference
from clockhands.inspection.number_format import format_percent, format_percent_range
from clockhands.inspection.reading.capture import FIRST_POSITION_NOTE, Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor

LEAST_LINEAR = 0.03
"""A network is tried where no layer's probe reads back this share of positions, or three times chance if that is
more."""


class Survival(Measure):
    """Position and token read back at every layer, with their controls."""

    name = "survival"
    question = "Do positions survive through the layers?"
    references = ("chance", "positions permuted", "untrained")
    method = (
        "Ridge regression from the hidden state to one indicator per position, fitted on about three quarters of the "
        "texts and judged on the rest, in ten random splits; exact hits count. Texts that repeat each other stay on "
        "one side, unless all texts do. At most 48 texts are used, whatever number is read, and as many of the "
        "untrained model: a probe that is fitted on more texts scores higher. Tokens: ridge regression to the token's "
        "input embedding, nearest by cosine among the tokens of the text. A random model usually keeps everything: a "
        "probe alone proves little. Permuted: the last layer, the positions of the texts that a probe is fitted on in "
        "another order. Where the linear probe finds nothing, a two-layer network gets the state of the last layer but "
        "one (of one layer, the last), less the mean state, and the log of that difference's length, for a model "
        "without positional encoding can hold the position in the length of its vectors. In models of this project the "
        "probe is repeated with all residual connections removed. Interval: Student's t over the splits, the variance "
        "corrected for their overlap (Nadeau & Bengio 2003), cut at 0 and 1; where every position of every text is "
        "read back, or none, the exact bound of Clopper & Pearson over the texts." + FIRST_POSITION_NOTE
    )
    source = "probes after Alain & Bengio 2016; the network after Haviv et al. 2022 and Chi et al. 2023"
    heading = LAYERS_HEADING
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        """Probe every layer; the value is the share of positions read back after the last."""
        subject, capture, control = reading.subject, reading.capture, reading.control
        trained = probe_layers(subject, capture)
        untrained = probe_layers(control.subject, control.capture) if control else None
        chance = 1 / int(capture.measured_T.sum())
        shares_by_split_without_residuals = probe_without_residuals(subject, capture)
        without_residuals = [float(shares_n.mean()) for shares_n in shares_by_split_without_residuals]
        return self.make_finding(
            _describe(trained, untrained, chance)
            + _describe_network(trained, capture, chance)
            + _describe_without_residuals(
                shares_by_split_without_residuals, trained.cross_validation.held_out_ratio, chance
            ),
            trained.position_shares[-1],
            unit=SHARE,
            interval=trained.position_intervals[-1],
            references=(
                Reference("chance", chance),
                Reference("positions permuted", trained.permuted_share),
                *make_untrained_reference(untrained.position_shares[-1] if untrained else None),
            ),
            light="info",
            table=_make_table(trained, untrained, without_residuals),
            figure=_draw_figure(trained, untrained, chance, without_residuals),
            details={"permuted": trained.permuted_share, "texts fitted on": trained.cross_validation.fitted_texts},
        )


def _describe(trained: ProbeScores, untrained: ProbeScores | None, chance: float) -> str:
    """Say what is read back after the embedding and the last layer, and whether the latter is more than chance."""
    untrained_note = ""
    if untrained:
        embedding, last = (format_percent(untrained.position_shares[layer]) for layer in (0, -1))
        untrained_note = f"; untrained {embedding} and {last}"
    low, high = trained.position_intervals[-1]
    conclusion = (
        "After the last layer positions are still read back more often than by chance."
        if low > max(chance, trained.permuted_share)
        else "Whether any position can be read back after the last layer is undecided."
    )
    return (
        f"The exact position is read back in {format_percent(trained.position_shares[0])} of cases after the "
        f"embedding and in {format_percent(trained.position_shares[-1])} after the last layer (95 % interval "
        f"{format_percent_range(low, high)}; chance {format_percent(chance)}; positions permuted "
        f"{format_percent(trained.permuted_share)}{untrained_note}); the token in "
        f"{format_percent(trained.token_shares[0])} and {format_percent(trained.token_shares[-1])}. {conclusion} "
        f"Probes were fitted on {trained.cross_validation.fitted_texts:.0f} texts."
    )


def _describe_network(trained: ProbeScores, capture: Capture, chance: float) -> str:
    """Say what a network reads back where the linear probe finds nothing; empty where it finds something."""
    if max(trained.position_shares) >= max(3 * chance, LEAST_LINEAR):
        return ""
    layer = max(1, len(capture.hidden) - 2)
    r2 = max(0.0, fit_position_network(capture, layer))
    return (
        f" After layer {layer} a two-layer network, which is also given the length of each state less the mean, "
        f"predicts the position with R² {r2:.2f} (0: no better than the mean position)."
    )


def _describe_without_residuals(
    shares_by_split: Sequence[Float[Tensor, " n"]], held_out_ratio: float, chance: float
) -> str:
    """Say what is left of the positions without residual connections; empty where these cannot be removed."""
    if not shares_by_split:
        return ""
    share = format_percent(float(shares_by_split[-1].mean()))
    if compute_corrected_interval(shares_by_split[-1], held_out_ratio)[0] > chance:
        return f" With the residual connections removed, {share} of positions are read back after the last layer."
    return (
        " With the residual connections removed, it is undecided whether any position can be read back after the last "
        f"layer ({share}; chance {format_percent(chance)})."
    )


def _make_table(trained: ProbeScores, untrained: ProbeScores | None, without_residuals: list[float]) -> Table:
    """List all shares by layer; columns of what was not measured are empty."""
    empty = [None] * len(trained.position_shares)
    columns: dict[str, Sequence[float | None]] = {  # saved tables keep these names, in which a token is a word
        "layer": range(len(trained.position_shares)),
        "position": trained.position_shares,
        "from": [low for low, _ in trained.position_intervals],
        "to": [high for _, high in trained.position_intervals],
        "word": trained.token_shares,
        "position, untrained": untrained.position_shares if untrained else empty,
        "word, untrained": untrained.token_shares if untrained else empty,
        "position, no residuals": without_residuals or empty,
    }
    return Table.of(tuple(columns), list(zip(*columns.values(), strict=True)))


def _draw_figure(
    trained: ProbeScores, untrained: ProbeScores | None, chance: float, without_residuals: list[float]
) -> Figure:
    """Draw the shares by layer."""
    layers = range(len(trained.position_shares))
    lows, highs = ([interval[end] for interval in trained.position_intervals] for end in (0, 1))
    marks = [
        make_mark("line", layers, trained.position_shares, low=lows, high=highs, label="position", emphasis="main"),
        make_mark("line", layers, torch.tensor(trained.token_shares), label="token"),
    ]
    if untrained is not None:
        positions = torch.tensor(untrained.position_shares)
        marks.append(make_mark("line", layers, positions, label="position, untrained", emphasis="reference"))
    if without_residuals:
        marks.append(make_mark("line", layers, torch.tensor(without_residuals), label="position, residuals removed"))
    marks.append(make_reference_line(chance, "chance"))
    panel = Panel(tuple(marks), xlabel="layer (0: embedding)", ylabel="share read back exactly", ylim=(0.0, 1.02))
    return Figure((panel,), title="Position and token, read back from the states of every layer")
