"""The folder, the notebook and the terminal."""

from __future__ import annotations

import csv
import importlib
import io
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from clockhands.errors import BusyError, DataError, UsageError
from clockhands.files import lock_folder
from clockhands.findings import Figure, Finding, Findings, Mark, Panel
from clockhands.report import make_page, show, write
from clockhands.report.page import PAPER_WIDTHS
from clockhands.report.text import make_slug
from tests.report.demo import EVIL, ONE, RUN, TWO, demo
from tests.report.html_tree import Tree


def test_writes_page_json_figures_and_tables(tmp_path: Path) -> None:
    paths = write(RUN, tmp_path / "deep" / "report")
    names = [str(path.relative_to(tmp_path / "deep" / "report")) for path in paths]
    figures = ["figures/a-one.svg", "figures/a-one-84mm.svg", "figures/a-one-174mm.svg"]
    assert names == ["index.html", "findings.json", *figures, "tables/a-one.csv", "preview.png"]
    page = paths[0].read_text(encoding="utf8")
    alone = make_page(RUN).splitlines()
    assert [line for line in page.splitlines() if line not in alone] == [
        '<meta property="og:title" content="A run">',
        '<meta property="og:image" content="preview.png">',
        next(line for line in page.splitlines() if line.startswith('<p class="tools">')),
    ]
    assert Findings.load(paths[1]) == RUN
    assert ET.parse(paths[2]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert list(csv.reader(io.StringIO(paths[5].read_text()))) == [["k", "v"], ["x", "0.25"]]
    links = [link["href"] for link in Tree(page).every("a") if "download" in link]
    assert len([link for link in links if link.startswith("data:")]) == 1
    assert all((paths[0].parent / link).is_file() for link in links if not link.startswith("data:"))
    assert paths[6].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("width", PAPER_WIDTHS)
def test_a_figure_for_print_is_as_wide_as_a_column_and_its_letters_are_legible(tmp_path: Path, width: int) -> None:
    """Letters of a tick are at least 6 points high on paper; the picture is vector, and says what it shows."""
    chosen = [demo()[name] for name in ("loudness.share", "cause.output")]
    write(Findings("Some", tuple(chosen)), tmp_path)
    for path in sorted((tmp_path / "figures").glob(f"*-{width}mm.svg")):
        root = ET.parse(path).getroot()
        assert root.get("width") == f"{width}mm", path
        across, down = map(float, root.get("viewBox", "").split()[2:])
        assert float(root.get("height", "").removesuffix("mm")) == pytest.approx(width * down / across, abs=0.06)
        size = 9.5 * width / 25.4 * 72 / across
        assert size >= 6.5, path
        finding = next(item for item in chosen if make_slug(item.name) == path.name.removesuffix(f"-{width}mm.svg"))
        (title, told) = (root.findtext(f"{{http://www.w3.org/2000/svg}}{tag}") for tag in ("title", "desc"))
        assert title == finding.question and told is not None and told.startswith(finding.verdict)


def test_two_processes_do_not_mix_their_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("clockhands.report.write"), "PATIENCE", 0.05)
    found: list[str] = []

    def another() -> None:
        try:
            write(RUN, tmp_path)
        except BusyError as fault:
            found.append(str(fault))

    with lock_folder(tmp_path):
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
    assert len(found) == 1 and "is in use: process" in found[0]
    assert list(tmp_path.iterdir()) == []


def test_second_run_replaces_the_first_and_leaves_other_files(tmp_path: Path) -> None:
    write(RUN, tmp_path)
    (tmp_path / "figures" / "mine.svg").write_text("mine")
    write(Findings("Later", (replace(ONE, name="b"), TWO)), tmp_path)
    names = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert names == ["b-174mm.svg", "b-84mm.svg", "b.svg", "mine.svg"]
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["b.csv"]
    assert "Later" in (tmp_path / "index.html").read_text(encoding="utf8")


@pytest.mark.parametrize("name", ["index.html", "findings.json"])
def test_what_is_not_ours_is_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("<html>my thesis</html>")
    with pytest.raises(UsageError) as caught:
        write(RUN, tmp_path)
    assert str(tmp_path / name) in str(caught.value) and "choose another folder" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "<html>my thesis</html>"


def test_a_figure_that_cannot_be_drawn_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    write(RUN, tmp_path)
    before = (tmp_path / "index.html").read_bytes()
    bad = replace(ONE, figure=Figure((Panel((Mark("line", "a", (1,), (1.0, 2.0)),)),)))
    with pytest.raises(DataError, match="equally many"):
        write(Findings("Bad", (bad,)), tmp_path)
    assert (tmp_path / "index.html").read_bytes() == before


def test_importing_the_report_is_light() -> None:
    heavy = "torch", "numpy", "matplotlib", "transformers", "rich"
    code = f"import sys, clockhands.report; print([m for m in {heavy!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_terminal_prints_symbols_and_reads_no_markup() -> None:
    out = io.StringIO()
    show(RUN, Console(file=out, width=100))
    text = out.getvalue()
    assert "\x1b" not in text
    assert " ✓ One?" in text and " ✕ Two?" in text and " – Three? There is none." in text
    assert "[bold]Two[/bold] " + EVIL in text
    assert text.index("Three?") > text.index("Two?")
    assert "✓ 1 good   ✕ 1 bad   – 1 not applicable" in text
    show(Findings("t", (Finding("two lines", "Q?", "One.\nTwo.", light="skip"),)), Console(file=out, width=100))
    assert " – Q? One. Two." in out.getvalue()


def test_terminal_colours_where_there_is_a_terminal() -> None:
    out = io.StringIO()
    show(RUN, Console(file=out, width=100, force_terminal=True, color_system="standard"))
    assert "\x1b[1;32m" in out.getvalue()
