"""The pages of defects: their scripts run as they stand, print what the page says, and the lines named are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import transformers
from packaging.version import Version

from clockhands.checking.models.make_subjects import from_build
from clockhands.checking.models.tiny import find
from clockhands.checking.verdict.known_faults import mask_calls, read_entries

PAGES = sorted((Path(__file__).parents[2] / "docs/conformance/defects").glob("*.md"))
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
ENGINES = {"llama-cpp-yarn-shift": "llama_cpp"}
"""Pages about another program than transformers, and the module without which their scripts do not run."""
PLACE = re.compile(r"`((?:generation/)?\w+\.py:\d+)`")


def test_there_are_pages() -> None:
    assert len(PAGES) >= 39


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_script_of_the_page_prints_what_the_page_says(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if page.stem in ENGINES:
        pytest.importorskip(ENGINES[page.stem], reason="pip install '.[engines]'")
        pytest.importorskip("gguf", reason="pip install '.[engines]'")
    text = page.read_text("utf8")
    seen = re.search(r"Seen with transformers ([\d.]+) .*; before, ", text)
    if seen and Version(transformers.__version__) < Version(seen[1]):
        pytest.skip(f"the defect is new in transformers {seen[1]}")
    (script,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (said,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    exec(compile(script, page.name, "exec"), {"__name__": "__page__"})
    printed = capsys.readouterr().out
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", said)
    if "Seen with transformers" in text and f"Seen with transformers {transformers.__version__} " not in text:
        return  # another version draws other weights; that the fault is there, the script has asserted
    for found, wanted in zip(NUMBER.findall(printed), NUMBER.findall(said), strict=True):
        assert float(found) == pytest.approx(float(wanted), rel=0.2, abs=1e-4)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_names_a_traced_line_and_says_whether_there_is_a_thread(page: Path) -> None:
    text = page.read_text("utf8")
    assert re.search(r"\*\*Cause\.\*\* .+\*\*Safe instead\.\*\* .+\*\*Thread\.\*\* .+#\d+|None found", text, re.DOTALL)
    (cause,) = re.findall(r"\*\*Cause\.\*\* (.*?)\*\*Safe", text, re.DOTALL)
    if page.stem in ENGINES:
        assert re.search(r"`\w+` \(`[\w-]+\.cpp`\)", cause)
        return
    places = PLACE.findall(cause)
    assert places
    if f"Seen with transformers {transformers.__version__} " in text:
        assert set(places) <= traced(page.stem)


def traced(stem: str) -> set[str]:
    """The lines that the checker itself names: those of its table, and where masks and tables are made."""
    found = {place for entry in read_entries() for each in entry.types for place in entry.find_lines(each)}
    if stem == "gpt-oss-packing":
        types = ("gpt_oss", "afmoe", "falcon", "opt", "xglm", "bert")
        found |= {call.line for each in types for call in mask_calls(from_build(find(f"{each}:causal")[0])[0])}
    if stem == "cast-rounds-tables":
        from transformers.models.llama import modeling_llama

        lines = Path(str(modeling_llama.__file__)).read_text("utf8").splitlines()
        found |= {f"modeling_llama.py:{n}" for n, line in enumerate(lines, 1) if "self.inv_freq = nn.Buffer" in line}
    return found
