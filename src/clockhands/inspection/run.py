"""``inspect``: every measure on one model, from the input outwards, then cause."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from clockhands import __version__
from clockhands.errors import CheckpointError, UsageError
from clockhands.findings import Finding, Findings
from clockhands.inspection.drawing import skip
from clockhands.inspection.measures import (
    across,
    cause,
    decomposed,
    directions,
    hands,
    heads,
    kernels,
    loudness,
    recovery,
    repeated,
    share,
    survival,
    swap,
    table,
    terms,
)
from clockhands.inspection.opening import open_subject, open_tokenizer
from clockhands.inspection.progress import Progress, watched
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.logit_split import Split, split
from clockhands.inspection.reading.windows import USUAL, Ids, Windows, given_windows, paired, read_ids, windows
from clockhands.inspection.subject.influence import Influence, influence
from clockhands.inspection.subject.subject import Side, Subject
from clockhands.shapes import Tensor

TEXTS = 96
CONTROL_TEXTS = survival.MOST_TEXTS
BATCH = 8
SHORTEST_WINDOW = 16
PIECE = 80
"""Letters of a line that an encoder reads at once beside a decoder."""
LARGE = 400_000_000
"""Parameters above which no untrained control is built unless asked: it takes as much memory again."""

GROUPS = {
    ("text",): "The text",
    ("loudness", "directions", "recovery", "table"): "At the input",
    ("kernel", "logits"): "What attention is made of",
    ("survival", "heads"): "Through the layers",
    ("cause",): "What comes of it",
}
"""Headings of the page, by the beginnings of the findings' names."""

_READ = ("text", "tokenizer", "length of the windows")
RESTS_ON: dict[tuple[str, ...], tuple[str, ...]] = {
    ("text",): _READ,
    ("table",): (),
    ("loudness", "recovery"): ("text", "tokenizer"),
    ("directions",): ("text", "tokenizer", "width"),
    ("cause.loss",): _READ,
    ("survival", "cause"): (*_READ, "what attention may see", "task"),
    ("heads",): (*_READ, "what attention may see"),
    ("kernel", "logits"): _READ,
}
"""What the numbers rest on besides the model, by the beginnings of the findings' names."""
MOST_COMPARED = 1000
"""Texts that are looked at to tell whether two models read the same."""


ATTENTION = {
    "kernel": kernels.KERNEL,
    "kernel.frequencies": kernels.FREQUENCY,
    "kernel.terms": terms.QUESTION,
    "logits.layers": decomposed.LAYERS,
    "logits.heads": decomposed.HEADS,
}
LOOKS = {"heads.positional": heads.POSITIONAL, "heads.distance": heads.DISTANCE}
"""The measures that need attention to be readable, with their questions."""


@dataclass
class Measured:
    """One model with everything the measures share: computed once, read by many."""

    subject: Subject
    capture: Capture
    splits: list[Split] = field(default_factory=list)
    heads: list[heads.HeadStatistics] = field(default_factory=list)


