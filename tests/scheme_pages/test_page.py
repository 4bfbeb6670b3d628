"""The catalogue, its documentation and its oracles name the same schemes."""

from __future__ import annotations

import dataclasses
import importlib
import re
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch

from clockhands.attention import attend
from clockhands.errors import PositionError
from clockhands.options import options_of
from clockhands.scheme_pages.page import (
    EXCEPTIONS,
    PAGE_SIZES,
    _list_excuses,
    _list_limits,
    find_excuse,
    make_page,
    make_pages,
)
from clockhands.scheme_pages.variants import complete_options
from clockhands.schemes import CATALOGUE, Declares, Scheme, build
from clockhands.shapes import Tensor
from tests.answers import kept, scheme_results
from tests.answers.test_scheme_results import BASE, SINKS, plant
from tests.schemes.oracles import ORACLES, VARIANTS
from tests.shared import load_script

DOCS = Path(__file__).resolve().parents[2] / "docs" / "schemes"
STUDIES = DOCS.parents[1] / "src" / "clockhands" / "studies"


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    """The script that writes the pages."""
    return load_script(DOCS.parent / "make_schemes.py")


@pytest.fixture(scope="module")
def advice(writer: ModuleType) -> ModuleType:
    """The module that writes when to take a scheme; the script makes it importable."""
    return importlib.import_module(writer.write_advice.__module__)


def read_page(name: str) -> str:
    """Return the page of a scheme as it was written."""
    assert (DOCS / f"{name}.md").exists(), f"no page: run python docs/make_schemes.py --time {name}"
    return (DOCS / f"{name}.md").read_text("utf8")


def read_part(name: str, heading: str) -> str:
    """Return a part of a scheme's page."""
    return read_page(name).split(f"## {heading}\n")[1].split("\n## ")[0]


def test_there_is_a_page_for_every_scheme_and_no_other() -> None:
    pages = {path.stem for path in DOCS.glob("*.md")} - {"README"}
    assert pages == set(CATALOGUE), "run python docs/make_schemes.py"


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_page_is_what_the_scheme_says_today(name: str, writer: ModuleType) -> None:
    is_new = read_page(name) == writer.markdown(make_page(name))
    assert is_new, "the page is not what the scheme says: run python docs/make_schemes.py"


def test_the_overview_is_filtered_by_what_people_choose_by(writer: ModuleType) -> None:
    rows = [writer.row(one) for one in make_pages()]
    shown = (DOCS / "index.html").read_text("utf8")
    assert shown == writer.filters(rows), "run python docs/make_schemes.py"
    assert (DOCS / "README.md").read_text("utf8") == writer.overview(rows), "run python docs/make_schemes.py"
    for name in ("enters", "invariant", "extrapolates", "learned", "used by"):
        assert f'<label>{name} <select data-column="{writer.COLUMNS.index(name)}">' in shown
    by = {row[0]: dict(zip(writer.COLUMNS, row, strict=True)) for row in rows}
    assert by["learned"]["extrapolates"] == by["swin"]["extrapolates"] == "no" and by["rope"]["extrapolates"] == "yes"
    assert "BLOOM" in by["alibi"]["used by"] and "<option>BLOOM</option>" in shown


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_page_has_the_equation_every_option_and_variant_and_an_example(name: str) -> None:
    """The example is the docstring's, which tests/schemes/test_examples.py runs."""
    told, listed = read_page(name), make_page(name)
    assert CATALOGUE[name].equation in told and all(f"| `{option.name}` |" in told for option in listed.options)
    assert listed.example.startswith(">>> ") and listed.example in told
    assert f"{CATALOGUE[name].__name__}(" in listed.example
    assert all(f"| {variant.name} |" in told for variant in listed.variants)


def test_advice_is_what_a_study_measured(advice: ModuleType) -> None:
    """The verdict of a variant as the page of answers has it, of the size with most computation."""
    answers = (DOCS.parent / "answers" / "evidence" / "rope-global.md").read_text("utf8")
    start = "| *stdlib*, width 128: windows in all, and sinks"
    row = next(line for line in answers.splitlines() if line.startswith(start))
    verdict = re.sub(r", [\d.]+ could have been detected", "", row.strip("| ").split(" | ")[2])
    told = read_part("sinks", "When to take it") + read_part("sinks", "When not to take it")
    shown = next(line for line in told.splitlines() if "[which-layers, size twice]" in line)
    assert f"against *rope*: {verdict}" in shown and "; at 8 times the trained length its loss" in shown
    assert "[which-layers](../studies/which-layers.md)" in told


@pytest.mark.parametrize("name", CATALOGUE)
def test_only_what_no_study_uses_is_called_unmeasured(name: str, advice: ModuleType) -> None:
    """The files of studies and results are read as text: a setting of positions has the scheme's name in quotes."""
    texts = [path.read_text("utf8") for path in STUDIES.glob("*.toml")]
    texts += [kept.read_text(result).split('"trials"')[0] for result in kept.list_kept()]
    settings = re.compile(r"\"position[.\w]*\"? ?[=:].*|\"scheme\": \".*|^  \"[\w-].*", re.M)
    quoted = f'"{name}"'
    used = any(quoted in line for text in texts for line in settings.findall(text))
    assert (advice.UNMEASURED in read_part(name, "When to take it")) is not used


