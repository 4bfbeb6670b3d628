"""The tutorials run, blocks in their order, and print what stands on the page; the site has no broken link."""

from __future__ import annotations

import doctest
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

import pytest

from clockhands.cli import main
from clockhands.schemes import CATALOGUE
from tests.shared import sketched
from tests.studies.tour.short import make_tour

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path for path in (ROOT / "docs" / "tutorials").glob("*.md") if path.stem != "index")
CHECKER, FLAGS = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(path: Path) -> Iterator[tuple[str, str]]:
    """The blocks of a page: their language and what stands in them."""
    yield from re.findall(r"^```(\w+)\n(.*?)^```$", path.read_text("utf8"), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder to work in, and a catalogue as it was before."""
    monkeypatch.chdir(tmp_path)
    names = set(CATALOGUE)
    with sketched():
        yield
    for name in set(CATALOGUE) - names:
        del CATALOGUE[name]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_blocks_run_and_print_what_stands_there(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    tour = make_tour(tmp_path_factory) if path.stem == "tour" else path
    names: dict[str, object] = {"__name__": "tutorial"}
    printed = ""
    for language, block in blocks(path):
        if language == "text":
            assert CHECKER.check_output(block, printed, FLAGS), (
                f"the page says\n{block}\nbut what is printed is\n{printed}"
            )
            continue
        output = io.StringIO()
        with redirect_stdout(output):
            run_block(language, block, names, path, tour)
        printed = output.getvalue()


def run_block(language: str, block: str, names: dict[str, object], path: Path, tour: Path) -> None:
    """Run one block: Python in the names of the page, or commands after ``$``.

    The tour was typed once for all tests, and is copied; a page of ``inspect`` is made of few texts.
    """
    if language == "python":
        exec(compile(block, f"{path.name}", "exec"), names)
        return
    assert language == "console", f"{path.name} has a block of {language}, which is not run"
    for line in block.splitlines():
        words = shlex.split(line.removeprefix("$ "))
        assert words[0] == "clockhands"
        if line == "$ clockhands tour --out runs/tour":
            shutil.copytree(tour, "runs/tour")
            continue
        few = ["--texts", "24", "--length", "32"] if words[1] == "inspect" and "--texts" not in words else []
        assert main([*words[1:], *few]) == 0, line


def site() -> ModuleType:
    """The script that writes the site."""
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_site"] = module
    spec.loader.exec_module(module)
    return module


def test_the_site_is_written_without_a_broken_link(tmp_path: Path) -> None:
    site().write_site(tmp_path / "site")
    nav = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text("utf8"))
    assert len(nav) > 30
    assert [page for page in nav if not (tmp_path / "site" / page).is_file()] == []
    for page in (tmp_path / "site").rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf8"), flags=re.MULTILINE | re.DOTALL)
        for address in re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", text):
            assert (page.parent / address).exists(), f"{page.name} links to {address}"
        assert "$$" not in text, f"{page.name} shows a formula as it is typed"
    catalogue = tmp_path / "site" / "schemes" / "browse.html"
    links = re.findall(r'href="([^"#:]+)"', catalogue.read_text("utf8"))
    assert len(links) >= len(CATALOGUE) and "scheme-index.html" in links, "a scheme is called index, as is every start"
    assert [link for link in links if not (catalogue.parent / link).with_suffix(".md").is_file()] == []


def test_the_site_asks_no_other_host_for_its_search(tmp_path: Path) -> None:
    """Material for MkDocs takes a script that search in files needs from elsewhere, unless there is one of ours."""
    (script,) = re.findall(r"polyfills: \[(.*iframe-worker.*)\]", (ROOT / "mkdocs.yml").read_text("utf8"))
    assert dict(site().list_places())[ROOT / "docs" / script] == script
    assert "window.IFrameWorker" in (ROOT / "docs" / script).read_text("utf8")


def test_a_formula_is_drawn_and_code_is_left_as_it_is() -> None:
    drawn = site().draw_formulas("$$ \\ell \\mathrel{+}= \\frac{a}{2} $$\n\n```text\n$$ a $$\n```\n")
    assert "<mfrac><mrow><mi>a</mi></mrow><mrow><mn>2</mn></mrow></mfrac>" in drawn
    assert "<mtext>+=</mtext>" in drawn, "one sign, not a plus and an equals sign apart"
    assert drawn.endswith("```text\n$$ a $$\n```\n")
    assert drawn.count("$$") == 2


def test_a_formula_that_cannot_be_drawn_is_named() -> None:
    with pytest.raises(ValueError, match=r"\\nosuch x has a command that cannot be drawn"):
        site().draw_formulas("$$ \\nosuch x $$")
    with pytest.raises(ValueError, match=r"the formula a_\{ cannot be drawn"):
        site().draw_formulas("$$ a_{ $$")


def test_a_link_to_nothing_is_named() -> None:
    made = site()
    with pytest.raises(made.BrokenLinkError, match=r"docs/traps\.md links to none\.md"):
        made.relink("[text](none.md)", ROOT / "docs" / "traps.md", "traps.md", {})


def test_the_reference_has_every_command_key_and_name() -> None:
    from clockhands.checking.checks.check import CHECKS
    from clockhands.cli import VERBS

    made = site()
    commands, recipe, checks = made.commands(), made.recipe_keys(), made.REFERENCE["checks"]()
    assert all(f"## clockhands {verb}\n" in commands for verb in VERBS)
    assert (
        "| `training.max_steps` |" in recipe and "| `position.scheme` |" in recipe and "| `model.d_model` |" in recipe
    )
    assert all(f"| `{name}` |" in checks for name in CHECKS)


def test_a_tutorial_becomes_a_notebook(tmp_path: Path) -> None:
    notebook = site().notebook(ROOT / "docs" / "tutorials" / "look-inside.md")
    cells = json.loads(json.dumps(notebook))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert "!clockhands explain llama" in code
    assert sum("import" in cell for cell in code) >= 2
    assert os.sep not in cells[0]["source"][0]


def test_every_entry_of_the_log_is_in_its_contents() -> None:
    text = (ROOT / "LOG.md").read_text("utf8")
    contents, _, entries = text.partition("\n## 20")
    headings = re.findall(r"^### (.*)$", entries, flags=re.MULTILINE)
    anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert [anchor for anchor in anchors if f"(#{anchor})" not in contents] == []
