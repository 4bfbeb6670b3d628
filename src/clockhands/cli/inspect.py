"""``clockhands inspect``: what position does inside a run, a folder or a checkpoint of the hub."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from clockhands.cli.common import DeviceOptions, prepare, report_new_folder
from clockhands.cli.flags import POSITIONAL, REPEATED, write_command
from clockhands.errors import UsageError
from clockhands.options import Range

if TYPE_CHECKING:
    from clockhands.findings import Findings
    from clockhands.model.position_config import StackSide

EXAMPLES = (
    "clockhands inspect runs/tour",
    "clockhands inspect runs/tour --text README.md --texts 24 --length 32 --json > findings.json",
    "clockhands inspect runs/tour --side both",
    'clockhands inspect runs/tour --sentence "zweihundertdrei"',
    "clockhands inspect ./weights --ids ids.npy --out report",
    "clockhands inspect ./weights --tokenizer ./llama --text my.txt --out report",
    "clockhands inspect runs/tour runs/mine --out report",
)


@dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """What is measured, on which text, and where the page goes.

    Args:
        model: folder of a run or checkpoint, or a hub name; two are set side by side
        side: which stack of an encoder-decoder, or both side by side (default: its encoder)
        text: text to measure on (default: built-in English)
        tokenizer: folder or hub name of a tokenizer (default: the model's own)
        ids: token ids instead of text, as numpy.save wrote them: [texts, tokens], or [tokens] to be cut into windows
        sentence: show this sentence: attention, its four terms, two words swapped; once for each sentence
        out: where the page goes
        json: print the findings as JSON instead of writing a page
        texts: windows of text to read; 8 at least, to tell position from chance
        length: tokens in a window (default: 128, or what the model can read)
        control: also measure the same model with fresh weights (default: unless it is very large)
        trust_remote_code: run code that a checkpoint brings with it
    """

    model: Annotated[tuple[str, ...], POSITIONAL]
    side: Literal["encoder", "decoder", "both"] | None = None
    text: Annotated[tuple[str, ...], "FILE"] = ()
    tokenizer: Annotated[str | None, "NAME"] = None
    ids: Annotated[str | None, "FILE.npy"] = None
    sentence: Annotated[tuple[str, ...], "TEXT", REPEATED] = ()
    out: Annotated[str, "FOLDER"] = "report"
    json: bool = False
    texts: Annotated[int, Range(least=8), "N"] = 96
    length: Annotated[Annotated[int, Range(least=8)] | None, "N"] = None
    control: bool | None = None
    trust_remote_code: bool = False


def run(options: Options) -> int:
    """Measure a model or two, and write a page or print the findings."""
    if len(options.model) > 2:
        raise UsageError(f"inspect takes one model or two to set side by side, not {len(options.model)}")
    if options.ids is not None and options.text:
        raise UsageError("--text and --ids exclude each other: give the text, or its token ids")
    if any(not sentence.strip() for sentence in options.sentence):
        raise UsageError("--sentence is empty; give a sentence of at least two tokens")
    if options.side == "both" and len(options.model) > 1:
        raise UsageError("--side both sets two stacks of one model side by side; give one model, or one side of two")
    prepare(options)
    from clockhands.report import put_side_by_side, show, write
    from clockhands.report.write import find_earlier_files

    if not options.json:
        find_earlier_files(Path(options.out))
    sides: tuple[StackSide | None, ...] = ("encoder", "decoder") if options.side == "both" else (options.side,)
    each_model = [_inspect(model, side, options) for model in options.model for side in sides]
    findings = each_model[0] if len(each_model) == 1 else put_side_by_side(*each_model)
    reasons = dict.fromkeys(
        str(item.details["not comparable"]) for item in findings if "not comparable" in item.details
    )
    if reasons:
        advice = "; give both one text with --text FILE" if any(" text" in reason for reason in reasons) else ""
        print(f"clockhands: some measures are not comparable: {'; '.join(reasons)}{advice}", file=sys.stderr)
    if options.json:
        print(findings.to_json())
        return 0
    with report_new_folder(options.out):
        paths = write(findings, options.out)
    show(findings)
    print(f"\n{paths[0]}")
    return 0


def _inspect(model: str, side: StackSide | None, options: Options) -> Findings:
    """Measure one model, and tell what ``explore`` shows of it: that verb takes neither tokenizer nor foreign code."""
    import torch

    from clockhands.exploring import describe_offer
    from clockhands.inspection import inspect, open_subject
    from clockhands.models.door import open_tokenizer

    trust, texts = options.trust_remote_code, None
    if options.text:
        from clockhands.data.readers import read_documents

        texts = [document for file in options.text for document in read_documents(Path(file), "file", "utf-8")]
    tokenizer = None if options.tokenizer is None else open_tokenizer(options.tokenizer, trust_remote_code=trust)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    subject = open_subject(model, trust_remote_code=trust, device=device, side=side, tokenizer=tokenizer)
    findings = inspect(
        subject,
        texts=texts,
        ids=options.ids,
        length=options.length,
        count=options.texts,
        sentences=options.sentence,
        control=options.control,
        progress=True,
        command=write_command("inspect", options, ("out", "json", "device", "threads")),
    )
    # With --text the corpus of a run was not opened, and is not opened for this line alone.
    if tokenizer is None and not trust and texts is None and (offer := describe_offer(subject, model)):
        findings = replace(findings, facts={**findings.facts, "explore": offer})
    return findings
