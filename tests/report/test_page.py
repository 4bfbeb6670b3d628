"""The page, read back with an HTML parser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from clockhands.findings import SHARE, Figure, Finding, Findings, Mark, Panel, Reference, Table
from clockhands.report import make_page
from clockhands.report.render import make_policy
from tests.report.demo import EVIL, RUN, demo
from tests.report.html_tree import Tree
from tests.shared import sketched


@pytest.fixture(scope="module")
def text(demo_page: Path) -> str:
    """The page as it is written; tests/report/test_write.py compares it with the page that is returned."""
    return demo_page.read_text("utf8")


@pytest.fixture(scope="module")
def tree(text: str) -> Tree:
    return Tree(text)


def plain(*items: Finding, title: str = "Plain") -> Findings:
    return Findings(title, items)


def get_policy(tree: Tree) -> str:
    return next(meta["content"] for meta in tree.every("meta") if meta.get("http-equiv") == "Content-Security-Policy")


def test_is_one_file_without_network(text: str, tree: Tree) -> None:
    assert len(text.encode()) < 1_000_000
    assert not {"iframe", "object", "img"} & {tag for tag, _ in tree.tags}
    (program,) = tree.words["script"]
    assert get_policy(tree) == make_policy(program) and "script-src 'sha256-" in get_policy(tree)
    fetched = [
        value
        for tag, attributes in tree.tags
        if tag != "a"
        for key, value in attributes.items()
        if key in ("src", "href", "xlink:href")
    ]
    assert fetched and all(value.startswith(("data:", "#")) for value in fetched)
    assert not re.search(r"url\((?!#)", text)


def test_without_its_script_the_page_says_the_same() -> None:
    """Nothing but the script and the policy that allows it is missing: no figure, number or word."""
    findings = plain(demo()["survival.probe"])
    bare, whole = make_page(findings, script=False), make_page(findings)
    assert "script" not in {tag for tag, _ in Tree(bare).tags} and get_policy(Tree(bare)) == make_policy()
    without = [line for line in re.sub(r"(?s)<script>.*</script>\n", "", whole).splitlines() if "-Policy" not in line]
    assert without == [line for line in bare.splitlines() if "-Policy" not in line]


def test_every_figure_says_what_it_shows_and_what_was_measured(tree: Tree) -> None:
    """Whoever does not see a figure is told its verdict; its caption has value, interval, reference and version."""
    drawn = [item for item in demo() if item.figure]
    told = [attributes["aria-label"] for _, attributes in tree.tags if attributes.get("id", "").endswith("-svg")]
    assert told == [item.verdict for item in drawn]
    captions = tree.words["figcaption"]
    assert [caption.split(".")[0] for caption in captions] == [f"Figure {n}" for n in range(1, len(drawn) + 1)]
    assert "Value 9.4\u00a0% [8.1, 11.2]; untrained 1.3\u00a0% [1.2, 1.4]." in captions[0]
    assert all("Measured by demo|texts:96|len:128|seed:0|v:0.1." in caption for caption in captions)


def test_every_finding_is_a_section_with_its_question_and_verdict(tree: Tree) -> None:
    measured = [item for item in demo() if item.light != "skip"]
    assert tree.words["h3"] == [item.question for item in measured]
    assert len(tree.classed("verdict")) == len(measured)
    body = tree.words["body"][0]
    assert all(item.verdict in body.replace("\xa0%", " %") for item in demo())


def test_links_lead_somewhere_and_ids_are_unique(tree: Tree) -> None:
    ids = [attributes["id"] for _, attributes in tree.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    inner = {link["href"][1:] for link in tree.every("a") if link["href"].startswith("#")}
    assert inner <= set(ids)
    assert len(inner - {"content"}) == len(demo())


def test_lights_say_what_they_mean_in_words_and_symbols(tree: Tree) -> None:
    lamps = [lamp for lamp in tree.every("a") if "light" in lamp.get("class", "").split()]
    meaning = {"good": "good", "warn": "to watch", "bad": "bad", "info": "to know", "skip": "not applicable"}
    assert [lamp["aria-label"].split(":")[0] for lamp in lamps] == [meaning[item.light] for item in demo()]
    assert "3 good, 2 to watch, 1 bad, 3 to know, 2 not applicable" in tree.words["header"][0]


def test_figures_are_counted_as_a_reader_meets_them_and_have_titles() -> None:
    """The groups of the page are in another order than the findings; a figure without a title has its question."""
    line = Panel((Mark("line", y=(1, 2)),))
    titles = (("late", "What it learnt", "Scores"), ("early", "Word order", ""), ("last", "What it learnt", "Losses"))
    order = Finding("first", "Q?", "V.", details={"group": "Word order"})
    found = (
        Finding(name, f"Is it {name}?", "V.", figure=Figure((line,), title=title), details={"group": group})
        for name, group, title in titles
    )
    captions = Tree(make_page(Findings("t", (order, *found)))).words["figcaption"]
    starts = ["Figure 1. Is it early?", "Figure 2. Scores.", "Figure 3. Losses."]
    assert [caption.strip() for caption in captions] == starts


def test_groups_in_order_and_skipped_last(tree: Tree) -> None:
    groups = ["The input", "Attention", "Further up", "Cause", "Does not apply here"]
    assert tree.words["h2"][len(tree.classed("card")) :] == groups * 2
    assert "This model adds learned positions; it rotates nothing." in tree.words["main"][0]


def everywhere(text: str) -> Findings:
    """Findings that hold ``text`` in every field that is text."""
    mark = Mark("points", text, (1, 2), (text, "b"), names=(text, text))
    finding = Finding(
        name=text,
        question=text,
        verdict=text,
        value=text,
        unit=text,
        table=Table.of((text, "n"), [(text, 1.0)]),
        method=f"`{text}` {text}",
        source=text,
        command=f"echo '{text}'",
        details={"group": text, text: text},
        references=(Reference(text, 1.0),),
        figure=Figure((Panel((mark,), text, text, text),), text),
    )
    return Findings(text, (finding,), facts={text: text}, signature=text, command=text)


@pytest.mark.parametrize("evil", [EVIL, '"></td><script>alert(1)</script>', "' onload='x", "</style><b>", "&lt;b&gt;"])
def test_hostile_text_is_text_everywhere(evil: str) -> None:
    """The page has exactly the elements it has with harmless words as long, and the text is read back as it was."""
    tree, harmless = Tree(make_page(everywhere(evil))), Tree(make_page(everywhere(re.sub(r"\S", "x", evil))))
    assert [tag for tag, _ in tree.tags] == [tag for tag, _ in harmless.tags]
    assert [set(a) for _, a in tree.tags] == [set(a) for _, a in harmless.tags]
    assert tree.words["td"][0] == evil and tree.words["title"][0] == evil and tree.words["h3"] == [evil]
    assert evil in tree.words["figcaption"][0] and evil in tree.words["text"]


def test_method_shows_formula_source_details_and_command() -> None:
    finding = Finding(
        "m",
        "Q?",
        "V.",
        method="Ridge.\n\n`y = Xb`",
        source="arXiv:1706.03762",
        command="clockhands inspect x",
        details={"texts": 96},
    )
    tree = Tree(make_page(plain(finding)))
    assert "y = Xb" in tree.words["code"]
    assert "clockhands inspect x" in tree.words["pre"]
    assert tree.words["dt"] == ["source", "texts"] and tree.words["dd"] == ["arXiv:1706.03762", "96"]


def test_equal_findings_give_equal_pages_and_an_empty_run_has_one() -> None:
    """That equal figures are drawn alike is told by tests/report/figures/test_svg.py."""
    assert Tree(make_page(plain(title="Nothing"), title="Other")).words["h1"] == ["Other"]
    read = Findings.from_json(demo().to_json())
    assert read == demo()
    with sketched():
        assert make_page(read) == make_page(demo())


@pytest.mark.parametrize(
    ("marks", "drawn"),
    [
        ((Mark("line", "a", (1,), (2.0,)), Mark("line", "b", (1,), (3.0,))), False),
        ((Mark("line", "a", (1, 2), (2.0, 2.0)),), True),
        ((Mark("points", "", (0.0, 0.0), ("one", "two")),), False),
        ((Mark("points", "", (0.0, 0.5), ("one", "two")),), True),
        ((Mark("points", "", (7.0,), ("one",)),), False),
        ((Mark("bars", "", ("one",), (7.0,), (6.0,), (8.0,)),), False),
        ((Mark("points", "", (1.0,), (7.0,)), Mark("hline", y=(3.0,), emphasis="reference")), False),
        ((Mark("heatmap", z=((1.0,),)),), True),
        ((), False),
    ],
)
def test_a_chart_without_two_numbers_is_not_drawn(marks: tuple[Mark, ...], drawn: bool) -> None:
    page = make_page(plain(Finding("f", "Q?", "V.", figure=Figure((Panel(marks),)))))
    assert ('<div class="plot' in page) is drawn


def test_no_absolute_path_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder here is named from here, another by its last name; addresses, fractions and tables stay."""
    monkeypatch.chdir(tmp_path)
    inside, outside = str(tmp_path / "runs" / "mine"), "/srv/models/secret/llama"
    finding = Finding(
        "f", f"What does {outside} do?", f"{inside} is good.", method=f"Read {outside} and https://x.example/a/b, 3/4.",
        command=f"clockhands inspect {inside} --out /var/report", table=Table(("text",), (("/usr/lib/x",),)),
        details={"where": "/opt/lib/python/modeling.py:86"},
    )  # fmt: skip
    findings = Findings(f"Inside {outside}", (finding,), {"model": inside}, f"inspect|{outside}", f"show {outside}")
    page = make_page(findings)
    assert not re.search(r"/srv|/opt|/var/|" + re.escape(str(tmp_path)), page)
    for shown in ("What does …/llama do?", "./runs/mine is good.", "https://x.example/a/b", "3/4", "…/modeling.py:86"):
        assert shown in page
    assert "/usr/lib/x" in page and "<title>Inside …/llama</title>" in page


