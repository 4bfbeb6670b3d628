"""From runs to the page: one file that holds the models and what was measured of them, and asks for nothing."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from clockhands import __version__
from clockhands.data import Corpus, Pair, encode_texts, open_corpus
from clockhands.errors import DataError, UsageError
from clockhands.exploring.controls import UNTOUCHED, cut_next_tokens, measure
from clockhands.exploring.model_data import (
    MOST_TOKENS,
    ExplorerModel,
    describe_model,
    describe_order,
    hold_packed,
    record_model,
)
from clockhands.exploring.support import check_support, convert_checkpoint, require_finite
from clockhands.files import write_text
from clockhands.findings import Finding, Findings, Table
from clockhands.inspection import Subject, open_subject
from clockhands.inspection.during_training import MEASURE_FUNCTIONS
from clockhands.inspection.reading.windows import choose_windows
from clockhands.inspection.run import DEFAULT_COUNT
from clockhands.models import read_checked_config
from clockhands.pretrained import is_own
from clockhands.progress import CountProgress, ignore_count
from clockhands.reading import read_toml
from clockhands.report.render import make_policy, render
from clockhands.runs import Run, open_run

SHARED = ("heldOut", "trained", "tokens")
"""What models of one task have in common: most of what a page is told of a model."""
HELD_OUT = 200
"""The most held-out sentences that stand in a page."""
EXAMPLES = ("Tom bit a dog", "The cat sat down because it was tired.")
"""The texts of a model of another project where none are given: nobody knows what was held out of its training."""


def find_tour_models(out: Path, *, show: bool, say: Callable[[str], None]) -> dict[tuple[str, str], Run]:
    """Return the runs of the tour in ``out`` by key and label; the tour is run there if the folder does not exist.

    Raises UsageError if the folder holds something else, and whatever ``tour`` raises.
    """
    # The tour brings all of training and comparison, which ``inspect`` should not wait for.
    from clockhands.studies.tour import tour
    from clockhands.studies.tour.training import FOLDERS, MAIN, NO_SCALE, ROLES, ROLES_BLIND

    if not out.exists():
        from clockhands.report import write

        say(f"there is no tour in {out} yet: it is run first")
        write(tour(out, show=show, say=say), out, name="report.html")
    labels = {
        MAIN: ("numbers", "German numbers"),
        ROLES: ("roles", "who bit whom"),
        ROLES_BLIND: ("roles-no-position", "who bit whom, without positions"),
        NO_SCALE: ("numbers-no-scale", "German numbers, trained without √d"),
    }
    return {label: Run.from_folder(out / FOLDERS[variant]) for variant, label in labels.items()}


def name_models(sources: Sequence[str | Path]) -> list[str]:
    """Return a key for each model: the last part of its path or hub name; a number where two have one name."""
    names: list[str] = []
    for source in sources:
        last = Path(source).resolve().name
        base = "".join(letter if letter.isalnum() else "-" for letter in last) or "model"
        same = sum(name == base or name.startswith(f"{base}-") for name in names)
        names.append(f"{base}-{same + 1}" if same else base)
    return names


def prepare_checkpoint(
    source: str,
    name: str,
    label: str,
    texts: Sequence[str],
    *,
    device: str | None = None,
    progress: CountProgress = ignore_count,
) -> ExplorerModel:
    """Prepare a model from a folder or by its hub name: live if a page runs it, else as it is recorded on ``texts``.

    A model of another project is live if it can be converted to one of ours.

    Raises UsageError where it is neither; CheckpointError where it cannot be opened.
    """
    own = is_own(read_checked_config(source))
    subject = None if own else open_subject(source, device=device or "cpu")
    if subject is not None:
        require_finite(subject)
    try:
        if subject is None:
            return prepare_model(open_run(source, device=device), name, label, texts, progress=progress)
        run = convert_checkpoint(subject, source)
        # Its name is that of the model with its output layer. Its training may have seen any text: nothing is counted.
        original = type(getattr(subject, "language_model", None)).__name__
        model = describe_model(run, name, label, f"{original}, which continues text", [])
        model.data.update(measured=[], texts=list(texts) or list(EXAMPLES))
        return model
    except UsageError as fault:
        if own and not texts:
            raise UsageError(f'{fault}\nGive sentences (--text "...") to see its attention as it is recorded') from None
        first, *reasons = str(fault).splitlines()
    subject = subject or open_subject(source, device=device or "cpu")
    return record_model(
        subject, name, label, texts,
        f"It does not run in a page: {'; '.join(map(str.strip, reasons)) or first}. Its positions are live here, its "
        "attention is as it was recorded, and it writes nothing.",
    )  # fmt: skip


def describe_offer(subject: Subject, source: str) -> str:
    """Return the sentence that says what ``explore`` shows of a model; empty where it may show nothing.

    ``subject`` is the model of ``source``, opened as ``prepare_checkpoint`` opens it. What decides is that
    function's own: whether the model can be prepared to run, and else whether its attention can be recorded.
    """
    command = f"clockhands explore {shlex.quote(source)}"
    try:
        if is_own(read_checked_config(source)):
            run = open_run(source)
            check_support(run)
            _read_held_out(run, open_corpus(run.recipe.corpus, **run.recipe.corpus_options))
        else:
            convert_checkpoint(subject, source)
        return f"{command} writes a page in which it runs and its positions can be changed"
    except UsageError:
        if subject.side == "decoder":  # of an encoder-decoder the encoder is recorded
            return ""
    except Exception:  # whatever somebody's model does there: what was measured must not be lost
        return ""
    with suppress(Exception):
        record_model(subject, "model", "", EXAMPLES[:1], "")
        return f'{command} --text "..." writes a page that shows its attention in your sentences'
    return ""


def prepare_model(
    run: Run, name: str, label: str, texts: Sequence[str] = (), *, progress: CountProgress = ignore_count
) -> ExplorerModel:
    """Describe the model of a run and count what the controls do to it; ``texts`` are offered as its sentences.

    Raises UsageError if it does not run in a page or its corpus holds nothing to translate.
    """
    check_support(run)
    corpus = open_corpus(run.recipe.corpus, **run.recipe.corpus_options)
    task, pairs = _read_held_out(run, corpus)
    model = describe_model(run, name, label, task, pairs)
    with hold_packed(run):
        model.data["measured"] = measure(run, pairs, partial(progress, f"texts of {label}"))
    model.data["texts"] = list(texts)
    model.data.update(_measure_lengths(run))
    tokens = model.data["tokens"]
    if corpus.task == "translation" and "train" in corpus and len(tokens) <= MOST_TOKENS:
        sources = encode_texts(run.tokenizers.source, corpus.sources("train"))
        plain = [[token for token in ids if not tokens[token]["special"]] for ids in sources]
        model.data["trained"] = describe_order(plain, len(tokens))
    return model


def _measure_lengths(run: Run) -> dict[str, Any]:
    """Return the mean lengths of the rows of words and positions, as ``inspect`` and the tour measure them.

    Nothing of a model that adds no positions, and of one whose text is too short.
    """
    subject = open_subject(run.path)
    try:
        levels = MEASURE_FUNCTIONS["loudness"](subject, choose_windows(subject, None, None, DEFAULT_COUNT))
    except DataError:
        return {}
    names = {"word": "length of a word's row", "position": "length of a position's row"}
    return {"lengths": {key: levels[name] for key, name in names.items()}} if levels else {}


def _read_held_out(run: Run, corpus: Corpus) -> tuple[str, list[Pair]]:
    """Return what the corpus of a run is, and its first held-out pairs."""
    if run.architecture == "decoder" and corpus.task != "language modelling":
        raise UsageError(f"the corpus {corpus.name!r} of {run.path} holds pairs, and the model there continues text")
    split = next((name for name in ("test", "validation") if name in corpus), None)
    if split is None:
        raise UsageError(
            f"the corpus {corpus.name!r} of {run.path} has no split test or validation, and a page counts over "
            "held-out sentences"
        )
    task = corpus.description or corpus.name
    if run.architecture == "decoder":
        return task, cut_next_tokens(run, corpus.documents(split), HELD_OUT)
    return task, corpus.pairs(split)[:HELD_OUT]


def explore(
    models: str | Path | Sequence[str | Path],
    out: str | Path = "explore.html",
    *,
    texts: Sequence[str] = (),
    device: str | None = None,
    labels: Sequence[tuple[str, str]] = (),
    say: Callable[[str], None] = lambda text: None,
    progress: CountProgress = ignore_count,
    command: str = "",
) -> tuple[Path, list[ExplorerModel]]:
    """Write the page in which these runs, folders or hub names run; return its path, and the models on it.

    Args:
        models: one or several.
        out: the file of the page.
        texts: sentences whose attention is recorded of a model that the page cannot run.
        device: where models are opened (default: the CPU).
        labels: key and label of each model (default: of its path).
        say: told what is being done.
        progress: told how many held-out texts of a model are written.
        command: the command line that the page tells.

    Raises what ``prepare_checkpoint`` raises.
    """
    models = [models] if isinstance(models, (str, Path)) else models
    named = labels or [(name, name) for name in name_models(models)]
    prepared = []
    for (name, label), source in zip(named, models, strict=True):
        say(f"measuring {label}")
        prepared.append(prepare_checkpoint(str(source), name, label, texts, device=device, progress=progress))
    return write_text(out, make_page(prepared, command)), prepared


def make_page(models: Sequence[ExplorerModel], command: str, answers_at: str = "") -> str:
    """Return the page of these models, as text; ``command`` is what wrote it.

    ``answers_at``: the folder of the answers' pages, seen from this page; empty where there is none.
    """
    findings = _compose_findings(models, command)
    live = _share_lists([model.data for model in models if model.is_live])
    recorded = [model.data for model in models if not model.is_live]
    data: dict[str, Any] = {"version": __version__, "command": command, "models": live, "recorded": recorded}
    data["findings"] = [
        {"name": finding.name, "question": finding.question, "verdict": finding.verdict, "command": command}
        for finding in findings
    ]
    folder = Path(__file__).parents[1] / "studies" / "questions"
    questions = [(path.stem, read_toml(path, "the question")) for path in sorted(folder.glob("*.toml"))]
    bundle = files("clockhands.exploring").joinpath("bundle")
    style, script = (
        bundle.joinpath(name).read_text(encoding="utf8").replace("</", "<\\/")
        for name in ("explorer.css", "explorer.js")
    )
    # Findings and answers stand in the page as text and tables, for readers without script too.
    return render(
        "explorer.html",
        title=findings.title,
        policy=make_policy(script, workers=True),
        style=Markup(style),
        program=Markup(script),
        findings=findings,
        answers=[(name, question["asked"], question["answer"]) for name, question in questions],
        answers_at=answers_at,
        explorer_data=data,
        weights={model.data["weights"]["element"]: base64.b64encode(model.weights).decode("ascii") for model in models},
        script="",
    )


def _share_lists(models: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the models with each long list once: where an earlier model has the same one, that model's id stands."""
    first: dict[str, str] = {}
    shared = []
    for data in models:
        owners = {name: first.setdefault(f"{name} {data[name]}", data["id"]) for name in SHARED if name in data}
        shared.append({**data, **{name: owner for name, owner in owners.items() if owner != data["id"]}})
    return shared


