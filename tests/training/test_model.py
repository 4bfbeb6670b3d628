"""What does not fit the memory is refused before text is read or a folder is claimed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from clockhands.errors import CheckpointError, ClockhandsWarning, ConfigError, UsageError
from clockhands.model import Transformer
from clockhands.model.size import count_bytes
from clockhands.runs import Run
from clockhands.runs.folder import BEGIN
from clockhands.runs.recipe import Recipe, make_recipe, vary_recipe
from clockhands.training import resume, train
from clockhands.training.model import build, check_batches, configure
from clockhands.training.training_data import prepare
from tests.training.test_session import on_step
from tests.training.tiny import tables


def small(**settings: str) -> Recipe:
    return make_recipe(tables(), {key.replace("__", "."): value for key, value in settings.items()}, written=True)


def test_a_model_is_judged_before_its_text_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("clockhands.model.size.measure_free_memory", lambda device: 10**6)
    monkeypatch.setattr("clockhands.training.session.prepare", None)
    with pytest.raises(UsageError, match=r"a model of these sizes has .* parameters and needs .* are free"):
        train(small(model__d_model="1024"), tmp_path / "run")
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


def test_sizes_and_special_tokens_are_those_of_the_tokenizers() -> None:
    recipe = vary_recipe(Recipe.from_tables(tables(label_smoothing=0.1)), {"tokenizer.shared": False})
    tokenizers = prepare(vary_recipe(recipe, {"model.tying": "target"})).tokenizers
    config = configure(vary_recipe(recipe, {"model.tying": "target"}), tokenizers)
    transformer = config.transformer_config
    assert transformer.get_vocabulary_size("encoder") == len(tokenizers.source)
    assert transformer.get_vocabulary_size("decoder") == len(tokenizers.target)
    assert config.decoder_start_token_id == tokenizers.target.bos_token_id
    assert (config.eos_token_id, config.pad_token_id) == (
        tokenizers.target.eos_token_id, tokenizers.target.pad_token_id,
    )  # fmt: skip
    assert (config.label_smoothing, config.tokenizer_fingerprint) == (0.1, tokenizers.fingerprint)
    with pytest.raises(ConfigError, match="three-way"):
        configure(vary_recipe(recipe, {"model.tying": "three-way"}), tokenizers)


def test_a_model_is_drawn_from_the_global_random_numbers() -> None:
    recipe = Recipe.from_tables(tables())
    tokenizers = prepare(recipe).tokenizers
    models = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append(build(recipe, tokenizers))
    weights = [model.transformer.output.weight for model in models]
    assert all(isinstance(model.transformer, Transformer) for model in models)
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


STILL = 1e-12
"""A learning rate at which one step leaves the weights, to the sixth digit, as they began."""
MODEL = {"preset": "tiny", "d_model": 16, "num_heads": 2, "d_ff": 32, "decoder_layers": 2, "tying": "target"}
TRAINING = {"max_steps": 4, "learning_rate": 0.01, "log_steps": 1, "threads": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("the cat sat on the mat and the dog sat on the cat\n" * 60)
    return {"corpus": "text", "train": str(text), "unit": "file"}


@pytest.fixture(scope="module")
def rope(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A language model of characters with turned keys, dropout and an option that is not the default."""
    return train(data_tables(data), tmp_path_factory.mktemp("runs") / "rope")