def inspect(
    model: nn.Module | Subject | str | Path,
    tokenizer: Any = None,
    texts: Sequence[str] | Tensor | None = None,
    *,
    ids: Ids | str | Path | None = None,
    length: int | None = None,
    count: int = TEXTS,
    control: bool | None = None,
    name: str = "",
    side: Side | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    progress: bool = False,
    command: str = "",
) -> Findings:
    """What position does inside a Transformer: findings from the input outwards, then by intervention.

    ``model``: a model object of ``transformers`` or of this project, with its ``tokenizer``; or a folder or hub name.
    ``tokenizer``: an opened one, or the folder or hub name of one, for a model that came without or with a wrong one.
    A ``Subject`` brings its own ``tokenizer``, ``name`` and ``side``. ``device``: where a folder or hub name is opened
    (default: the CPU); a model object is measured where it is.
    ``texts``: strings, which are joined and cut into at most ``count`` windows of ``length`` tokens (default: 128, or
    what the model can read); default: the built-in English text. ``ids``: token ids instead of texts, as a tensor, a
    numpy array or the path of a ``.npy`` file: [texts, tokens], used as they are or their first ``length`` tokens, or
    [tokens], one long text that is cut into windows. ``control``: also measure
    the same class with fresh weights, the null of most measures (default: unless the model is very large). ``side``:
    which stack of an encoder-decoder (default: the encoder); a decoder reads its windows beside what they translate
    where a run knows that, else beside the same text.

    Raises CheckpointError where a model or tokenizer cannot be opened or is not understood, DataError for too little
    text or ids that are no token ids of this model, UsageError for windows longer than the model, a side that it has
    not, or an option that an opened model settles.
    """
    if ids is not None and texts is not None:
        raise UsageError(
            "inspect was given both texts and ids (--text and --ids): give one, for it measures on one text"
        )
    given = read_ids(ids) if isinstance(ids, str | Path) else ids
    with _evaluating(model), watched(progress) as tick, torch.no_grad():
        opened = _subject(model, tokenizer, name, device, trust_remote_code, side)
        subject = opened.in_float32()
        data = _windows(subject, texts if given is None else given, length, count)
        if control is None:
            control = sum(weight.numel() for weight in subject.model.parameters()) < LARGE
        trained = _measure(subject, data, tick)
        fresh = _fresh(subject, data, tick) if control else None
        own = None if texts is None or isinstance(texts, Tensor) else texts
        seen = influence(subject, data.ids_NT, data.ordinary_T, data.source_NS)
        items = tuple(_findings(trained, fresh, seen, tick, own))
        basis = _basis(trained, seen, texts if given is None else given)
        facts = _facts(trained, seen, _origin(subject, data, texts is None and ids is None), control)
        if subject is not opened:
            stored = str(next(opened.model.parameters()).dtype).removeprefix("torch.")
            facts["precision"] = f"float32; the weights are {stored}"
    return Findings(
        title=f"What position does inside {subject.label}",
        items=tuple(_placed(item, command, basis) for item in items),
        facts=facts,
        signature=f"inspect|texts:{trained.capture.texts}x{trained.capture.length}|v:{__version__}",
        command=command,
    )


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Inside, nothing of a model is dropped out; afterwards every module of it trains or not, as the caller left it."""
    roots = (model.model, model.whole) if isinstance(model, Subject) else (model,)
    modules = {module for root in roots if isinstance(root, nn.Module) for module in root.modules()}
    before = {module: module.training for module in modules}
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module, training in before.items():
            module.training = training


def _subject(
    model: Any, tokenizer: Any, name: str, device: str | None, trust_remote_code: bool, side: Side | None
) -> Subject:
    if isinstance(tokenizer, str | Path):
        tokenizer = open_tokenizer(tokenizer, trust_remote_code=trust_remote_code)
    if isinstance(model, Subject):
        _refuse("Subject", side=side, tokenizer=tokenizer, name=name or None, device=device)
        return model
    if isinstance(model, str | Path):
        subject = open_subject(
            model, trust_remote_code=trust_remote_code, device=device or "cpu", side=side, tokenizer=tokenizer
        )
        subject.name = name or subject.name
        return subject
    if not isinstance(model, nn.Module):
        raise UsageError(f"inspect takes a model, a folder or a hub name, not {type(model).__name__}")
    _refuse("model", device=device)
    return Subject.of(model, tokenizer, name, side)


def _refuse(what: str, **given: Any) -> None:
    """Raises UsageError for what an opened model has already: it would be ignored, or change the caller's model."""
    advice = {
        "side": "choose it with Subject.of(model, side=...)",
        "device": "it is measured where it is, so move it before",
    }
    for option, value in given.items():
        if value is not None:
            told = advice.get(option, f"set subject.{option}")
            shown = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
            raise UsageError(f"inspect was given {option} = {shown} with an opened {what}, which has its own; {told}")


def _windows(subject: Subject, texts: Sequence[str] | Ids | None, length: int | None, count: int) -> Windows:
    """The text to measure on: what was given, what the model was trained on, or English."""
    longest = subject.longest
    if isinstance(texts, Tensor | np.ndarray):
        data = given_windows(texts, count=count, longest=longest, length=length)
        return replace(data, source_NS=data.ids_NT) if subject.looks_across else data
    chosen = length or min(USUAL, longest or USUAL, _usual_length(subject) if texts is None else USUAL)
    asked: dict[str, Any] = {"length": chosen, "count": count, "longest": longest, "start": subject.start}
    across: dict[str, Any] = {**asked, "source_longest": subject.source_longest}
    if texts is None and subject.pairs is not None:
        return paired(subject.tokenizer, subject.source_tokenizer, subject.pairs, **across)
    read = texts if texts is not None else subject.texts or _default_texts()
    if subject.looks_across and subject.source_tokenizer is not None:
        return paired(subject.tokenizer, subject.source_tokenizer, _itself(read), **across)
    data = windows(subject.tokenizer, read, **asked)
    return replace(data, source_NS=data.ids_NT) if subject.looks_across else data


