"""Text of somebody else, in tokens, names, paths and findings files, is text on the page and nothing more."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from clockhands.cli import main
from clockhands.comparison import conclude
from clockhands.comparison.results import ComparisonFolder, read_comparison
from clockhands.data import train_tokenizer
from clockhands.findings import Figure, Finding, Findings, Mark, Panel, Reference, Table
from clockhands.inspection import inspect
from clockhands.report import make_page, put_side_by_side, write
from clockhands.training import train
from tests.comparison.planted import results
from tests.report.html_tree import Tree
from tests.shared import sketched
from tests.training.tiny import tables

EVIL = "<script>alert(1)</script>"
TEXT = [f"the old king number {i} {EVIL} saw the dog" for i in range(60)]


def _harmless(text: str) -> bool:
    """Whether a page runs nothing but the program's own scripts, which its policy names by their hashes.

    What a script of data (``application/json``) holds is read, and never run.
    """
    tree = Tree(text)
    metas = tree.every("meta")
    policy = next((meta["content"] for meta in metas if meta.get("http-equiv") == "Content-Security-Policy"), "")
    for attributes, content in zip(tree.every("script"), tree.words.get("script", []), strict=True):
        if attributes.get("type") == "application/json":
            json.loads(content)
            continue
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        if "src" in attributes or "alert(1)" in content or f"'sha256-{digest}'" not in policy:
            return False
    named = (pair for _, attributes in tree.tags for pair in attributes.items())
    return not any(name.startswith("on") or "javascript:" in value.lower() for name, value in named)


def test_a_script_that_the_policy_does_not_name_is_seen() -> None:
    page = make_page(Findings("Title", (Finding("a", "Why?", "So."),)))
    assert _harmless(page)
    assert not _harmless(page.replace("</body>", f"{EVIL}</body>"))
    assert not _harmless(page.replace("</body>", "<script>harmless()</script></body>"))
    assert not _harmless(page.replace("</body>", '<b onclick="x()">b</b></body>'))


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
    return inspect(folder, texts=TEXT, count=24, length=32, control=False, command=f"clockhands inspect '{folder}'")


def test_tokens_and_paths_that_are_scripts_are_text(measured: Findings, tmp_path: Path) -> None:
    assert EVIL in str(measured["cause.swap"].table.rows) and "<script>" in measured.command, "the attack is there"
    assert "<script>" in str(measured.facts["model"])
    both = put_side_by_side(measured, replace(measured, facts={**measured.facts, "model": EVIL}))
    assert "alert(1)" not in str([item.figure for item in (*measured, *both)]), "draw the figures that hold the attack"
    with sketched():
        assert _harmless(make_page(both))
        (page, *_) = write(measured, tmp_path)
    assert _harmless(page.read_text("utf8"))


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
    page = make_page(read)
    assert _harmless(page) and "alert(1)" in page


def _poison(value: Any) -> Any:
    """The same with every text replaced, and one more key in every object."""
    if isinstance(value, dict):
        return {**{key: _poison(item) for key, item in value.items()}, EVIL: EVIL}
    if isinstance(value, list):
        return [_poison(item) for item in value]
    return EVIL if isinstance(value, str) else value


def test_every_other_file_of_a_run_of_an_enemy_is_text(tmp_path: Path) -> None:
    """What the record, the metrics, the checkpoints and the recipe say reaches a page as text, or not at all."""
    text = tmp_path / "<script>alert(1)<" / "script>"
    text.parent.mkdir()
    text.write_text("".join(f"{EVIL} the king {i} of {EVIL}\n" for i in range(60)))
    recipe = tables(max_steps=4, save_steps=4, log_steps=1, eval_steps=None)
    recipe["data"] = {"corpus": "parallel", "source": str(text), "target": str(text)}
    run = train(recipe, tmp_path / "run").path
    files = [run / "run.json", *run.glob("checkpoints/*/trainer_state.json"), run / "generation_config.json"]
    assert len(files) == 3
    for file in files:
        file.write_text(json.dumps(_poison(json.loads(file.read_text()))))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("".join(json.dumps({**json.loads(line), EVIL: 1.0}) + "\n" for line in lines))
    (run / "curves.svg").write_text(f"<svg>{EVIL}</svg>")
    for name in ("config.json", "tokenizer_config.json"):
        known = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps({**known, "_name_or_path": EVIL, EVIL: EVIL}))
    (run / "recipe.toml").write_text(f"# {EVIL}\n" + (run / "recipe.toml").read_text() + f'["{EVIL}"]\na = "{EVIL}"\n')
    told = ["inspect", str(run), "--texts", "8", "--length", "8", "--no-control"]
    with sketched():
        assert main([*told, "--out", str(tmp_path / "page")]) == 0
    written = [path for path in (tmp_path / "page").rglob("*") if path.suffix in (".html", ".svg")]
    assert "alert(1)" in "".join(path.read_text("utf8") for path in written), "the attack is there"
    assert all(_harmless(path.read_text("utf8")) for path in written)


def test_a_comparison_of_an_enemy_is_text(tmp_path: Path) -> None:
    """Of its two files every text is hostile that is not a name which the reader knows."""
    comparison = results(lost=("worse",))
    folder = ComparisonFolder(tmp_path / "compare")
    folder.open(comparison.plan, comparison.costs)
    for trial in comparison.trials:
        said = {"error": EVIL} if trial.error else {}
        folder.add(replace(trial, **said, version=EVIL, torch=EVIL, device=EVIL, machine=EVIL))
    for name in ("plan.json", "results.jsonl"):
        file = folder.folder / name
        file.write_text(file.read_text().replace('"better"', json.dumps(EVIL)).replace(comparison.plan.title, EVIL))
    findings = conclude(read_comparison(folder.folder))
    assert EVIL in str(findings["compare.verdict"].table.rows) and EVIL in findings.title, "the attack is there"
    assert _harmless(make_page(findings))
