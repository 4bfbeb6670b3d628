"""``clockhands train``: train what a recipe or the options say into a run folder, or resume a run that stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from clockhands.cli.common import report_new_folder
from clockhands.cli.flags import POSITIONAL, list_given, refuse_several
from clockhands.errors import UsageError
from clockhands.options import Seed, read_assignments

EXAMPLES = (
    "clockhands train recipes/numbers.toml --set training.max_steps=20 --out runs/numbers",
    "clockhands train --corpus roles --preset tiny --set training.max_steps=20 position.scheme=rope --out runs/roles",
    "clockhands train --resume runs/numbers --set training.max_steps=30",
    "clockhands train --text my.txt --preset tiny --set position.scheme=rope training.max_steps=20 --out runs/rope",
    "clockhands train --text my.txt --set training.begin_from=runs/rope position.scheme=none training.max_steps=20 "
    "--out runs/dropped",
)
FLAGS = {
    "source": "data.source", "target": "data.target", "validation_source": "data.validation_source",
    "validation_target": "data.validation_target", "data": "data.train", "text": "data.train",
    "corpus": "data.corpus", "preset": "model.preset", "threads": "training.threads", "seed": "training.seed",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is trained, and where it goes.

    Args:
        recipe: a recipe (TOML) such as recipes/numbers.toml; without one, the options below say what to train
        source: text to learn to translate, one sentence a line
        target: the translation of --source, line by line
        validation_source: text for validation (default: 2 % of --source is held out)
        validation_target: the translation of --validation-source
        data: pairs of sentences: TSV, CSV or JSON Lines with the columns source and target
        text: plain text, to train a language model
        corpus: a corpus, such as numbers, roles, algorithms or stdlib
        preset: the sizes of a known model: paper-base, tutorial or tiny
        overrides: set any key of the recipe, such as training.max_steps=2000 (default: until the validation loss falls
            no more), position.scheme=rope, training.report_to=tensorboard (or wandb, trackio, mlflow)
        out: the folder of the run, which is made (default: runs/NAME, with the name of the recipe or corpus)
        overwrite: replace the run if it exists
        resume: continue a run from its last checkpoint, as if it had not stopped
        threads: use N processor threads (default: torch decides)
        seed: the seed of the weights, dropout and batches (default: that of the recipe, or 0)
        dry_run: print the whole recipe and the size of the model; train nothing
        quiet: show no progress
    """

    recipe: Annotated[str | None, POSITIONAL] = None
    source: Annotated[tuple[str, ...], "FILE"] = ()
    target: Annotated[tuple[str, ...], "FILE"] = ()
    validation_source: Annotated[tuple[str, ...], "FILE"] = ()
    validation_target: Annotated[tuple[str, ...], "FILE"] = ()
    data: Annotated[tuple[str, ...], "FILE"] = ()
    text: Annotated[tuple[str, ...], "FILE"] = ()
    corpus: Annotated[str | None, "NAME"] = None
    preset: Annotated[str | None, "NAME"] = None
    overrides: Annotated[tuple[str, ...], "KEY=VALUE", "--set"] = ()
    out: Annotated[str | None, "RUN"] = None
    overwrite: bool = False
    resume: Annotated[str | None, "RUN"] = None
    threads: Annotated[int | None, "N"] = None
    seed: Annotated[Seed | None, "N"] = None
    dry_run: bool = False
    quiet: bool = False


def run(options: Options) -> int:
    """Train, resume, or print what would be trained."""
    overrides = read_assignments(options.overrides)
    if options.resume is not None:
        return _resume(options, options.resume, overrides)
    recipe = _read_recipe(options, overrides)
    if options.dry_run:
        return _describe(recipe)
    from clockhands.training import train

    out = options.out or str(Path("runs") / (Path(options.recipe).stem if options.recipe else recipe.corpus))
    with report_new_folder(out, quiet=options.quiet):
        trained = train(recipe, out, overwrite=options.overwrite, progress=not options.quiet)
    _conclude(trained)
    return 0


