"""The card of an extended model: what was done to it, what that was measured to give and to cost, how it is served."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clockhands.extension.choice_findings import describe_choice
from clockhands.extension.choose import Choice, Judged
from clockhands.extension.write import CONFIG4, Written, list_engine_lines
from clockhands.findings import Finding, Findings, Table

STALE = 1e-3
"""The share of the spread of the logits above which a text that changes after a longer one is told."""
KEPT_KEYS = {
    1: "Keys keep the frequencies of the call that read them, the short list, and later tokens use the long one.",
    2: "Keys keep the frequencies of the step that read them, and every later token has slower ones.",
}
"""Why a cache changes what is read, by ``find_dependence``."""


def make_cache_finding(written: Written, chosen: Judged, plain: Judged, *, ours: bool, dependence: int) -> Finding:
    """Return the finding that says what a written model computes where it goes on by its cache.

    ``chosen``: what was judged of it, after training where it was trained. ``ours``: whether it is one of this project.
    """
    trained, lengths = written.trained, chosen.drift.lengths
    rows: list[tuple[object, ...]] = []
    if chosen.cached is not None:
        means = [reading.losses_NR.mean(0) for reading in (plain.drift, chosen.drift, chosen.cached)]
        rows = list(zip(lengths, *means, strict=True))
        plain_loss = f"{means[0][-1]:.3f}" if np.isfinite(means[0][-1]) else "it cannot be read"
        verdict = (
            f"It reads otherwise: after {trained:,} tokens at once and the others one by one the loss at "
            f"{lengths[-1]:,} tokens is {means[2][-1]:.3f}; in one pass it is {means[1][-1]:.3f}, as trained "
            f"{plain_loss}. {KEPT_KEYS[dependence]} Beyond {trained:,} tokens its logits differ by "
            f"up to {written.change:.2g} from those of one pass; their standard deviation is {written.spread:.2g}."
        )
    elif dependence and ours:
        verdict = (
            f"It takes none beyond {trained:,} tokens, where keys in it would be stale: `generate` reads the whole "
            "text again at every step, as in one pass, which is slower."
        )
    elif not written.steps:
        verdict = "It was not tried: this model does not go on from a cache to the logits of one pass."
    else:
        verdict = (
            f"Nothing: its positions do not depend on the length of the text. After {trained:,} tokens at once, "
            f"{written.steps} tokens one by one gave logits that differ by at most {written.step_error:.1g}."
        )
    if written.stale > STALE * written.spread:
        verdict += (
            f" After a text of {written.longest:,} tokens, one of {trained:,} gives logits that differ by up to "
            f"{written.stale:.2g} from those in a fresh process: transformers keeps the base of the longer text until "
            "it reads a shorter one than that."
        )
    return Finding(
        "extend.cache",
        "What changes where it goes on by its cache, as in `generate`?",
        verdict,
        light="warn" if rows or written.stale > STALE * written.spread else "good",
        table=Table.of(["tokens", "loss as trained", "loss in one pass", "loss by its cache"], rows),
        method=(
            "The written folder was opened again; one text of random tokens was read in one pass and by its cache, and "
            "compared with what was judged. Losses: texts of the judgement."
        ),
        details={"group": "What was written"},
    )


def make_engine_finding(folder: Path, dependence: int = 0) -> Finding:
    """Return the finding that lists how each program is told the positions of a written model."""
    lines = list(list_engine_lines(folder))
    remark = " vLLM and SGLang use the long list for every text, short ones too." if dependence == 1 else ""
    return Finding(
        "extend.engines",
        "How is it served?",
        "transformers 5 reads the folder as it is"
        + (f"; for transformers 4 put {CONFIG4} in the place of config.json." if (folder / CONFIG4).exists() else ".")
        + remark,
        light="info",
        table=Table.of(["program", "is told"], lines),
        method="Converted from the written configuration, as `clockhands explain --to` does.",
        details={"group": "What was written"},
    )


def write_card(findings: Findings, choice: Choice, source: str, folder: Path) -> Path:
    """Write ``README.md`` of an extended model: the sentences of the findings with their tables."""
    from huggingface_hub import ModelCard, ModelCardData

    base = None if Path(source).exists() else source  # a folder is nobody else's model
    data = ModelCardData(library_name="transformers", tags=["clockhands", "long-context"], base_model=base)
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {source}, for texts of {choice.longest:,} tokens",
        describe_choice(choice),
        f"Trained on texts of {choice.trained:,} tokens. Made by `{findings.command}`.",
    ]
    for finding in findings:
        parts += [f"## {finding.question}", finding.verdict]
        if finding.table.rows:
            rows = [finding.table.columns, ["---"] * len(finding.table.columns), *finding.table.rows]
            parts.append("\n".join("| " + " | ".join(map(_write_cell, row)) + " |" for row in rows))
    ModelCard("\n\n".join(parts) + "\n").save(folder / "README.md")
    return folder / "README.md"


def _write_cell(cell: object) -> str:
    text = f"{cell:.4g}" if isinstance(cell, float) else "" if cell is None else str(cell)
    return text.replace("\n", "⏎").replace("|", "\\|")
