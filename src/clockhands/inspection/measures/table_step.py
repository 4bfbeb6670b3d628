"""Is a step along the position table the same map everywhere?"""

from __future__ import annotations

from clockhands.findings import SHARE, Figure, Finding, Number, Panel, Reference, Table, join_words
from clockhands.inspection.drawing import make_mark
from clockhands.inspection.estimators.intervals import estimate_mean_interval
from clockhands.inspection.estimators.step_errors import ROTATION, SAME_MAP_ERROR, StepErrors, measure_step
from clockhands.inspection.measures.measure import INPUT_HEADING, Measure
from clockhands.inspection.measures.position_rows import read_rows
from clockhands.inspection.number_format import format_percent
from clockhands.inspection.reading.reading import Reading

STEPS = (1, 2, 4, 8, 16)
"""Steps, in positions, that are measured; a table of fewer than four times as many rows is too short for one."""


class TableStep(Measure):
    """Whether one linear map, or a rotation, carries each position to the one k later, better than standing still."""

    name = "table.shift"
    question = "Is a step along the sequence always the same rotation?"
    references = ("standing still", "best multiple of the row")
    method = (
        "The best affine map, and the best rotation with a translation (orthogonal Procrustes; it may include a "
        "reflection), from p_t to p_t+k are "
        "fitted in the leading principal components (99 % of the variance, at most 64 and at most a quarter of the "
        "rows) of seven eighths of the rows and judged on the eighth left out, a stretch of neighbouring rows, in "
        "turn: mean squared error over mean squared length, 0 for a perfect clock, 1 for guessing the mean. "
        "References: standing still, p_t in place of p_t+k, and the best multiple of p_t, fitted likewise; any smooth "
        "table is predicted well by these. A map counts only if its error is smaller than both by more than the 95 % "
        "interval (t, over the eight stretches) of the difference; the step is said to be the same everywhere if its "
        f"error is also below {SAME_MAP_ERROR}."
    )
    source = "Vaswani et al. 2017, section 3.5: PE(t+k) is a linear function of PE(t)"
    heading = INPUT_HEADING

    def run(self, reading: Reading) -> Finding:
        """Measure the table at the input; the value is the held-out error of a step by one."""
        rows = read_rows(reading.subject)
        if isinstance(rows, str):
            return self.skip(rows)
        errors = [measure_step(rows.centred_ND, k) for k in STEPS if 4 * k <= len(rows.centred_ND)]
        first = errors[0]
        columns = ("step", "linear map", "rotation", "standing still", "best multiple", "gain of the map, low", "high")
        return self.make_finding(
            _describe(errors),
            first.reported_error,
            unit=SHARE,
            interval=estimate_mean_interval(first.by_stretch_s4[:, first.reported_map]),
            references=(
                Reference("standing still", first.standing_still),
                Reference("best multiple of the row", first.multiple),
            ),
            light="good" if first.is_same_map else "info",
            table=Table.of(columns, [_make_row(error) for error in errors]),
            figure=_draw_figure(errors),
        )


def _make_row(errors: StepErrors) -> tuple[Number, ...]:
    """Return the row of one step in the table of the finding."""
    gain = errors.estimate_gain(errors.reported_map)
    return (errors.step, errors.linear, errors.rotation, errors.standing_still, errors.multiple, *gain)


def _describe(errors: list[StepErrors]) -> str:
    """Say whether one map predicts the next row better than the references do, or that this is undecided."""
    first = errors[0]
    low, high = first.estimate_gain(first.reported_map)
    name = "rotation" if first.reported_map == ROTATION else "linear map"
    numbers = (
        f"on stretches of rows that it was not fitted on, the best {name} has an error of "
        f"{format_percent(first.reported_error)} of their squared length, standing still "
        f"{format_percent(first.standing_still)}, the best multiple of the row {format_percent(first.multiple)}"
    )
    if first.is_same_map:
        longer = errors[1:]
        all_same = longer and all(error.is_same_map and error.reported_map == first.reported_map for error in longer)
        further = f" So is a step by {join_words(str(error.step) for error in longer)}." if all_same else ""
        return f"A step by one is the same {name} everywhere: {numbers}.{further}"
    if low > 0:
        return f"One {name} predicts the next row better than standing still and than a multiple of the row: {numbers}."
    if high < 0:
        return (
            f"No one {name} predicts the next row better than both standing still and a multiple of the row: {numbers}."
        )
    return (
        f"It is undecided whether one {name} predicts the next row better than both standing still and a multiple of "
        f"the row: {numbers}."
    )


def _draw_figure(errors: list[StepErrors]) -> Figure:
    """Draw the errors of the maps and of the references by step."""
    steps = [error.step for error in errors]
    lines = (
        make_mark("line", steps, [error.linear for error in errors], label="linear map"),
        make_mark("line", steps, [error.rotation for error in errors], label="rotation", emphasis="main"),
        make_mark(
            "line", steps, [error.standing_still for error in errors], label="standing still", emphasis="reference"
        ),
        make_mark("line", steps, [error.multiple for error in errors], label="best multiple", emphasis="reference"),
    )
    panel = Panel(lines, xlabel="step k, in positions", ylabel="held-out error", xscale="log")
    return Figure((panel,), title="Error of the row k positions later, predicted from this one")