def test_shares_are_shown_in_percent_as_verdicts_tell_them() -> None:
    share = Finding(
        "f", "Q?", "9.2 % of it.", 0.0924, SHARE, (0.08, 0.1), (Reference("untrained", 0.013, (0.01, 0.02)),)
    )
    page = make_page(plain(share)).replace("\xa0", " ").replace("&nbsp;", " ")
    words = re.sub(r"<[^>]+>", "", page[page.index("<main") :])
    assert "9.2 %[8, 10]untrained 1.3 % [1, 2]" in words
    assert "0.0924" not in page


def plant(name: str, **fields: Any) -> Finding:
    told, reference = f"{name} is 2.5, cf. table 3. More.", (Reference(f"no {name}", 0.25),)
    return Finding(name, f"Is {name} there?", told, 2.5, "tokens", (2.0, 3.0), reference, **fields)


def list_cards(findings: Findings) -> list[str]:
    text = make_page(findings)
    assert findings.items == Findings.from_json(findings.to_json()).items
    assert make_page(Findings.from_json(findings.to_json())) == text
    cards = text.partition('<ul class="cards"')[2].split("</ul>")[0]
    return [link["href"] for link in Tree(cards).every("a")]


def test_the_cards_are_the_findings_that_the_command_named_in_its_order() -> None:
    items = (plant("first"), plant("second"), plant("third", light="bad"), plant("skipped", light="skip"))
    assert list_cards(Findings("t", items, opening=("third", "skipped", "missing", "first"))) == ["#third", "#first"]
    assert list_cards(Findings("t", items, opening=("missing",))) == []
    many = Findings("t", tuple(map(plant, "abcd")), opening=tuple("dcba"))
    assert list_cards(many) == ["#d", "#c", "#b"], "three at most"