def _read_recipe(options: Options, overrides: dict[str, str]) -> Any:
    from clockhands.runs.recipe import apply_overrides, inherit_tables, make_recipe, read_tables

    if options.recipe and "=" in options.recipe:
        raise UsageError(f"{options.recipe!r} is not a recipe; overrides stand after --set")
    tables = inherit_tables(read_tables(options.recipe) if options.recipe else {}, overrides)
    flags = {FLAGS[flag]: value for flag in FLAGS if (value := getattr(options, flag)) not in (None, ())}
    # A flag that was given one value holds it alone.
    flags = {key: value[0] if isinstance(value, tuple) and len(value) == 1 else value for key, value in flags.items()}
    refuse_several(options, ("source", "data", "text"), "what to train on")
    if "data.source" in flags or "data.target" in flags:
        flags.setdefault("data.corpus", tables.get("data", {}).get("corpus", "parallel"))
    if "data.train" in flags:
        flags.setdefault("data.corpus", "table" if options.data else "text")
    if not options.recipe and not any(key.startswith("data.") for key in (*flags, *overrides)):
        raise UsageError(
            "there is nothing to train on: give a recipe, --corpus, --source and --target, --data, or --text"
        )
    corpora = {key: overrides[key] for key in ("data.corpus",) if key in overrides}
    return make_recipe(
        apply_overrides(tables, {**flags, **corpora}), overrides, written=True, source=options.recipe or "the command"
    )


def _resume(options: Options, run: str, overrides: dict[str, str]) -> int:
    if used := list_given(options, (*FLAGS, "recipe", "out", "overwrite")):
        raise UsageError(f"--resume goes on with the recipe of the run; leave out {', '.join(used)}")
    from clockhands.runs import Run
    from clockhands.runs.recipe import read_training_overrides
    from clockhands.training import resume
    from clockhands.training.session import extend_recipe

    changes = read_training_overrides(overrides)
    if options.dry_run:
        return _describe(extend_recipe(Run.from_folder(run).recipe, changes))
    before = Run.from_folder(run).record.get("step")
    done = resume(run, changes, progress=not options.quiet)
    if done.record["step"] == before:
        print(f"{run} is finished, and nothing was trained; for more steps: --set training.max_steps=NUMBER")
    _conclude(done)
    return 0


def _describe(recipe: Any) -> int:
    import torch

    from clockhands.training import prepare
    from clockhands.training.model import build, check_batches, check_recipe, read_begin_weights
    from clockhands.training.schedule import fill_in_for_text

    check_recipe(recipe)
    material = prepare(recipe)
    recipe = fill_in_for_text(recipe, material)
    check_batches(recipe, material)
    begun = read_begin_weights(recipe, material)
    with torch.device("meta"):
        model = build(recipe, material.tokenizers)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    words = [len(material.tokenizers.source), len(material.tokenizers.target)]
    vocabulary = f"{words[1]:,}" if material.tokenizers.shared else f"{words[0]:,} and {words[1]:,}"
    print(recipe.to_toml())
    print(f"# {parameters:,} parameters, vocabulary {vocabulary}")
    if begun is not None and begun.sentence:
        print(f"# {begun.sentence}")
    print(f"# {material.corpus.description}: {len(material.train):,} training examples")
    for sentence in material.describe_bounds():
        print(f"# {sentence}")
    print(f"# {len(material.batches(recipe)):,} batches an epoch, {recipe.training.accumulate} a step")
    return 0


def _conclude(run: Any) -> None:
    from clockhands.devices import get_rank
    from clockhands.runs.run import COMMANDS
    from clockhands.training.trainer import describe_rise

    if get_rank() != 0:
        return
    known, step = run.model_loss, run.record["step"]
    print(f"{run.path}: {step:,} steps, {run.record['parameters']:,} parameters{_describe_model_loss(run)}")
    if known is not None:
        from clockhands.generation.score import describe_uniform_guess
        from clockhands.runs.export import describe_perplexity

        tokens = "masked tokens" if run.recipe.model.architecture == "encoder" else "target tokens"
        guess = describe_uniform_guess(len(run.tokenizers.target))
        print(f"that is the mean of all {tokens} of the validation split, in nats: "
              f"{describe_perplexity(known[1])}; {guess}")  # fmt: skip
    if rise := describe_rise(run.metrics, run.recipe.training):
        print(rise)
    if run.recipe.model.architecture in COMMANDS:
        print(f"next: {COMMANDS[run.recipe.model.architecture].format(run.path)}")


def _describe_model_loss(run: Any) -> str:
    """Return the validation loss of the exported weights, and of which step they are if not of the last."""
    if run.model_loss is None:
        return ""
    step, loss = run.model_loss
    if step == run.record["step"]:
        return f", validation loss {loss:.4f}"
    return f"; the model has the weights of step {step:,}, whose validation loss is {loss:.4f}"
