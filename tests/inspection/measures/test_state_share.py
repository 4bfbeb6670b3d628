"""How much of the state is position, of models that add it and of models that do not."""

from __future__ import annotations

from .. import planted
from ..planted import answer


def test_how_much_of_the_state_is_position() -> None:
    heard = answer("survival.share", *planted.subject_of(planted.uniform("encoder", "sinusoidal")))
    deaf = answer("survival.share", *planted.subject_of(planted.uniform()))
    assert "95 % interval" in heard.verdict and "undecided" not in heard.verdict
    assert deaf.verdict.endswith("Whether it accounts for any after the last layer is undecided.")
    assert heard.value > 0.1 and abs(deaf.value) < 0.02  # type: ignore[operator, arg-type]
