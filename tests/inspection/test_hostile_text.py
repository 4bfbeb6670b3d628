"""Text of somebody else, in tokens, names, paths and findings files, is text on the page and nothing more."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from clockhands.data import train_tokenizer
from clockhands.findings import Figure, Finding, Findings, Mark, Panel, Reference, Table
from clockhands.inspection import inspect
from clockhands.report import page, side_by_side, write

EVIL = "<script>alert(1)</script>"
TEXT = [f"the old king number {i} {EVIL} saw the dog" for i in range(60)]


class _Tags(HTMLParser):
    """The elements of a page, and its attributes that would run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append(tag)
        self.found += [name for name, value in attrs if name.startswith("on") or "javascript:" in (value or "").lower()]


def _harmless(text: str) -> bool:
    return not {tag for tag in _Tags(text).found if tag == "script" or tag.startswith("on") or "javascript:" in tag}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """A language model in a folder of that name, whose tokens and text are scripts."""
    tokenizer = train_tokenizer(TEXT, kind="word", task="language modelling")
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 1}
    torch.manual_seed(0)
    model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=len(tokenizer), **sizes))
    folder = tmp_path_factory.mktemp("x") / "<script>alert(1)<" / "script>"
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return inspect(folder, texts=TEXT, control=False, command=f"clockhands inspect '{folder}'")


def test_tokens_and_paths_that_are_scripts_are_text(measured: Findings, tmp_path: Path) -> None:
    assert EVIL in str(measured["cause.swap"].table.rows) and "<script>" in measured.command, "the attack is there"
    assert "<script>" in str(measured.facts["model"])
    assert _harmless(page(measured))
    assert _harmless(page(side_by_side(measured, replace(measured, facts={**measured.facts, "model": EVIL}))))
    for path in write(measured, tmp_path):
        if path.suffix == ".html":
            assert _harmless(path.read_text("utf8"))


def test_a_findings_file_of_an_enemy_is_text() -> None:
    """Every string of a file: in tables, figures, references, what it rests on."""
    marks = tuple(
        Mark(kind, EVIL, x=(EVIL, "b"), y=(1.0, 2.0), low=(0.5, 1.0), high=(2.0, 3.0), names=(EVIL, EVIL))  # type: ignore[arg-type]
        for kind in ("bars", "stack", "points")
    )
    grid = Mark("heatmap", EVIL, x=(EVIL, "b"), y=(EVIL, "d"), z=((1.0, 2.0), (3.0, 4.0)), names=(EVIL,) * 4)
    lines = (Mark("line", EVIL, x=(1, 2), y=(1, 2), names=(EVIL, EVIL)), Mark("hline", EVIL, y=(1.0,), names=(EVIL,)))
    panels = tuple(Panel(group, EVIL, EVIL, EVIL) for group in (marks, (grid,), lines))
    finding = Finding(
        name=EVIL, question=EVIL, verdict=EVIL, value=1.0, unit=EVIL, references=(Reference(EVIL, 0.5),),
        table=Table.of((EVIL, "n"), [(EVIL, 1.0)]), figure=Figure(panels, EVIL), method=EVIL, source=EVIL,
        command=EVIL, details={"group": EVIL, EVIL: [EVIL]}, basis={EVIL: EVIL},
    )  # fmt: skip
    whole = Findings(EVIL, (finding, replace(finding, name="skipped", light="skip")), {EVIL: EVIL}, EVIL, EVIL)
    read = Findings.from_json(whole.to_json())
    assert read.to_json() == whole.to_json()
    assert json.dumps(EVIL) in whole.to_json()
    assert _harmless(page(read)) and "alert(1)" in page(read)