def _compose_findings(models: Sequence[ExplorerModel], command: str) -> Findings:
    """Return the findings of a page with these models, for every reader, with script or without."""
    facts = {model.data["label"]: _describe(model.data) for model in models}
    live = [model.data for model in models if model.is_live]
    counted = [data for data in live if data["measured"]]
    items = [
        *([_find_untouched(counted)] if counted else ()),
        *(_find_converted(data) for data in live if not data["measured"]),
        *(_find_controls(data) for data in counted if len(data["measured"]) > 1),
        *(_find_recorded(model) for model in models if not model.is_live),
    ]
    return Findings(
        title="What word order is worth: models that run in this page" if live else "Where position enters a model",
        items=tuple(items),
        facts=facts,
        signature=f"explore|models:{len(models)}|v:{__version__}",
        command=command,
    )


def _describe(data: dict[str, Any]) -> str:
    config = data["config"]
    if config["kind"] == "recorded":
        return f"{data['task']} {config['parameters']:,} parameters."
    scheme = data["schemes"]["encoder"]["name"]
    stacks = [str(count) for count in (config["encoderLayers"], config["decoderLayers"]) if count]
    layers = f"{' + '.join(stacks)} layers, d_model {config['dModel']}"
    return f"{data['task']}; {layers}, {config['parameters']:,} parameters, positions: {scheme}"


