"""The command of a comparison, made of its options, is read back as the same options."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from clockhands.cli import Parser, compare, main
from clockhands.cli.compare import Options, Running
from clockhands.cli.flags import declare, read_options, write_command
from clockhands.cli.trials import describe
from clockhands.comparison.plan import Variant, make_plan
from clockhands.options import options_of
from tests.cli.conftest import Capture, Patch


def parse(*words: str) -> Options:
    parser = Parser()
    declare(parser, Options)
    return read_options(parser, Options, words)


def command(*words: str) -> str:
    return write_command("compare", parse(*words), ("format", *options_of(Running)))


def test_the_command_says_again_what_is_compared() -> None:
    words = [
        "--recipe", "recipes/numbers.toml", "--seeds", "5", "--margin", "0.1", "--redraw-text", "--steps", "100",
        "--vary", "position.scheme=sinusoidal,none", "--set", "training.learning_rate=1e-3", "--out", "my runs",
    ]  # fmt: skip
    again = shlex.split(command(*words, "--workers", "2"))
    assert again[:4] == ["clockhands", "compare", "--recipe", "recipes/numbers.toml"]
    assert parse(*again[2:]) == parse(*words), "how trials run is no part of what is computed"
    assert command("plan.toml") == "clockhands compare plan.toml"


VARY = ["compare", "--corpus", "roles", "--vary", "position.scheme=sinusoidal,none"]
WRONG = [
    (["compare"], "there is nothing to compare: give a plan, or --vary"),
    (["compare", "--vary", "position.scheme=rope,none"], "there is no text: give --data, --corpus or --recipe"),
    (["compare", "recipes/sweep.toml", "--corpus", "roles"], "says what is varied; leave out --corpus"),
    (["compare", "recipes/sweep.toml", "--vary", "position.scheme=rope,none"], "says what is varied; leave out --vary"),
    (["compare", "none.toml"], "cannot read the plan none.toml"),
    ([*VARY[:-1], "position.scheme="], "the grid is empty: position.scheme has no values"),
    ([*VARY, "--baseline", "rope"], "unknown baseline 'rope'"),
    ([*VARY, "--set", "model.d_model"], "'model.d_model' is not of the form KEY=VALUE"),
    ([*VARY, "--set", "model.d_modle=32"], "did you mean 'd_model'"),
    ([*VARY, "--seeds", "0"], "seeds is 0; 1 to 1,000 are trained"),
    ([*VARY, "--steps", "0", "--dry-run"], "the budget of steps is 0.0, but must be a finite number above 0"),
    (["study", "scales"], "unknown study 'scales'; did you mean 'scale'?"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[message[:30] for _, message in WRONG])
def test_one_clear_message(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(arguments) in (1, 2)
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


@pytest.mark.parametrize(
    ("option", "message"),
    [("--workers=0", "workers is 0"), ("--threads=0", "threads is 0"), ("--gpus=0.5", "add --on ray"),
     ("--on=slurm", "--on slurm: give ray")],
)  # fmt: skip
def test_a_wrong_way_to_run_leaves_no_folder(option: str, message: str, tmp_path: Path, capsys: Capture) -> None:
    assert main([*VARY, option, "--out", str(tmp_path / "new")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists(), "the next command would find another plan there"


def test_a_recipe_can_be_varied() -> None:
    options = parse("recipes/numbers.toml", "--vary", "position.scheme=sinusoidal,none", "--seeds", "5")
    plan = compare._read_plan(options)
    assert (plan.recipe.corpus, plan.budget) == ("numbers", ("steps", plan.recipe.training.max_steps))
    assert [variant.name for variant in plan.variants] == ["sinusoidal", "none"]


def test_ray_that_is_not_installed_is_asked_for(tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None if name == "ray" else object())
    from clockhands.comparison.execution import make_workers
    from clockhands.errors import UsageError

    with pytest.raises(UsageError, match=r"--on needs the package 'ray'.*pip install '\.\[ray\]'"):
        make_workers(1, 1, "ray", 0.0)
    monkeypatch.undo()
    assert "ray" not in sys.modules, "nothing of Ray is imported unless it is asked for"
    with pytest.raises(UsageError, match="give ray, or the address of a cluster"):
        make_workers(1, 1, "raay", 0.0)


def test_a_plan_is_described_without_training(tmp_path: Path, capsys: Capture) -> None:
    few = ["--set", "data.train=200", "data.test=20", "data.validation=20", "model.d_model=16", "tokenizer.kind=word"]
    assert main([*VARY, *few, "--seeds", "2", "--steps", "5", "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "2 variants × 2 seeds = 4 trials; baseline sinusoidal" in shown and "about" in shown
    assert "\nA model that ignores word order can get at most " in shown
    assert not (tmp_path / "out").exists()


def test_a_dry_run_says_why_a_task_is_used_all_the_same(capsys: Capture) -> None:
    why = "Of real text the ceiling says nothing."
    recipe = {
        "data": {"corpus": "roles", "train": 200, "test": 20, "validation": 20},
        "model": {"d_model": 16},
        "tokenizer": {"kind": "word"},
        "training": {"max_steps": 2},
    }
    variants = [Variant("sinusoid", {}), Variant("none", {"position.scheme": "none"})]
    plan = make_plan(recipe, variants=variants, seeds=1, budget={"steps": 2}, despite={"ceiling": why})
    assert describe(plan, 1, 1) == 0
    assert f"). {why}\n" in capsys.readouterr().out
