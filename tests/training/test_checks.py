"""What does not fit the memory is refused before text is read or a folder is claimed."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.errors import ClockhandsWarning, UsageError
from clockhands.model.size import count_bytes
from clockhands.runs.recipe import Recipe, make_recipe
from clockhands.training import train
from clockhands.training.checks import check_batches
from clockhands.training.model import configure
from clockhands.training.training_data import prepare
from tests.training.tiny import tables


def small(**settings: str) -> Recipe:
    return make_recipe(tables(), {key.replace("__", "."): value for key, value in settings.items()}, written=True)


def test_a_model_is_judged_before_its_text_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("clockhands.model.size.measure_free_memory", lambda device: 10**6)
    monkeypatch.setattr("clockhands.training.session.prepare", None)
    with pytest.raises(UsageError, match=r"a model of these sizes has .* parameters and needs .* are free"):
        train(small(model__d_model="1024"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_threads_are_judged_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"training\.threads is 100000; \d+ are the most that help"):
        train(small(training__threads="100000"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("settings", [{"batches__size": "240"}, {"batches__tokens": "100000"}])
def test_a_batch_is_judged_with_the_text_at_hand(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain, large = small(batches__size="2"), small(**settings)
    material = prepare(plain)
    needed = count_bytes(configure(plain, material.tokenizers).transformer_config, training=True)
    monkeypatch.setattr("clockhands.devices.measure_free_memory", lambda device: needed + 100_000)
    check_batches(plain, material)
    with pytest.raises(UsageError, match=r"a batch of [\d,]+ tokens needs, .* are free; lower batches\.size or"):
        check_batches(large, material)
    with pytest.raises(UsageError, match="a batch of"):
        train(large, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_more_examples_than_there_are_make_no_larger_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small(batches__size=str(10**15))
    check_batches(recipe, prepare(recipe))


def test_windows_that_cannot_be_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat sat on the mat. " * 200)
    data = {"corpus": "text", "train": str(tmp_path / "a.txt"), "unit": "file", "holdout": 0.2}
    given = {**tables(), "data": data, "tokenizer": {"kind": "character"}, "model": {"preset": "tiny", "d_model": 16}}
    recipe = make_recipe(given, {"batches.per_epoch": 10**15, "batches.window": 20})
    with pytest.raises(UsageError, match="their order alone needs"):
        check_batches(recipe, prepare(recipe))


def test_pairs_of_more_than_the_longest_text_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = [*(f"Satz {n}" for n in range(40)), "Wort " * 2000]
    for side in ("de", "en"):
        (tmp_path / f"a.{side}").write_text("\n".join(lines) + "\n")
    data = {"corpus": "parallel", "source": str(tmp_path / "a.de"), "target": str(tmp_path / "a.en"), "holdout": 0.1}
    given = {**tables(), "data": data}
    with pytest.warns(ClockhandsWarning, match=r"1 of \d+ pairs has a side of more than 1,024 tokens, and is left out"):
        material = prepare(make_recipe(given, {}))
    assert max(*material.train.longest, *material.validation.longest) < 1024
    longer = prepare(make_recipe(given, {"batches.max_length": 5000}))
    assert (
        max(*longer.train.longest, *longer.validation.longest) == 2002
    )  # the words, a space at the end, and the end itself