@pytest.fixture(scope="module")
def t5(rope: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same with a table of biases."""
    return train(rope.recipe, tmp_path_factory.mktemp("runs") / "t5", {"position.scheme": "t5"})


def data_tables(data: dict[str, Any], **changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    whole = {
        "data": data,
        "tokenizer": {"kind": "character"},
        "model": {**MODEL, "kind": "decoder", "dropout": 0.1},
        "position": {"scheme": "rope", "base": 500.0},
        "batches": {"size": 4, "window": 16},
        "training": TRAINING,
    }
    return {**whole, **changes}


def from_run(run: Run, data: dict[str, Any], **training: Any) -> dict[str, dict[str, Any]]:
    """A recipe that says what to read and how long, and nothing of the model."""
    given = {**TRAINING, "begin_from": str(run.path), **training}
    return {"data": data, "batches": {"size": 4, "window": 16}, "training": given}


def weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.path / "model.safetensors")


def test_everything_is_taken_over_where_the_recipe_says_nothing(
    rope: Run, data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(from_run(rope, data, learning_rate=STILL, max_steps=1), tmp_path / "run", progress=True)
    assert run.recipe.model == rope.recipe.model
    assert run.recipe.model.decoder.options["base"] == 500.0
    assert run.recipe.training.begin_from == str(rope.path), "the resolved recipe records it"
    torch.testing.assert_close(weights(run), weights(rope), rtol=0, atol=1e-6)
    assert run.tokenizers.source.get_vocab() == rope.tokenizers.source.get_vocab()
    assert "beginning from" not in capsys.readouterr().err, "there is nothing to tell of"
    assert not (run.path / BEGIN).exists(), "a finished run needs it no more"


def test_interpolated_positions_keep_every_weight(rope: Run, data: dict[str, Any], tmp_path: Path) -> None:
    settings = {"position.spectrum": "linear", "position.factor": 2.0}
    run = train(from_run(rope, data, learning_rate=STILL, max_steps=1), tmp_path / "run", settings)
    options = run.model.config.transformer_config.decoder.options
    assert (options["spectrum"], options["factor"], options["base"]) == ("linear", 2.0, 500.0)
    torch.testing.assert_close(weights(run), weights(rope), rtol=0, atol=1e-6)


def test_the_length_that_a_spectrum_asks_for_is_that_of_the_run_before(
    rope: Run, data: dict[str, Any], tmp_path: Path
) -> None:
    bent = {"position.spectrum": "yarn", "position.factor": 2.0}
    assert rope.trained_length == 16
    assert make_recipe(from_run(rope, data), bent).model.decoder.options["original_length"] == 16
    told = make_recipe(from_run(rope, data), {**bent, "position.original_length": 5})
    assert told.model.decoder.options["original_length"] == 5
    opened = Run(rope.path, "cpu", position={"spectrum": "yarn", "factor": 4.0}).model
    assert opened.config.transformer_config.decoder.options["original_length"] == 16
    from_other = {**from_run(rope, data), "position": {"scheme": "rope"}, "batches": {"window": 32}}
    assert make_recipe(from_other, bent).model.decoder.options["original_length"] == 16
    far = make_recipe(from_run(rope, data), {"position.scheme": "rerope", "batches.window": 64})
    assert far.model.build_schemes("decoder").at_input.window == 8, "half of what the run was trained on"
    with pytest.raises(ConfigError, match=r"rerope\.window is 16, but must be below .* original_length = 16"):
        make_recipe(from_run(rope, data), {"position.scheme": "rerope", "position.window": 16})


def test_a_model_whose_trained_length_nobody_says_is_asked_for_it(
    rope: Run, data: dict[str, Any], tmp_path: Path
) -> None:
    """A folder with the model and its tokenizer alone; a window, which is enough, is not compared with anything."""
    path = Path(shutil.copytree(rope.path, tmp_path / "model"))
    (path / "recipe.toml").unlink()
    tables = {**from_run(rope, data), "training": {"begin_from": str(path), "max_steps": 1}}
    for scheme in ("fope", "dual-chunk", "rerope", "self-extend"):
        with pytest.raises(ConfigError, match=rf"{scheme}\.\w+ is not given"):
            make_recipe(tables, {"position.scheme": scheme})
    options = make_recipe(tables, {"position.scheme": "rerope", "position.window": 99}).model.decoder.options
    assert options["window"] == 99 and "original_length" not in options


def test_what_only_one_scheme_has_is_told_in_one_line_and_drawn(
    rope: Run, t5: Run, data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Drawn as in a run of that recipe and seed that begins from nothing."""
    still = {"learning_rate": STILL, "max_steps": 1}
    begun = train(from_run(rope, data, **still), tmp_path / "begun", {"position.scheme": "t5"}, progress=True)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("beginning from")]
    assert said == [f"beginning from {rope.path}; new, with random weights: decoder.schemes.*.table_HN"]
    fresh = train(t5.recipe, tmp_path / "fresh", {f"training.{key}": value for key, value in still.items()})
    ours, drawn, trained = weights(begun), weights(fresh), weights(rope)
    tables_of_bias = [name for name in ours if name.endswith("table_HN")]
    assert tables_of_bias
    for name in ours:
        expected = drawn[name] if name in tables_of_bias or name not in trained else trained[name]
        torch.testing.assert_close(ours[name], expected, rtol=0, atol=1e-6)

    dropped = train(from_run(t5, data, **still), tmp_path / "dropped", {"position.scheme": "none"}, progress=True)
    assert f"beginning from {t5.path}; not taken over: decoder.schemes.*.table_HN\n" in capsys.readouterr().err
    assert dropped.record["begun"]["left"] == ["model.decoder.schemes.0.table_HN"]


