"""The pages of the studies are what their generator writes from the TOML files and the committed results."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
GENERATE = DOCS / "studies" / "generate.py"


def test_no_page_has_drifted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GENERATE.parent))
    generate = runpy.run_path(str(GENERATE))
    for path, text in generate["write_pages"]().items():
        assert path.read_text("utf8") == text, f"{path.name}: run python docs/studies/generate.py"


def test_the_generator_writes_nothing_that_was_not_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(GENERATE.parent))
    parse = runpy.run_path(str(GENERATE))["parse"]
    for words, said in (
        (["--chek"], "unrecognized arguments: --chek"),
        (["--check", "--exact"], "not allowed with argument"),
        (["--take", "scale"], "expected 2 arguments"),
        (["scale"], "unrecognized arguments: scale"),
    ):
        with pytest.raises(SystemExit, match="2"):
            parse(words)
        assert said in capsys.readouterr().err