def _itself(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Text as its own translation, line by line, of long lines piece by piece: so that both sides read the same."""
    for text in texts:
        for line in text.split("\n"):
            for piece in textwrap.wrap(line, PIECE, break_on_hyphens=False):
                yield piece, piece


def _default_texts() -> Sequence[str]:
    """English prose that every machine has: the documentation strings of Python's own library."""
    from clockhands.data import open_corpus

    return list(open_corpus("stdlib").documents("train"))


def _measure(subject: Subject, data: Windows, tick: Progress) -> Measured:
    """Run the model over the text, split its logits and collect its heads, layer by layer."""
    tick.expect(-(-len(data.ids_NT) // BATCH))
    found = Measured(
        subject,
        capture(
            subject.model,
            subject.forward,
            data.ids_NT,
            ordinary_T=data.ordinary_T,
            source_NS=data.source_NS,
            batch=BATCH,
            tick=lambda: tick(f"reading {subject.name}"),
        ),
    )
    tick.expect(len(found.capture.layers))
    for layer in found.capture.layers:
        tick(f"layer {layer.index + 1} of {subject.name}")
        counts = heads.Counts(data.ordinary_T)
        found.splits.append(split(layer, data.ordinary_T, counts.add))
        found.heads.append(counts.statistics())
    return found


def _fresh(subject: Subject, data: Windows, tick: Progress) -> Measured:
    """The same class with fresh weights. Raises CheckpointError where its configuration does not build one."""
    try:
        untrained = subject.untrained()
    except Exception as fault:  # foreign code, run in a way that it may not have been written for
        line = next(iter(str(fault).strip().splitlines()), "no message")
        raise CheckpointError(
            f"a {subject.kind} with fresh weights, the reference of most measures, cannot be built "
            f"({type(fault).__name__}: {line}); leave it out with --no-control (control=False)"
        ) from fault
    return _measure(untrained, data.first(CONTROL_TEXTS), tick)


def _findings(
    trained: Measured, fresh: Measured | None, seen: Influence, tick: Progress, texts: Sequence[str] | None
) -> Iterator[Finding]:
    """All measures in the order a reader should meet them: input outwards, then cause."""
    subject, recorded = trained.subject, trained.capture
    control = fresh.splits if fresh else None
    other = fresh.capture if fresh else None
    attention: list[Callable[[], Finding]] = [
        lambda: kernels.kernel(subject, recorded, trained.splits, control),
        lambda: kernels.frequencies(subject, recorded, other),
        lambda: terms.terms(subject, recorded, trained.splits, (fresh.capture, fresh.splits) if fresh else None),
        lambda: decomposed.layers(trained.splits, control),
        lambda: decomposed.heads(trained.splits, control),
    ]
    looks: list[Callable[[], Finding]] = [
        lambda: heads.positional(trained.heads, fresh.heads if fresh else None),
        lambda: heads.distance(trained.heads),
    ]
    if not recorded.layers:
        attention, looks = _unread(ATTENTION, recorded), _unread(LOOKS, recorded)
    changes = cache(lambda: cause.interventions(subject, recorded))
    found: dict[str, Finding] = {}
    steps: list[Callable[[], Finding]] = [
        lambda: repeated.repeated(recorded),
        lambda: loudness.loudness(subject, recorded, fresh.subject if fresh else None),
        lambda: directions.directions(subject, recorded),
        lambda: recovery.recovery(subject, recorded),
        lambda: table.similarity(subject),
        lambda: hands.hands(subject),
        lambda: table.shift(subject),
        *attention,
        lambda: survival.survival(subject, recorded, (fresh.subject, fresh.capture) if fresh else None),
        lambda: share.share(recorded, other),
        *looks,
        *_across(trained, fresh),
        lambda: cause.tokens(changes()),
        lambda: cause.cause(subject, changes(), bool(found["kernel"].details.get("beyond"))),
        lambda: cause.loss(subject, recorded, seen),
        lambda: swap.swapped(subject, texts),
    ]
    tick.expect(len(steps))
    for step in steps:
        finding = step()
        found[finding.name] = finding
        tick(finding.question)
        yield finding


def _unread(measures: dict[str, str], recorded: Capture) -> list[Callable[[], Finding]]:
    """Measures of an attention that cannot be read, left out with the reason."""
    why = f"Not measured: {recorded.unread}."
    return [partial(skip, name, question, why) for name, question in measures.items()]


def _across(trained: Measured, fresh: Measured | None) -> list[Callable[[], Finding]]:
    """Cross-attention, where there are two sides."""
    if trained.subject.whole is None:
        return []
    if not trained.capture.layers:
        return _unread({"heads.across": across.QUESTION}, trained.capture)
    control = (fresh.subject, fresh.capture) if fresh else None
    return [lambda: across.across(trained.subject, trained.capture, control)]


def _placed(finding: Finding, command: str, basis: Mapping[str, str]) -> Finding:
    """The finding under its heading, with the command that makes it again and what it rests on."""
    group = next(group for prefixes, group in GROUPS.items() if finding.name.startswith(prefixes))
    keys = next(keys for prefixes, keys in RESTS_ON.items() if finding.name.startswith(prefixes))
    mine = {key: basis[key] for key in keys}
    return replace(finding, command=command, details={**finding.details, "group": group}, basis=mine)


def _basis(found: Measured, seen: Influence, texts: Any) -> dict[str, str]:
    """What the numbers rest on besides the model; two models are comparable where that is alike."""
    subject, capture = found.subject, found.capture
    read = texts
    if texts is None:
        read = subject.pairs if subject.pairs is not None else subject.texts if subject.texts is not None else "default"
    if hasattr(read, "tolist"):
        read = read.tolist()
    vocabulary: dict[str, int] = getattr(subject.tokenizer, "get_vocab", dict)()
    whole = f"the {subject.side} of an encoder-decoder"
    return {
        "text": _digest(read if isinstance(read, str) else list(islice(read, MOST_COMPARED))),
        "tokenizer": _digest(sorted(vocabulary.items())) if vocabulary else "token ids",
        "length of the windows": str(capture.length),
        "what attention may see": seen.sentence,
        "task": whole if subject.whole is not None else "language model" if seen.causal else "encoder",
        "width": str(capture.hidden[0].shape[-1]),
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode("utf8", "surrogatepass")).hexdigest()[:12]


def _usual_length(subject: Subject, sample: int = 200) -> int:
    """As long as most texts that a run was trained on, for beyond that its positions were never heard."""
    texts = subject.texts or [target for _, target in (subject.pairs or [])[:sample]]
    if not texts or subject.tokenizer is None:
        return USUAL
    lengths = sorted(len(subject.tokenizer(text)["input_ids"]) for text in texts[:sample])
    return max(SHORTEST_WINDOW, lengths[int(0.9 * (len(lengths) - 1))])


def _origin(subject: Subject, data: Windows, default: bool) -> str:
    """Whose text the windows are cut from, and what an encoder read beside them."""
    known = " of the text it was trained on" if subject.texts or subject.pairs else " of Python's documentation"
    whose = known if default else ""
    if data.source_NS is None:
        return whose
    return f"{whose}, beside {'what they translate' if default and subject.pairs else 'the same text as source'}"


def _layers(found: Measured) -> str:
    """How many attention layers were read, of how many heads."""
    if not found.splits:
        return ""
    return f"{len(found.capture.layers)} layers, {found.splits[0].var_NH.shape[1]} heads, "


def _facts(found: Measured, seen: Influence, origin: str, control: bool) -> dict[str, str | int]:
    """The lines on top of the page."""
    import transformers

    model = found.subject.model
    return {
        "model": found.subject.label,
        "class": found.subject.kind,
        "position": found.subject.mechanism,
        "size": f"{_layers(found)}width {found.capture.hidden[0].shape[-1]}, "
        f"{sum(p.numel() for p in model.parameters()):,} parameters",
        "attention": seen.sentence,
        "text": f"{found.capture.texts} windows of {found.capture.length} tokens" + origin,
        "control": "the same class with fresh weights" if control else "none (too large, or not asked for)",
        "versions": f"clockhands {__version__}, torch {torch.__version__}, transformers {transformers.__version__}",
    }
