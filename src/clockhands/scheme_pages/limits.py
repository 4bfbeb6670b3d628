"""When a scheme should not be taken, as far as it declares so itself."""

from __future__ import annotations

from clockhands.schemes import Declares

SLOW = 2.0
"""Times the cost of no position from which a page says that a scheme costs time."""


def list_limits(declares: Declares, in_encoder: Declares, cost: float | None) -> list[str]:
    """Return where a scheme does not serve, one phrase each, by what it declares and by its measured cost.

    ``in_encoder``: what it declares where the model has no causal mask.
    """
    limits = []
    if declares.max_length is None and declares.beyond == "raise":
        limits.append("beyond its window: tokens that are further apart are refused")
    if declares.max_length is not None and declares.beyond != "extrapolate":
        what = "are refused" if declares.beyond == "raise" else "are read as the last one"
        limits.append(f"for texts of more than {declares.max_length:,} tokens: later positions {what}")
    if declares.depends_on_length:
        longer = f" longer than {declares.steady_length:,} tokens" if declares.steady_length else ""
        limits.append(
            f"to generate texts{longer} with a KV cache: what a token gets changes with the length, so that the whole "
            "text is read again at every step"
        )
    if in_encoder.causal_only:
        limits.append("in an encoder: it is defined for keys before the query alone")
    if not declares.translation_invariant:
        limits.append("where a text may begin at any position: a shift of all positions changes what it does")
    if not declares.real_valued:
        limits.append("for positions between whole numbers, such as times: they are refused")
    if declares.axes == 1 and not declares.more_axes:
        limits.append("for positions of several coordinates, such as those of images: they are refused")
    elif declares.axes not in (None, 1):
        limits.append(f"for positions that are single numbers alone: it reads {declares.axes} coordinates")
    if declares.stochastic:
        limits.append("where training must be equal from pass to pass: it draws random numbers")
    if cost is not None and cost >= SLOW:
        limits.append(f"where the time of attention counts: it takes {cost:.2f} times that of no position")
    return limits
