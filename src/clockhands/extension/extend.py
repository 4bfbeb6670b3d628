"""All of ``clockhands extend``: measure, choose, train, write. Killed anywhere, it goes on to the same end."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from clockhands import __version__
from clockhands.attention import is_installed
from clockhands.errors import ClockhandsWarning, UsageError
from clockhands.extension.archive import Archive, make_signature
from clockhands.extension.choice_findings import make_choice_finding, make_trial_finding
from clockhands.extension.choose import Choice, choose_method, measure_short
from clockhands.extension.measure import DRIFT_MARGIN, LengthMeasurement, choose_lengths, make_measure_findings, measure
from clockhands.extension.methods import apply, list_methods
from clockhands.extension.reading import APART, Stream, encode_text
from clockhands.extension.tuning import Tuning, judge_tuned, make_tuning_finding, refuse_untrainable, tune
from clockhands.extension.write import (
    MEASURED,
    TUNING,
    make_cache_finding,
    make_engine_finding,
    publish,
    stage,
    write_card,
    write_checked,
)
from clockhands.findings import Finding, Findings
from clockhands.models import LanguageModel, is_run
from clockhands.progress import CountProgress, ignore_count


@dataclass(frozen=True)
class ExtensionPlan:
    """What is to be found out about a model, and from which text.

    Args:
        documents: the text.
        text: what the text is, for readers.
        trained, longest: tokens.
        texts: whose loss is measured.
        items: questions of each task.
        evaluations: of the search of factors.
        margin: nats per token that a length may cost.
        seed: of the questions.
        tuning: how the chosen model is trained; None: it is not.
        command: the command that does all this again.
    """

    documents: Sequence[str]
    text: str
    trained: int
    longest: int
    texts: int = 32
    items: int = 60
    evaluations: int = 64
    margin: float = DRIFT_MARGIN
    seed: int = 0
    tuning: Tuning | None = None
    command: str = ""


def measure_only(model: LanguageModel, plan: ExtensionPlan, progress: CountProgress = ignore_count) -> Findings:
    """Measure how far a model reads as it is, and return the findings. Raises what ``measure`` raises."""
    return _gather(model, plan, _measure(model, encode_text(model, plan.documents), plan, None, progress), (), {})


def extend(
    model: LanguageModel,
    plan: ExtensionPlan,
    folder: Path,
    *,
    write_page: Callable[[Findings], object] = lambda findings: None,
    progress: CountProgress = ignore_count,
) -> Findings:
    """Measure a model, choose what makes it read further, train it if asked, and write model, card and page.

    ``plan``: the texts, the lengths in tokens, the methods and the training. ``progress``: called with what is counted,
    how many are done and how many there are.

    ``folder``: nothing else may be writing in it. ``write_page`` is called before the folder is finished. Every result
    is kept there until the end, and used by the next call that measures the same model with the same weights on the
    same text. The configuration is written last: a folder that has one is finished. Raises UsageError for a model whose
    positions cannot be extended, before anything is measured, and what the steps raise.
    """
    if plan.longest == plan.trained:
        raise UsageError(f"the longest text has {plan.longest:,} tokens, which is the trained length; give more")
    if is_installed(model.model):
        raise UsageError(
            f"a scheme is installed in {type(model.model).__name__}, and methods change the model's own positions; "
            f"take it out first"
        )
    if plan.tuning is not None:
        refuse_untrainable(model, plan.tuning)
        dtype = next(model.model.parameters()).dtype
        if dtype.itemsize < 4:  # a step that is smaller than half of a weight's last bit leaves it unchanged
            text = f"the weights are trained in {dtype}, where most small steps change nothing; give --dtype float32"
            warnings.warn(text.replace("torch.", ""), ClockhandsWarning, stacklevel=2)
    list_methods(model, plan.trained, plan.longest)
    stream = encode_text(model, plan.documents)
    signature = make_signature(model, stream, {"trained": plan.trained, "seed": plan.seed})
    archive = Archive(folder / MEASURED, signature)
    measurement = _measure(model, stream, plan, archive, progress)
    streams = np.array_split(stream, 2)
    choice = choose_method(
        model, streams[0], streams[1], plan.trained, plan.longest, texts=plan.texts, items=plan.items,
        evaluations=plan.evaluations, learned=measurement.usable.learned, seed=plan.seed, archive=archive,
        progress=progress,
    )  # fmt: skip
    made = [make_choice_finding(choice), make_trial_finding(choice)]
    facts: dict[str, str] = {}
    with stage(folder) as place:
        if plan.tuning is not None or choice.chosen is not choice.judged[0]:
            written, fact = _write(model, choice, streams, plan, place, folder / TUNING, signature, progress)
            made += written
            facts = {"written": f"{folder}; {fact}"}
        findings = _gather(model, plan, measurement, made, facts)
        if facts:
            write_card(findings, choice, model.source, place)
        write_page(findings)
        publish(place, folder)
    return findings


def _measure(
    model: LanguageModel, stream: Stream, plan: ExtensionPlan, archive: Archive | None, progress: CountProgress
) -> LengthMeasurement:
    return measure(
        model, stream, choose_lengths(plan.trained, plan.longest), plan.trained, texts=plan.texts, items=plan.items,
        seed=plan.seed, margin=plan.margin, archive=archive, progress=progress,
    )  # fmt: skip


def _write(
    model: LanguageModel, choice: Choice, streams: Sequence[Stream], plan: ExtensionPlan, place: Path, checkpoint: Path,
    signature: str, progress: CountProgress,
) -> tuple[list[Finding], str]:  # fmt: skip
    """Train the chosen model if that is asked for, write it, and return findings of it and how near it is as text."""
    chosen, tuning, trained, longest = choice.chosen, plan.tuning, choice.trained, choice.longest
    made = []
    if tuning is None:
        written = write_checked(model, chosen.method, trained, longest, place)
    else:
        short_N = measure_short(model, streams[1], trained, plan.texts)
        with apply(model, chosen.method) as extended:
            steps = tune(
                extended, streams[0], tuning, trained, longest, checkpoint=checkpoint,
                signature=f"{signature} {tuning} {chosen.method}", progress=progress,
            )  # fmt: skip
            trained_model = judge_tuned(extended, chosen, short_N, streams[1], plan.texts)
            made.append(make_tuning_finding(chosen, trained_model, steps, tuning))
            written = write_checked(model, chosen.method, trained, longest, place, tuned=extended)
            chosen = trained_model
    ours = is_run(model.source)
    if model.mask_id is None:
        made.append(make_cache_finding(written, chosen, choice.judged[0], ours=ours))
    if not ours:
        made.append(make_engine_finding(place, chosen.dependence))
    near = f"in one pass over {longest:,} tokens its logits differ by at most {written.error:.1g}"
    if written.steps:
        near += f", in {written.steps} steps by its cache by at most {written.step_error:.1g},"
    return made, f"{near} from those that were judged"


def _gather(
    model: LanguageModel,
    plan: ExtensionPlan,
    measurement: LengthMeasurement,
    made: Iterable[Finding],
    facts: dict[str, str],
) -> Findings:
    masked = f"; every {APART}th of the tokens that are scored is masked" if model.mask_id is not None else ""
    basis = {"text": plan.text + masked}
    first = make_measure_findings(measurement, margin=plan.margin)
    known = {"model": model.source, "trained length": f"{plan.trained:,} tokens", **basis, "version": __version__}
    items = tuple(replace(item, command=plan.command, basis=basis) for item in (*first, *made))
    return Findings(f"How far {model.source} reads", items, {**known, **facts}, command=plan.command)
