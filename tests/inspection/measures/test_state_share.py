"""How much of the state is position, of models that add it and of models that do not."""

from __future__ import annotations

from clockhands.inspection.measures.state_share import _describe

from .. import planted
from ..planted import answer


def test_how_much_of_the_state_is_position() -> None:
    heard = answer("survival.share", *planted.subject_of(planted.uniform("encoder", "sinusoidal")))
    deaf = answer("survival.share", *planted.subject_of(planted.uniform()))
    assert "95 % interval" in heard.verdict and "undecided" not in heard.verdict
    assert deaf.verdict.endswith("Whether it accounts for any after the last layer is undecided.")
    assert heard.value > 0.1 and abs(deaf.value) < 0.02  # type: ignore[operator, arg-type]


def test_the_layer_with_most_position_is_named() -> None:
    assert _describe([0.1, 0.3, 0.05], (0.02, 0.08), [0.2, 0.04]) == (
        "Position accounts for 10 % of the variance of the states after the embedding and for 5.0 % after the last "
        "layer (95 % interval 2.0 % to 8.0 %; untrained 20 % and 4.0 %); the largest share is 30 %, after layer 1."
    )
    assert "the largest share is 40 %, after the embedding." in _describe([0.4, 0.3], None, None)
