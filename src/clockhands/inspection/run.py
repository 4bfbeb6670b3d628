"""``inspect``: every measure on one model, from the input outwards, then cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clockhands import __version__
from clockhands.errors import UsageError
from clockhands.findings import Finding, Findings
from clockhands.inspection.capture import Capture, capture
from clockhands.inspection.decomposition import Split, split
from clockhands.inspection.measures import (
    cause,
    decomposed,
    directions,
    hands,
    heads,
    kernels,
    loudness,
    recovery,
    share,
    survival,
    table,
)
from clockhands.inspection.opening import open_subject
from clockhands.inspection.progress import Progress, watched
from clockhands.inspection.subject import Subject
from clockhands.inspection.texts import Windows, windows
from clockhands.shapes import Tensor

TEXTS, LENGTH = 96, 128
CONTROL_TEXTS = 32
BATCH = 8
SHORTEST_WINDOW = 16
LARGE = 400_000_000
"""Parameters above which no untrained control is built unless asked: it takes as much memory again."""

GROUPS = {
    ("loudness", "directions", "recovery", "table"): "At the input",
    ("kernel", "logits"): "What attention is made of",
    ("survival", "heads"): "Through the layers",
    ("cause",): "What comes of it",
}
"""Headings of the page, by the beginnings of the findings' names."""


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
    length: int | None = None,
    count: int = TEXTS,
    control: bool | None = None,
    name: str = "",
    device: str = "cpu",
    trust_remote_code: bool = False,
    progress: bool = False,
    command: str = "",
) -> Findings:
    """What position does inside a Transformer: findings from the input outwards, then by intervention.

    ``model``: a model object of ``transformers`` or of this project, with its ``tokenizer``; or a folder or hub name.
    ``texts``: strings, which are joined and cut into at most ``count`` windows of ``length`` tokens (default: 128, or
    what the model can read), or token ids (N × T); default: the built-in English text. ``control``: also measure
    the same class with fresh weights, the null of most measures (default: unless the model is very large).

    Raises CheckpointError where a model cannot be opened or is not understood, DataError for too little text,
    UsageError for windows longer than the model.
    """
    subject = _subject(model, tokenizer, name, device, trust_remote_code)
    longest = subject.longest
    read = texts if texts is not None else subject.texts or _default_texts()
    chosen = length or min(LENGTH, longest or LENGTH, _usual_length(subject) if texts is None else LENGTH)
    data = windows(subject.tokenizer, read, length=chosen, count=count, longest=longest)
    if control is None:
        control = sum(weight.numel() for weight in subject.model.parameters()) < LARGE
    with watched(progress) as tick, torch.no_grad():
        trained = _measure(subject, data, tick)
        fresh = _measure(subject.untrained(), _first(data, CONTROL_TEXTS), tick) if control else None
        items = tuple(_findings(trained, fresh, tick))
    return Findings(
        title=f"What position does inside {subject.name}",
        items=tuple(_placed(item, command) for item in items),
        facts=_facts(trained, _origin(subject) if texts is None else "", control),
        signature=f"inspect|texts:{trained.capture.texts}x{trained.capture.length}|v:{__version__}",
        command=command,
    )


def _subject(model: Any, tokenizer: Any, name: str, device: str, trust_remote_code: bool) -> Subject:
    if isinstance(model, Subject):
        return model
    if isinstance(model, str | Path):
        subject = open_subject(model, trust_remote_code=trust_remote_code, device=device)
        subject.name = name or subject.name
        subject.tokenizer = tokenizer or subject.tokenizer
        return subject
    if not isinstance(model, nn.Module):
        raise UsageError(f"inspect takes a model, a folder or a hub name, not {type(model).__name__}")
    return Subject.of(model, tokenizer, name)


def _default_texts() -> Sequence[str]:
    """English prose that every machine has: the documentation strings of Python's own library."""
    from clockhands.data import open_corpus

    return list(open_corpus("stdlib").documents("train"))


def _first(data: Windows, count: int) -> Windows:
    return Windows(data.ids_NT[:count], data.ordinary_T)


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


def _findings(trained: Measured, fresh: Measured | None, tick: Progress) -> Iterator[Finding]:
    """All measures in the order a reader should meet them: input outwards, then cause."""
    subject, recorded = trained.subject, trained.capture
    control = fresh.splits if fresh else None
    other = fresh.capture if fresh else None
    steps: list[Callable[[], Finding]] = [
        lambda: loudness.loudness(subject, recorded, fresh.subject if fresh else None),
        lambda: directions.directions(subject, recorded),
        lambda: recovery.recovery(subject, recorded),
        lambda: table.similarity(subject),
        lambda: hands.hands(subject),
        lambda: table.shift(subject),
        lambda: kernels.kernel(subject, recorded, trained.splits, control),
        lambda: kernels.frequencies(subject, recorded, other),
        lambda: decomposed.layers(trained.splits, control),
        lambda: decomposed.heads(trained.splits),
        lambda: survival.survival(subject, recorded, (fresh.subject, fresh.capture) if fresh else None),
        lambda: share.share(recorded, other),
        lambda: heads.positional(trained.heads, fresh.heads if fresh else None),
        lambda: heads.distance(trained.heads),
        lambda: cause.cause(subject, recorded),
        lambda: cause.swapped(subject, _encoder(subject)),
    ]
    tick.expect(len(steps))
    for step in steps:
        finding = step()
        tick(finding.question)
        yield finding


def _encoder(subject: Subject) -> Callable[[str], list[int]] | None:
    if subject.tokenizer is None:
        return None
    return lambda text: list(subject.tokenizer(text)["input_ids"])


def _placed(finding: Finding, command: str) -> Finding:
    """The finding under its heading, with the command that makes it again."""
    group = next(group for prefixes, group in GROUPS.items() if finding.name.startswith(prefixes))
    return replace(finding, command=command, details={**finding.details, "group": group})


def _usual_length(subject: Subject, sample: int = 200) -> int:
    """As long as most texts that a run was trained on, for beyond that its positions were never heard."""
    if not subject.texts or subject.tokenizer is None:
        return LENGTH
    lengths = sorted(len(subject.tokenizer(text)["input_ids"]) for text in subject.texts[:sample])
    return max(SHORTEST_WINDOW, lengths[int(0.9 * (len(lengths) - 1))])


def _origin(subject: Subject) -> str:
    return " of the text it was trained on" if subject.texts else " of Python's documentation"


def _facts(found: Measured, origin: str, control: bool) -> dict[str, str | int]:
    """The lines on top of the page."""
    import transformers

    model = found.subject.model
    causal = "each token sees those before it" if found.subject.causal else "every token sees all others"
    return {
        "model": found.subject.name,
        "class": type(model).__name__,
        "position": found.subject.mechanism,
        "size": f"{len(found.capture.layers)} layers, {found.splits[0].var_NH.shape[1]} heads, "
        f"width {found.capture.hidden[0].shape[-1]}, {sum(p.numel() for p in model.parameters()):,} parameters",
        "attention": causal,
        "text": f"{found.capture.texts} windows of {found.capture.length} tokens" + origin,
        "control": "the same class with fresh weights" if control else "none (too large, or not asked for)",
        "versions": f"clockhands {__version__}, torch {torch.__version__}, transformers {transformers.__version__}",
    }