def test_lines_are_few_and_the_rest_is_told(advice: ModuleType) -> None:
    for name in CATALOGUE:
        told = read_part(name, "When to take it") + read_part(name, "When not to take it")
        lines = [line for line in told.splitlines() if "](../studies/" in line]
        assert len(lines) <= advice.MOST_TOLD, name
        told_of = scheme_results.list_largest(advice.collect_measured().get(name, []))
        total = len(told_of) + len(advice.collect_checked().get(name, []))
        cut = f"Here and below {len(lines)} of {total} results are told, " if len(lines) < total else ""
        assert ("Here and below" in told) is bool(cut) and cut in told, name


def test_a_page_changes_where_results_do(advice: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    page = make_page("sinks")
    for loss, heading in ((1.5, "When to take it"), (2.5, "When not to take it")):
        measured = {"which-layers": plant({BASE: 2.0, SINKS: loss})}
        monkeypatch.setattr(advice, "collect_measured", partial(scheme_results.collect_results, measured))
        monkeypatch.setattr(advice, "collect_checked", dict)
        text = "\n".join(advice.write_advice(page))
        assert f"*{SINKS}*" in text.split(f"## {heading}\n")[1].split("## ")[0]
        assert text.count(f"*{SINKS}*") == 1
        assert (advice.ONLY_WORSE in text) is (heading == "When not to take it")


def test_what_is_only_planned_is_not_called_unmeasured(advice: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("collect_measured", "collect_checked"):
        monkeypatch.setattr(advice, name, dict)
    told = "\n".join(advice.write_advice(make_page("sinks")))
    assert "among the variants of *which-layers* and *which-layers-recall*, and no" in told
    monkeypatch.setattr(advice, "find_users", dict)
    assert advice.UNMEASURED in advice.write_advice(make_page("sinks"))


def test_what_extending_measured_is_told_of_a_scheme_without_a_study(advice: ModuleType) -> None:
    row = {
        "ordering": "untrained, ReRoPE beats NTK", "source": "Su 2023", "verdict": "comes out", "models": 3,
        "comes out in": ["a", "b"], "contradicted in": [], "nats": 0.5, "low": -0.25, "high": 1.25,
    }  # fmt: skip
    pairs = [{"chosen": chosen, "best of all": "leaky-rerope"} for chosen in ("rerope", "yarn", "leaky-rerope")]
    ordering, chosen = advice.write_extension(make_page("rerope"), {"orderings": [row], "pairs": pairs})
    assert "comes out. It is shown in 2 of 3 small models and its reverse in 0;" in ordering
    assert "the mean difference is 0.50 nats [−0.25, 1.25]" in ordering
    assert "Of 3 pairs of a small model" in chosen and "in 2; in 3 it was" in chosen
    assert advice.write_extension(make_page("liere"), {"orderings": [row], "pairs": pairs}) == []


PARTS = {
    "what is drawn": r"^Drawn: {name}(,| with ).* with 8 heads of 32: .+\.$",
    "a formula": r"^\$\$ .+ \$\$$",
    "a drawing": r"^!\[{name}: what it does by distance and by position\]\({name}\.svg\)$",
    "who uses it": r"^- \*\*Used by\*\* \w.*$",
    "an example": r"^## Example\n\n```python\n>>> ",
    "when to take it": r"^## When to take it\n\n(- .+\]\(\.\./studies/|It was not measured here|What was measured)",
    "when not": r"^## When not to take it\n\n(- |Nothing that it declares)",
    "its parity": r"^- \*\*Compared with\*\* its oracle in float64 \(`(tests/schemes/oracles/\w+\.py)`\)$",
    "its exceptions": r"^## What the laws say\n\nIt keeps every law of `tests/schemes/test_laws.py`(\.$|, except:\n)",
    "its costs": r"^- \*\*Costs\*\* \d+\.\d\d times the time of no position",
}
"""What every page has, and how it is found there."""
WITHOUT_COST = {"swin": "its window holds fewer tokens than the cost is measured with"}


@pytest.mark.parametrize("part", PARTS)
def test_every_page_has_every_part(part: str) -> None:
    pages = {name: read_page(name) for name in CATALOGUE}
    without = {name for name, text in pages.items() if not re.search(PARTS[part].replace("{name}", name), text, re.M)}
    expected = set(WITHOUT_COST) if part == "its costs" else set()
    assert without == expected, "run python docs/make_schemes.py --time NAME"


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_oracle_that_a_page_names_holds_the_schemes(name: str, writer: ModuleType) -> None:
    text = (DOCS.parents[1] / writer.find_oracle(name)).read_text("utf8")
    assert re.search(rf'^@oracle\(\s*"{name}"', text, re.M) and name in ORACLES


def test_what_was_worse_stands_under_when_not(advice: ModuleType) -> None:
    for name in CATALOGUE:
        take, leave = read_part(name, "When to take it"), read_part(name, "When not to take it")
        assert ": worse by" not in take, name
        measured = [line for line in leave.splitlines() if "](../studies/" in line]
        assert all(re.search(": worse[ :]|: (reproduced|contradicted) ", line) for line in measured), name
    assert advice.ONLY_WORSE in read_part("repo", "When to take it")


TOKENS = 5


def compute(scheme: Scheme, pos: Tensor) -> Tensor:
    """What attention makes of equal queries, keys and values at positions [1, S] or [1, S, A], with the encoding."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 8, TOKENS, 64, generator=generator) for _ in range(3))
    x = torch.randn(1, TOKENS, 512, generator=generator)
    with torch.no_grad():
        encoding, own = scheme.encode(pos), scheme.locate(x, pos, None)
        here = pos if own is None else own
        out = attend(scheme, q, k, v, here, here, causal=True)
        return out if encoding is None else out + encoding.mean(-1)[:, None, :, None]


def takes(scheme: Scheme, pos: Tensor) -> bool:
    try:
        compute(scheme, pos)
    except PositionError:
        return False
    return True


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_page_says_where_its_scheme_does_not_serve(name: str) -> None:
    said = " / ".join(make_page(name).limits)
    torch.manual_seed(0)
    scheme = build(CATALOGUE, name, PAGE_SIZES, complete_options(name)).eval()
    axes = scheme.declares.axes or 1
    line = torch.arange(TOKENS)[None]
    pos = line if axes == 1 else line[..., None].expand(1, TOKENS, axes)
    assert takes(scheme, pos)
    assert takes(scheme, pos + 0.5) is ("for positions between whole numbers" not in said)
    others = line[..., None].expand(1, TOKENS, 2) if axes == 1 else line
    assert takes(scheme, others) is ("for positions of several coordinates" not in said and axes == 1)
    assert ("it reads" in said) is (axes != 1)
    length = scheme.declares.max_length
    assert takes(scheme, pos + (length or 100_000) - TOKENS)
    assert takes(scheme, pos + (length or 100_000)) is ("later positions are refused" not in said)
    if length is None:
        assert takes(scheme, pos * 1000) is ("beyond its window" not in said)
    encoder = build(CATALOGUE, name, dataclasses.replace(PAGE_SIZES, causal=False), complete_options(name))
    assert encoder.declares.causal_only is ("in an encoder" in said)


def test_every_phrase_is_said_where_it_holds_and_only_there() -> None:
    plain = Declares(translation_invariant=True, real_valued=True, axes=None)
    assert _list_limits(plain, plain, 1.99) == _list_limits(plain, plain, None) == []
    changes = {
        "a shift of all positions": {"translation_invariant": False},
        "tokens that are further apart are refused": {"beyond": "raise"},
        "of more than 64 tokens: later positions are refused": {"beyond": "raise", "max_length": 64},
        "of more than 64 tokens: later positions are read as the last one": {"beyond": "clamp", "max_length": 64},
        "to generate texts with a KV cache": {"depends_on_length": True},
        "texts longer than 2,048 tokens with a KV cache": {"depends_on_length": True, "steady_length": 2048},
        "between whole numbers": {"real_valued": False},
        "several coordinates": {"axes": 1},
        "it reads 3 coordinates": {"axes": 3},
        "it draws random numbers": {"stochastic": True},
    }  # fmt: skip
    for phrase, change in changes.items():
        (limit,) = _list_limits(dataclasses.replace(plain, **change), plain, None)  # type: ignore[arg-type]
        assert phrase in limit
    (limit,) = _list_limits(plain, dataclasses.replace(plain, causal_only=True), None)
    assert limit.startswith("in an encoder")
    (limit,) = _list_limits(plain, plain, 2.5)
    assert limit == "where the time of attention counts: it takes 2.50 times that of no position"


def defaults(name: str) -> dict[str, object]:
    return {key: option.default for key, option in options_of(CATALOGUE[name]).items()}


def test_every_exception_names_a_scheme_its_options_and_a_reason() -> None:
    for broken in (each for exceptions in EXCEPTIONS.values() for each in exceptions):
        assert broken.reason
        assert set(broken.when) <= set(defaults(broken.scheme))


def test_an_exception_is_as_wide_as_the_options_that_it_names() -> None:
    for law, exceptions in EXCEPTIONS.items():
        for broken in exceptions:
            whole = defaults(broken.scheme)
            assert find_excuse(law, broken.scheme, {**whole, **broken.when}) == broken.reason
            tried = [{**whole, **options} for options in VARIANTS[broken.scheme]]
            covered = [bool(find_excuse(law, broken.scheme, options)) for options in tried]
            assert any(covered), f"no variant of {broken.scheme} shows that it breaks {law!r}"
            assert not broken.when or not all(covered), f"no variant of {broken.scheme} shows that it can keep {law!r}"


def test_the_page_tells_the_option_that_breaks_a_law() -> None:
    assert _list_excuses("index") == {"packing": "with normalise=length it reads the longest document of the row"}
    assert _list_excuses("rope")["packing"].startswith("with spectrum=dynamic its frequencies")
    assert _list_excuses("none") == {}
