"""The interface of engines: the worked example of CONTRIBUTING is one, and writes what our own engine writes."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from clockhands.catalogue import UnknownNameError
from clockhands.generation import ENGINES, DecodingOptions, Engine, Search
from clockhands.generation.engines.clockhands import ClockhandsEngine
from tests.generation.engines.test_clockhands import LONGEST, sources, writer

CONTRIBUTING = Path(__file__).resolve().parents[3] / "CONTRIBUTING.md"


@pytest.fixture
def example() -> type[Engine]:
    """The class of the worked example."""
    section = CONTRIBUTING.read_text("utf8").split("## Adding an engine")[1].split("\n## ")[0]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert code is not None
    names: dict[str, type[Engine]] = {}
    exec(textwrap.dedent("   " + code[1].lstrip()), names)
    return names["GenerateEngine"]


@pytest.mark.parametrize("beam", [1, 3])
def test_the_example_of_contributing_is_an_engine(example: type[Engine], beam: int) -> None:
    model, (ids_BT, mask_BT) = writer(), sources()
    decoding = DecodingOptions(LONGEST, beam)
    theirs, ours = (engine(model).generate(ids_BT, mask_BT, decoding) for engine in (example, ClockhandsEngine))
    assert [text.tokens for text in theirs] == [text.tokens for text in ours]
    scores = [text.log_probability for text in ours]
    assert [text.log_probability for text in theirs] == pytest.approx(scores, abs=2e-4)


def test_an_engine_in_the_catalogue_is_found_by_name(example: type[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="unknown engine 'generate'"):
        Search(engine="generate")
    monkeypatch.setitem(ENGINES._entries, "generate", example)
    assert Search(engine="generate").engine == "generate"
    assert ENGINES.describe("generate").startswith("Every model, by ``generate`` of transformers")