def test_numbers_of_another_scheme_are_not_taken_for_its_own(rope: Run, data: dict[str, Any], tmp_path: Path) -> None:
    """``deberta`` and ``tupe`` both have a ``to_key`` of one shape, which turns other things into keys."""
    changes = {"position.scheme": "deberta", "training.max_steps": 1}
    one = train(rope.recipe, tmp_path / "one", changes)
    run = train(from_run(one, data, max_steps=1, learning_rate=STILL), tmp_path / "run", {"position.scheme": "tupe"})
    key = "model.decoder.schemes.0.to_key.weight"
    assert key in run.record["begun"]["drawn"] and key in run.record["begun"]["left"]
    assert (weights(run)[key] - weights(one)[key]).abs().max() > 0.01


def test_tables_of_another_size_do_not_fit(t5: Run, data: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"schemes\.0\.table_HN has shape \[2, 8\], and in .*t5 \[2, 32\]"):
        train(from_run(t5, data), tmp_path / "run", {"position.num_buckets": 8})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({"model.num_heads": 4}, ["model.num_heads is 4, and in {} 2"]),
        ({"model.d_ff": 64, "model.norm": "post"}, ["model.d_ff is 64, and in {} 32", "model.norm is 'post', and in"]),
        (
            {"tokenizer.kind": "word", "model.decoder_layers": 3},
            ["the tokenizer of the source has another vocabulary here than in {}", "model.decoder_layers is 3, and"],
        ),
    ],
)
def test_what_does_not_fit_is_told_at_once_and_makes_no_folder(
    rope: Run, data: dict[str, Any], tmp_path: Path, changes: dict[str, Any], faults: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        train(from_run(rope, data), tmp_path / "run", changes)
    assert len(caught.value.faults) == len(faults)
    assert all(part.format(rope.path) in said for part, said in zip(faults, caught.value.faults, strict=True))
    assert not (tmp_path / "run").exists()


def test_the_same_vocabulary_from_elsewhere_is_taken(rope: Run, data: dict[str, Any], tmp_path: Path) -> None:
    """The same kind of tokenizer learned from the same text, and a folder by its name."""
    learned = {**from_run(rope, data, max_steps=1), "tokenizer": {"kind": "character"}}
    assert train(learned, tmp_path / "learned").finished
    named = {**from_run(rope, data, max_steps=1), "tokenizer": {"name": str(tmp_path / "learned")}}
    assert train(named, tmp_path / "named").recipe.tokenizer.name == str(tmp_path / "learned")


def test_dropout_may_change(rope: Run, data: dict[str, Any], tmp_path: Path) -> None:
    run = train(from_run(rope, data, max_steps=1), tmp_path / "run", {"model.dropout": 0.0})
    assert run.model.config.transformer_config.dropout == 0.0


@pytest.mark.parametrize("step", [1, 3], ids=["before the first checkpoint", "after it"])
def test_it_is_resumed_exactly_without_the_run_it_began_from(
    rope: Run, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    base = Run(shutil.copytree(rope.path, tmp_path / "base"))
    given = from_run(base, data, save_steps=2)
    whole = train(given, tmp_path / "whole", {"position.scheme": "t5"})

    on_step(step, lambda: (_ for _ in ()).throw(MemoryError()), monkeypatch)
    with pytest.raises(MemoryError):
        train(given, tmp_path / "stopped", {"position.scheme": "t5"})
    monkeypatch.undo()
    shutil.rmtree(base.path)
    continued = resume(tmp_path / "stopped")
    assert (continued.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()
    assert not (continued.path / BEGIN).exists()


def test_weights_that_are_gone_are_not_replaced_by_drawn_ones(
    rope: Run, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_step(1, lambda: (_ for _ in ()).throw(MemoryError()), monkeypatch)
    with pytest.raises(MemoryError):
        train(from_run(rope, data), tmp_path / "run")
    monkeypatch.undo()
    (tmp_path / "run" / BEGIN).unlink()
    with pytest.raises(CheckpointError, match=r"begin\.safetensors, the weights that this run began with, cannot be"):
        resume(tmp_path / "run")


def test_a_hugging_face_folder_and_a_checkpoint_do_as_well(rope: Run, data: dict[str, Any], tmp_path: Path) -> None:
    still = {"learning_rate": STILL, "max_steps": 1}
    rope.model.save_pretrained(tmp_path / "saved")
    with pytest.raises(CheckpointError, match=r"begin_from: .*saved holds no tokenizer; give a run, or save"):
        train(from_run(Run(tmp_path / "saved"), data), tmp_path / "x")
    rope.tokenizers.save(tmp_path / "saved")
    run = train(from_run(Run(tmp_path / "saved"), data, **still), tmp_path / "run")
    torch.testing.assert_close(weights(run), weights(rope), rtol=0, atol=1e-6)

    kept = train(rope.recipe, tmp_path / "kept", {"training.save_steps": 2})
    first = Run(kept.checkpoints[0])
    run = train(from_run(first, data, **still), tmp_path / "from first")
    torch.testing.assert_close(weights(run), weights(first), rtol=0, atol=1e-6)


def test_what_is_no_model_of_ours_is_named(rope: Run, data: dict[str, Any], tmp_path: Path) -> None:
    for folder, text in {"nowhere": None, "gpt": '{"model_type": "gpt2"}', "bare": "{}", "torn": "{"}.items():
        if text is not None:
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "config.json").write_text(text)
    for folder, said in {
        "nowhere": "holds no model; it is not there",
        "gpt": "holds a model of type 'gpt2', not one of this project",
        "bare": r"config\.json names no model type",
        "torn": r"config\.json: it is not JSON",
    }.items():
        with pytest.raises(CheckpointError, match=f"training.begin_from: .*{folder}.* ?{said}"):
            train(from_run(Run(tmp_path / folder), data), tmp_path / "run")


def test_it_does_not_replace_what_it_begins_from(rope: Run, data: dict[str, Any], tmp_path: Path) -> None:
    own = Run(shutil.copytree(rope.path, tmp_path / "own"))
    with pytest.raises(UsageError, match=r"which the new run in .*own would replace; choose another folder"):
        train(from_run(own, data), own.path, overwrite=True)
    assert own.finished


def test_a_path_in_a_recipe_is_relative_to_its_file(rope: Run, data: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(rope.path, tmp_path / "base")
    text = f'[data]\ncorpus = "text"\ntrain = "{data["train"]}"\nunit = "file"\n'
    (tmp_path / "mine.toml").write_text(
        f'{text}[batches]\nwindow = 16\n[training]\nbegin_from = "base"\nmax_steps = 1\n'
    )
    run = train(tmp_path / "mine.toml", tmp_path / "run")
    assert run.recipe.training.begin_from == str(tmp_path / "base")


def test_both_sides_of_a_pair_are_inherited(tmp_path: Path) -> None:
    """Sides with schemes of their own, a cross-attention with one, and a tokenizer for each side."""
    given: dict[str, Any] = {
        "data": {"corpus": "roles", "train": 80, "validation": 10, "test": 10},
        "tokenizer": {"kind": "word", "shared": False},
        "model": {**MODEL, "encoder_layers": 1, "decoder_layers": 1},
        "position": {"encoder": {"scheme": "alibi", "form": "two-sided"}, "decoder": "rope", "cross": "rope"},
        "training": {**TRAINING, "max_steps": 1},
    }
    base = train(given, tmp_path / "base")
    again = {
        "data": given["data"],
        "training": {**given["training"], "begin_from": str(base.path), "learning_rate": STILL},
    }
    run = train(again, tmp_path / "run")
    assert run.recipe.model == base.recipe.model
    assert run.recipe.model.cross.scheme == "rope"
    assert run.recipe.tokenizer.target_name == str(base.path / "target")
    torch.testing.assert_close(weights(run), weights(base), rtol=0, atol=1e-6)


def test_a_preset_or_a_whole_scheme_is_taken_at_its_word(rope: Run, data: dict[str, Any]) -> None:
    recipe = make_recipe(from_run(rope, data), {"model.preset": "tiny", "position.scheme": "rope"})
    assert recipe.model.d_model == 64, "a preset is not mixed with what the other run had"
    assert recipe.model.decoder.options["base"] == 500.0, "the scheme is the same, so its options stay"
    other = {**from_run(rope, data), "position": {"scheme": "rope"}}
    assert make_recipe(other, {}).model.decoder.options["base"] == 10_000.0, "a recipe with a [position] says it whole"
