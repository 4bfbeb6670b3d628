"""Everything is judged once: a recipe, a configuration; a scheme is looked at once, and built for the model."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clockhands.cli import main
from clockhands.errors import ConfigError
from clockhands.model import config
from clockhands.model.config import TransformerConfig
from clockhands.model.huggingface_base import ClockhandsConfig
from clockhands.runs import Run
from clockhands.runs.recipe import Recipe
from clockhands.schemes import CATALOGUE
from clockhands.training import resume, train
from tests.training.tiny import tables

TINY = {**tables(max_steps=1, accumulate=1, save_steps=None, eval_steps=None), "position": {"scheme": "rope"}}
OVERRIDES = (
    *("data.train=40", "data.validation=10", "data.test=10", "model.d_model=16", "model.num_heads=2", "model.d_ff=16"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "tokenizer.kind=word", "position.scheme=rope"),
    "training.max_steps=1",
)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each real function was called since the beginning of the test."""
    # transformers compares every configuration that it writes with a default one, made once in a process.
    ClockhandsConfig()
    made: Counter[str] = Counter()

    def count(owner: Any, name: str, key: str, wrap: Callable[[Any], Any] = lambda function: function) -> None:
        real = getattr(owner, name)

        @functools.wraps(real)
        def counting(*given: Any, **options: Any) -> Any:
            made[key] += 1
            return real(*given, **options)

        monkeypatch.setattr(owner, name, wrap(counting))

    count(Recipe, "from_tables", "recipe", staticmethod)
    count(config, "find_faults", "configuration")
    count(CATALOGUE["rope"], "__init__", "rope")
    return made


def test_a_training_from_python_judges_all_once(tmp_path: Path, counts: Counter[str]) -> None:
    run = train(TINY, tmp_path / "run")
    assert run.recipe.model.encoder.scheme == "rope"
    assert counts == {"recipe": 1, "configuration": 1, "rope": 2 + 2}


def test_a_training_from_the_command_line_judges_all_once(
    tmp_path: Path, counts: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    assert main(["train", "--corpus", "roles", "--preset", "tiny", "--set", *OVERRIDES, "--out", out]) == 0
    assert "1 steps" in capsys.readouterr().out
    assert counts == {"recipe": 1, "configuration": 1, "rope": 2 + 2}


def test_a_resumed_training_judges_its_recipe_and_the_longer_one(tmp_path: Path, counts: Counter[str]) -> None:
    train(TINY, tmp_path / "run")
    counts.clear()
    assert resume(tmp_path / "run", {"training.max_steps": 2}).record["step"] == 2
    assert counts["recipe"] == counts["configuration"] == 2


def test_what_a_run_keeps_is_the_recipe_that_its_file_holds(tmp_path: Path) -> None:
    run = train(TINY, tmp_path / "run")
    assert Run.from_folder(tmp_path / "run").recipe == run.recipe


def test_other_vocabularies_are_judged_without_the_rest(counts: Counter[str]) -> None:
    config = TransformerConfig(decoder_layers=1, encoder_layers=1, d_model=16, num_heads=2, d_ff=16)
    counts.clear()
    assert config.with_vocabularies(50, None).vocab_size == 50
    with pytest.raises(ConfigError, match=r"the vocabularies have 40 \(source\) and 50 \(target\) tokens"):
        config.with_vocabularies(50, 40)
    assert counts == {}
