"""The table of a finding: folded on the page, and as CSV."""

from __future__ import annotations

import csv
import io
from urllib.parse import unquote

from clockhands.findings import Figure, Finding, Findings, Mark, Panel, Table
from clockhands.report import make_page
from clockhands.report.tables import LARGEST_CSV, SHOWN_ROWS, is_wide, read_values, to_csv
from tests.report.demo import EVIL
from tests.report.html_tree import Tree


def plain(*items: Finding, title: str = "Plain") -> Findings:
    return Findings(title, items)


def test_folded_table_and_its_download_hold_the_same_values() -> None:
    table = Table.of(("word", "n"), [("a,\"b'", 0.1234567), ("ü\n#%&", None), (EVIL, 3)])
    tree = Tree(make_page(plain(Finding("t", "Q?", "V.", table=table))))
    assert tree.words["td"] == ["a,\"b'", "0.123", "ü␊#%&", "–", EVIL, "3"]
    link = next(link for link in tree.every("a") if "download" in link)
    assert link["download"] == "t.csv"
    content = unquote(link["href"].split(",", 1)[1])
    assert list(csv.reader(io.StringIO(content, newline=""))) == [
        ["word", "n"],
        ["a,\"b'", "0.1234567"],
        ["ü\n#%&", ""],
        [EVIL, "3"],
    ]
    assert content == to_csv(table)


def test_long_tables_point_to_their_file() -> None:
    rows = [(f"row {number}", number / 7) for number in range(2000)]
    table = Table.of(("name", "value"), rows)
    assert len(to_csv(table)) > LARGEST_CSV
    text = make_page(plain(Finding("long", "Q?", "V.", table=table)))
    assert text.count("<tr>") == SHOWN_ROWS + 1
    assert f"The first {SHOWN_ROWS} of 2,000 rows; all are in <code>tables/long.csv</code>" in text
    assert len(text) < 60_000


def test_a_figure_without_a_table_has_the_numbers_that_it_draws() -> None:
    line = Mark("line", "loss", (1, 2), (3.0, 4.0), low=(2.5, 3.5), high=(3.5, 4.5))
    cells = Mark("heatmap", "cosine", z=((0.1, 0.2), (0.3, None)), x=("a", "b"))
    finding = Finding("f", "Q?", "V.", figure=Figure((Panel((line,), "Loss"), Panel((cells,)))))
    assert read_values(finding).rows == (
        ("Loss", "loss", 1, 3.0, None, 2.5, 3.5, None),
        ("Loss", "loss", 2, 4.0, None, 3.5, 4.5, None),
        ("2", "cosine", "a", 0, 0.1, None, None, None),
        ("2", "cosine", "b", 0, 0.2, None, None, None),
        ("2", "cosine", "a", 1, 0.3, None, None, None),
        ("2", "cosine", "b", 1, None, None, None, None),
    )
    table = Table.of(("n",), [(1,)])
    assert read_values(Finding("f", "Q?", "V.", figure=finding.figure, table=table)) is table


def test_a_table_is_wide_when_its_longest_words_do_not_fit_side_by_side() -> None:
    """Two columns of 14 and 15 characters with 2 between fill the 33 characters of a phone; one more is too many."""
    assert not is_wide(("a" * 14, "b"), [("1", "2" * 15)])
    assert is_wide(("a" * 14, "b"), [("1", "2" * 16)])
    assert not is_wide(("a word " * 20, "b"), [("many words of a sentence " * 9, 0.123456789)])
    assert is_wide(("a\u00a0name\u00a0that\u00a0is\u00a0never\u00a0broken\u00a0in\u00a0two",), [])
    assert is_wide(tuple("abcdefgh"), [(0.123456789,) * 8])
