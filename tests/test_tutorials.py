"""The tutorials run, blocks in their order, and print what stands on the page; the site has no broken link."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from docs.make_tutorials import Block, Command, make_comparable, read_blocks, run_blocks, write_outputs

from clockhands.cli import main
from clockhands.schemes import CATALOGUE
from tests.shared import load_script, sketched
from tests.studies.tour.short import make_tour

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path for path in (ROOT / "docs" / "tutorials").glob("*.md") if path.stem != "index")


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
def test_each_block_prints_what_stands_behind_it(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What runs are the cells of its notebook, after the one that installs.

    The page of the tour runs on a short one, whose measurements are worth nothing: its questions are compared.
    """
    text = path.read_text("utf8")
    run = read_cells(site().notebook(path))
    assert run == read_blocks(text), "the notebook has the blocks of the page"
    assert len(run) + sum(bool(block.output) for block in run) == len(re.findall(r"^```\w", text, flags=re.MULTILINE))
    is_tour = path.stem == "tour"
    command = make_tour_command(make_tour(tmp_path_factory)) if is_tour else main
    for block, printed in zip(run, run_blocks(run, command), strict=True):
        if is_tour and block.language == "console":
            quoted, fixed = list_fixed_lines(block.output), list_fixed_lines(printed)
            assert block.output and [line for line in fixed if line in quoted] == quoted, block.code
        else:
            assert make_comparable(block, block.output) == make_comparable(block, printed), block.code


def read_cells(book: dict[str, Any]) -> list[Block]:
    """The cells of code of a notebook after the first, as blocks."""
    first, *cells = (cell for cell in book["cells"] if cell["cell_type"] == "code")
    assert "".join(first["source"]).endswith("%pip install --quiet '.[workbench]'")
    blocks = []
    for cell in cells:
        code, output = "".join(cell["source"]), "".join(text for part in cell["outputs"] for text in part["text"])
        language = "console" if code.startswith("!") else "python"
        blocks.append(Block(language, f"{code.replace('!', '$ ') if language == 'console' else code}\n", output))
    return blocks


def make_tour_command(tour: Path) -> Command:
    """The command line, with a tour that was typed once for all tests, and few texts for ``inspect``."""

    def run(words: Sequence[str]) -> int:
        if words == ["tour", "--out", "runs/tour"]:
            print((tour.parent.parent / "printed.txt").read_text("utf8"))
            return 0 if shutil.copytree(tour, "runs/tour") else 1
        return main([*words, "--texts", "24", "--length", "32"] if words[0] == "inspect" else words)

    return run


def list_fixed_lines(output: str) -> list[str]:
    """The lines of findings that hold for every training: their questions; of scores: their names."""
    questions = re.findall(r"^ [✓•!✕–] ([^?]+\?)", output, flags=re.MULTILINE)
    return questions or re.findall(r"^(\w+)\|", output, flags=re.MULTILINE)


def test_a_measured_number_is_left_out_and_another_is_not() -> None:
    measured, exact = (Block("console", f"$ clockhands {words}", "") for words in ("compare", "explain llama"))
    first = "worse by 49.0 points [41.5, 56.5]\nabout 7 minutes with 1 worker\n(as busy as this machine is now: 5 %)\n"
    second = "worse by 1,049 points  [−4.5, 5.2e-3]\nabout 80 seconds with 1 worker"
    assert make_comparable(measured, first) == make_comparable(measured, second)
    assert make_comparable(exact, first) != make_comparable(exact, second)
    assert make_comparable(measured, "worse by 4 points") != make_comparable(measured, "better by 4 points")


def test_outputs_are_written_behind_their_blocks_and_a_wrong_command_is_named() -> None:
    page = "a\n\n```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n\nb\n\n```python\nx = 1\n```\n"
    assert write_outputs(page, [*run_blocks(read_blocks(page), main)]) == page.replace("3", "2")
    without = page.replace("\n\n```text\n3\n```", "")
    assert write_outputs(without, ["2\n", ""]) == page.replace("3", "2")
    with pytest.raises(RuntimeError, match=r"a tutorial says '\$ ls', which fails"):
        list(run_blocks([Block("console", "$ ls\n", "")], main))


def site() -> ModuleType:
    """The script that writes the site."""
    return load_script(ROOT / "docs" / "make_site.py")


def test_the_site_is_written_without_a_broken_link(tmp_path: Path) -> None:
    site().write_site(tmp_path / "site")
    nav = re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text("utf8"))
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


def test_a_notebook_is_one_that_programs_open() -> None:
    path = ROOT / "docs" / "tutorials" / "look-inside.md"
    book = json.loads(json.dumps(site().notebook(path)))
    assert (book["nbformat"], book["metadata"]["kernelspec"]["name"]) == (4, "python3")
    assert book["cells"][0]["source"] == ["# Look inside a Llama"]
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert "!clockhands explain llama" in ["".join(cell["source"]) for cell in code]
    assert [cell["execution_count"] for cell in code] == [None, *range(1, len(code))]
    assert not any("```" in "".join(cell["source"]) for cell in book["cells"])
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]["optional-dependencies"]
    assert "workbench" in extras, "the first cell installs it"


def test_examples_in_docstrings_are_code_on_the_site_and_no_quotations() -> None:
    """In Markdown three signs > quote thrice: only what griffe reads as a section of examples is shown as code."""
    griffe = pytest.importorskip("griffe", reason="the site needs griffe: pip install '.[docs]'")
    extension = griffe.load_extensions(ROOT / "docs" / "tools" / "literal_blocks.py")
    shown = 0
    for name in ("schemes", "attention"):
        package = griffe.load(f"clockhands.{name}", search_paths=[ROOT / "src"], extensions=extension)
        module = importlib.import_module(f"clockhands.{name}")
        for public in module.__all__:
            entry = package[public].final_target if package[public].is_alias else package[public]
            entries = [entry, *(entry.members.values() if entry.is_class else ())]
            for section in (part for inner in entries if inner.docstring for part in inner.docstring.parse("google")):
                if section.kind is griffe.DocstringSectionKind.examples:
                    shown += sum(kind is griffe.DocstringSectionKind.examples for kind, _ in section.value)
                else:
                    assert ">>>" not in str(getattr(section.value, "contents", section.value)), public
                    assert not re.search(r"::$", str(section.value), flags=re.MULTILINE), public
    assert shown >= len(CATALOGUE)


def test_every_package_has_a_page_and_what_is_read_first_stands_first() -> None:
    made = site()
    index, shown = made.api(), {}
    for name in made.API:
        page = made.REFERENCE[f"api/{name}"]()
        package, *members = re.findall(r"^::: (\S+)$", page, flags=re.MULTILINE)
        assert package == f"clockhands.{name}" and f"(api/{name}.md)" in index
        names = shown[name] = [member.rpartition(".")[2] for member in members]
        first = made.FIRST.get(name, [])
        assert names and names[: len(first)] == first
    for package in (name for name in shown if "." not in name):
        names = [name for page, names in shown.items() if f"{page}.".startswith(f"{package}.") for name in names]
        public = getattr(importlib.import_module(f"clockhands.{package}"), "__all__", names)
        assert sorted(names) == sorted(public), package
    assert all(f"| `clockhands.{verb}` |" in index for verb in ("train", "check", "explain", "extend", "tour"))