def _find_untouched(counted: Sequence[dict[str, Any]]) -> Finding:
    """Say how many held-out texts each live model gets right as it was trained."""
    rows = [(data["label"], *(data["measured"][0][key] for key in ("right", "of"))) for data in counted]
    return Finding(
        name="explore.untouched",
        question="How many held-out texts does each model get right?",
        verdict="; ".join(f"{label}: {right} of {of}" for label, right, of in rows) + ".",
        table=Table.of(("model", "right", "of"), rows if len(rows) > 1 else []),
        method="Texts that training never showed. Of a translator those are right whose greedy translation equals the "
        "one right translation, letter by letter; of a language model those whose likeliest next token follows.",
    )


def _find_converted(data: dict[str, Any]) -> Finding:
    """Say what runs of a model of another project, which nothing was counted of."""
    sizes = _describe(data).split("; ", 1)[1]
    return Finding(
        name=f"explore.live.{data['id']}",
        question=f"What runs here of {data['label']}?",
        verdict=f"{data['task']}: {sizes}. It runs whole, with weights in half precision.",
        method="A model of another project, converted to one of Clockhands, which computes the same logits. Nothing is "
        "counted over held-out texts, because its training may have seen any.",
    )


def _find_controls(data: dict[str, Any]) -> Finding:
    """Say how many held-out sentences a model gets right with each change to its positions."""
    measured = data["measured"]
    right, of = (measured[0][key] for key in ("right", "of"))
    changes = [(row["name"], row["right"], row["of"], row["confidence"]) for row in measured]
    loud = ", ".join(f"{row['name']} {row['right']}" for row in measured if "loudness" in row["controls"])
    return Finding(
        name=f"explore.controls.{data['id']}",
        question=f"What does it do to {data['label']} when its positions are changed after training?",
        verdict=f"Of {of} held-out sentences {right} are right {UNTOUCHED}; {loud}.",
        value=right,
        unit=f"of {of} right",
        table=Table.of(("the encoder's positions", "right", "of", "confidence"), changes),
        method="Nothing is trained again: the encoder's input is changed and the same weights translate, greedily. The "
        "numbers tell what a change does to this trained model, not what a model trained with that change would learn. "
        "Confidence: the geometric mean of the probabilities of the tokens, the end token among them, and of that the "
        "mean over sentences.",
    )


def _find_recorded(model: ExplorerModel) -> Finding:
    """Say where position enters, and how far back the heads of each layer look in the sentences."""
    data, rows = model.data, []
    for index, sentence in enumerate(data["sentences"]):
        for layer, weights_HTT in enumerate(model.read_array(f"sentence.{index}"), 1):
            place_T = np.arange(weights_HTT.shape[-1])
            distance = (weights_HTT * np.abs(place_T[:, None] - place_T)).sum(-1).mean()
            own = weights_HTT.trace(0, 1, 2).mean() / len(place_T)
            before = weights_HTT.trace(-1, 1, 2).mean() / len(place_T)
            means = (distance, own, before, weights_HTT[..., 0].mean())
            rows.append((sentence["text"], layer, *(round(float(mean), 3) for mean in means)))
    columns = ("sentence", "layer", "mean distance in tokens", "to itself", "to the token before", "to the first")
    return Finding(
        name=f"explore.recorded.{data['id']}",
        question=f"Where does position enter {data['label']}, and where does it attend?",
        verdict=f"{data['task']} {data['reason']}",
        table=Table.of(columns, rows),
        method="The means over the heads of a layer and the tokens of a sentence, special ones included; the last "
        "three columns are shares of the attention weights.",
    )
