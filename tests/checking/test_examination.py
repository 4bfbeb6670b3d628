"""From names and models to results: checkpoints, configurations, adapters, and what cannot be opened."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import clockhands
from clockhands.checking import examine
from clockhands.checking.builds import build_model, find, tiny_config
from clockhands.errors import CheckpointError, UsageError


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    build_model(tiny_config(find("gpt2:causal")[0]), "causal").save_pretrained(folder)
    return folder


ONLY = ["padding", "cache.steps", "shift", "config"]


def test_a_checkpoint_is_checked_with_its_own_weights(checkpoint: Path) -> None:
    (result,) = examine(str(checkpoint), only=ONLY)
    verdicts = {outcome.check: outcome.verdict for outcome in result.outcomes}
    assert verdicts["cache.steps"] == verdicts["padding.left.positions"] == "PASS"
    assert verdicts["padding.left.mask"] == verdicts["shift"] == "PROPERTY"
    assert {verdict for check, verdict in verdicts.items() if check.startswith("config")} == {"N/A"}


def test_a_checkpoints_configuration_alone_is_enough(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((checkpoint / "config.json").read_text())
    (result,) = examine(str(tmp_path), tiny=True, only=["cache.steps"])
    assert (result.model, result.outcomes[0].verdict) == ("gpt2:causal", "PASS")


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read the configuration of .*nowhere"):
        examine(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="unknown dtype 'half8': use float32, float64, bfloat16 or float16"):
        (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
        examine(str(tmp_path), dtype="half8")


def test_a_function_is_checked_as_it_is() -> None:
    """The sum of what was read: causal, and blind to order."""
    table = torch.randn(30, 8)

    def logits(ids: Tensor) -> Tensor:
        return table[ids].cumsum(1) @ table.T

    findings = clockhands.check(logits, vocabulary=30, only=["causal", "order", "padding.right"])
    assert findings["check.causal.future"].light == "good"
    assert findings["check.order.matters"].light == "bad"
    assert findings["check.padding.right"].verdict == "N/A. the model takes no mask."


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot check a list: give a model folder or name"):
        clockhands.check([1, 2])


def test_a_model_without_embedding_needs_its_vocabulary() -> None:
    with pytest.raises(UsageError, match=r"Linear has no nn\.Embedding: pass vocabulary="):
        clockhands.check(torch.nn.Linear(2, 2))