def test_where_none_is_named_those_are_that_are_bad_or_to_watch() -> None:
    lights = {"fine": "good", "watch": "warn", "bad": "bad", "worse": "bad", "told": "bad", "late": "warn"}
    told = {"told": {"opening": "Told."}}
    items = tuple(plant(name, light=light, details=told.get(name, {})) for name, light in lights.items())
    assert list_cards(Findings("t", items)) == ["#bad", "#worse", "#watch"]
    assert list_cards(Findings("t", (plant("fine"),))) == []


def test_a_card_has_a_sentence_a_number_its_interval_and_the_named_reference() -> None:
    text = make_page(Findings("t", (plant("first"),), opening=("first",)))
    card = text[text.index('<ul class="cards"') :].split("</li>")[0]
    words = " ".join(re.sub(r"<[^>]+>", " ", card).replace("\u00a0", " ").replace("&nbsp;", " ").split())
    assert "Is first there? 2.5 tokens [2, 3] against no first: 0.25 tokens" in words
    assert words.endswith("first is 2.5, cf. table 3.")
    assert "More." not in words
    assert text.index('<ul class="cards"') < text.index('<nav class="contents"') < text.index("<main")


def test_the_opening_stands_first_with_a_small_table_and_is_told_once() -> None:
    table = Table(
        ("English", "with", "without"), (("Tom bit a dog", "Tomo", "Tomo"), ("a dog bit Tom", "hundo", "Tomo"))
    )
    opening = Finding("o", "What?", "All of it.", table=table, details={"opening": "Both become Tomo."})
    facts = {"verdict": "Both become Tomo.", "model": "a model"}
    text = make_page(Findings("t", (plant("first"), opening), facts=facts, opening=("first",)))
    tree = Tree(text)
    assert text.index("Both become Tomo.") < text.index('<ul class="cards"')
    assert tree.words["td"][:3] == ["Tom bit a dog", "Tomo", "Tomo"]
    assert text.count("Both become Tomo.") == 1 and tree.words["dd"] == ["a model"]


def test_a_large_table_stays_in_its_section() -> None:
    table = Table(("a", "b"), ((1, 2),) * 5)
    opening = Finding("o", "What?", "V.", table=table, details={"opening": "Told."})
    header = make_page(Findings("t", (opening,))).split("</header>")[0]
    assert "<table" not in header and "Told." in header


def test_notebook_frames_the_whole_page() -> None:
    frames: list[dict[str, str | None]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            frames.append({"tag": tag, **dict(attrs)})

    Reader().feed(RUN._repr_html_())
    assert len(frames) == 1
    assert frames[0]["srcdoc"] == make_page(RUN, script=False)
    assert "allow-scripts" not in (frames[0]["sandbox"] or "")
