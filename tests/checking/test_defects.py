"""The scripts of the defect pages show what the pages say: they run as they stand, in plain transformers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs/conformance/defects").glob("*.md"))


def test_there_are_pages() -> None:
    assert len(PAGES) >= 12


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_script_of_the_page_shows_the_defect(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", page.read_text("utf8"), re.DOTALL)
    exec(compile(script, page.name, "exec"), {"__name__": "__page__"})
    assert capsys.readouterr().out.strip()
    assert re.search(r"\*\*Cause\.\*\* .+\*\*Safe instead\.\*\* .+\*\*Thread\.\*\* ", page.read_text("utf8"), re.DOTALL)
