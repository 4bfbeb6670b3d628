"""``clockhands study``: list the built-in studies, or run one and print its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from clockhands.cli.common import report_new_folder
from clockhands.cli.compare import Format, Running, execute, present, write_page
from clockhands.cli.flags import POSITIONAL, list_given, write_command
from clockhands.errors import UsageError
from clockhands.files import write_text
from clockhands.options import options_of

EXAMPLES = ("clockhands study", "clockhands study scale --dry-run", "clockhands study scale --scale long --dry-run")


StudyScale: TypeAlias = Literal[
    "cpu", "long", "longest", "rates", "further", "bases", "bases-longer", "roles", "numbers", "stdlib",
    "roles-long", "stdlib-long", "twice", "twice-long", "twice-more", "post", "scores", "finer", "finer-long",
    "wide", "wide-long", "wider", "gpu", "paper",
]  # fmt: skip
"""The names of ``clockhands.studies.scaling.SIZES``, typed again here because importing them imports torch."""


@dataclass(frozen=True, kw_only=True)
class Options(Running):
    """Which study is run, and how.

    Args:
        name: the study to run (default: list them all)
        seeds: train every variant with N seeds (default: as many as the study plans, 5 or more)
        scale: run it as planned (cpu), with four or ten times the training (long, longest), with other learning rates
            (rates), further variants (further), bases of the rotation (bases, bases-longer) or factors of the scores of
            attention (scores), with more seeds and test items (finer, finer-long), on another task (roles, numbers,
            stdlib; roles-long and stdlib-long train longer), with post-norm (post), with a wider model (twice, wide and
            wider; twice-long and wide-long train longer, twice-more has more seeds), or a wider and deeper one (gpu,
            paper)
        out: where results and page are written (default: runs/studies/NAME, or NAME-SCALE)
        dry_run: print the plan and how long it takes; train nothing else
        format: write a page, or print the table as Markdown, LaTeX or CSV
        text: the text of a study that reads text which you have to give
    """

    name: Annotated[str | None, POSITIONAL] = None
    seeds: Annotated[int | None, "N"] = None
    scale: StudyScale = "cpu"
    out: Annotated[str | None, "FOLDER"] = None
    dry_run: bool = False
    format: Format = "page"
    text: Annotated[str | None, "FOLDER"] = None


def run(options: Options) -> int:
    """List the studies, or run one, print its answer and write its page."""
    from clockhands.studies import STUDIES

    if options.name is None:
        if stray := list_given(options, ("out", "seeds", "text", "dry_run", "keep", "on")):
            raise UsageError(
                f"{stray[0]} is of a study, and none is named: clockhands study NAME runs one, and clockhands study "
                "alone lists them"
            )
        width = max(map(len, STUDIES))
        for name, study in STUDIES.items():
            print(f"{name:<{width}}  {study.question}  ({study.trials} trials, about {study.minutes} min on one core)")
        print("\nclockhands study NAME runs one and prints its answer; --dry-run measures its cost.")
        return 0
    from clockhands.cli.trials import describe, print_verdicts
    from clockhands.comparison.task_findings import find_plan_ceiling, find_plan_floor
    from clockhands.studies import conclude_study
    from clockhands.studies.scaling import SIZES
    from clockhands.studies.soundness import check_baseline, check_ceiling, check_floor

    study = STUDIES[options.name]
    study.text.require(options.text)
    plan = study.make_plan(options.seeds, options.scale, None if options.text is None else Path(options.text))
    check_ceiling(study, find_plan_ceiling(plan), plan)
    if options.dry_run:
        print(f"{study.question}\nsize {options.scale}: {SIZES[options.scale].says}")
        return describe(plan, options.workers, options.threads)

    folder = options.name if options.scale == "cpu" else f"{options.name}-{options.scale}"
    out = options.out or str(Path("runs") / "studies" / folder)
    options = replace(options, out=out)
    with report_new_folder(out, quiet=options.quiet):
        comparison = execute(plan, options, out)
    write_text(Path(out) / "study.json", comparison.to_json())
    check_baseline(study, comparison)
    floor = find_plan_floor(plan)
    check_floor(study, comparison, floor)
    if options.format != "page":
        return present(comparison, options, "")
    words = write_command("study", options, ("out", "format", *options_of(Running)))
    page = write_page(conclude_study(study, comparison, words), comparison, floor, out)
    print_verdicts(comparison)
    print(f"\nThe page: {page}")
    return 0 if any(trial.finished for trial in comparison.trials) else 1
