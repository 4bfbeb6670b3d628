"""Two sets of findings as one."""

from __future__ import annotations

from dataclasses import replace

from clockhands.findings import Figure, Finding, Findings, Mark, Panel, Table
from clockhands.report import put_side_by_side


def panel(title: str, top: float) -> Panel:
    return Panel((Mark("line", "a", (0, 1), (0.0, top)),), title, "x", "y")


def finding(value: float | str | None, **more: object) -> Finding:
    return Finding("f", "Q?", "V.", value=value, **more)  # type: ignore[arg-type]


def run(model: str, *items: Finding, **facts: str) -> Findings:
    return Findings(
        "Inside", items, facts={"model": model, **facts}, signature=f"m:{model}", command=f"inspect {model}"
    )


def test_difference_is_b_minus_a_and_says_whether_intervals_meet() -> None:
    a = run("before", finding(0.25, interval=(0.2, 0.3), light="good"))
    apart = put_side_by_side(a, run("after", finding(0.75, interval=(0.7, 0.8), light="warn")))["f"]
    assert apart.value == 0.5 and apart.unit == "B − A"
    assert apart.verdict == "A: V.\nB: V.\nDifference B − A: 0.5; the intervals do not overlap."
    assert apart.light == "warn"
    assert apart.details["A"] == "0.25" and apart.details["B"] == "0.75"
    meet = put_side_by_side(a, run("after", finding(0.26, interval=(0.1, 0.4))))["f"]
    assert meet.verdict.endswith("Difference B − A: 0.01; the intervals overlap.")


def test_no_difference_between_words_or_units() -> None:
    for a, b in ((finding("x"), finding(1.0)), (finding(1.0, unit="%"), finding(1.0)), (finding(None), finding(1.0))):
        both = put_side_by_side(run("a", a), run("b", b))["f"]
        assert both.value is None and "Difference" not in both.verdict


def test_single_panels_stand_in_pairs_grids_follow_each_other() -> None:
    one = put_side_by_side(
        run("a", finding(1.0, figure=Figure((panel("p", 1), panel("q", 1))))),
        run("b", finding(1.0, figure=Figure((panel("p", 2), panel("q", 2))))),
    )["f"].figure
    assert one is not None and one.columns == 2
    assert [p.title for p in one.panels] == ["A · p", "B · p", "A · q", "B · q"]
    grid = Figure(tuple(panel(str(n), 1) for n in range(5)), columns=3)
    two = put_side_by_side(run("a", finding(1.0, figure=grid)), run("b", finding(1.0, figure=grid)))["f"].figure
    assert two is not None and two.columns == 3
    assert [p.title for p in two.panels] == [*(f"A · {n}" for n in range(5)), "", *(f"B · {n}" for n in range(5))]


def test_tables_join_with_a_side_column() -> None:
    a = finding(1.0, table=Table.of(("k", "v"), [("x", 1)]))
    b = finding(1.0, table=Table.of(("k", "w"), [("x", 2)]))
    table = put_side_by_side(run("a", a), run("b", b))["f"].table
    assert table.columns == ("side", "k", "v", "w")
    assert table.rows == (("A", "x", 1, None), ("B", "x", None, 2))


def test_what_only_one_has_and_what_one_skipped() -> None:
    skip = Finding("f", "Q?", "It rotates nothing.", light="skip")
    other = Finding("g", "G?", "G.", value=2.0)
    both = put_side_by_side(run("a", skip), run("b", finding(1.0, light="good"), other))
    assert both["f"].light == "good"
    assert both["f"].verdict == "A: It rotates nothing.\nB: V."
    assert both["g"].verdict == "Measured in B only (b). G." and both["g"].value == 2.0
    none = put_side_by_side(run("a", skip), run("b", skip))["f"]
    assert none.light == "skip" and none.verdict == "It rotates nothing."


def test_facts_name_both_and_keep_what_is_common_once() -> None:
    both = put_side_by_side(run("m", text="t", scale="on"), run("n", text="t", scale="off"))
    assert dict(both.facts) == {"A": "m", "B": "n", "text": "t", "scale, A": "on", "scale, B": "off"}
    assert both.command == "inspect m\ninspect n"
    assert put_side_by_side(run("m"), run("m")).title == "m (A) and m (B)"


def test_order_is_a_s_then_what_b_adds() -> None:
    a = run("a", Finding("x", "", ""), Finding("y", "", ""))
    b = run("b", Finding("z", "", ""), Finding("y", "", ""), Finding("x", "", ""))
    assert [item.name for item in put_side_by_side(a, b)] == ["x", "y", "z"]


def test_what_rests_on_different_things_is_not_put_together() -> None:
    """Each stands alone, with its own number, and names what differs; what is alike, or unknown, is compared."""
    a = finding(0.25, basis={"text": "one", "tokenizer": "t", "width": "8"}, light="good")
    b = finding(0.75, basis={"text": "other", "tokenizer": "u", "width": "8"}, light="warn")
    apart = put_side_by_side(run("m", a), run("n", b))
    assert [item.name for item in apart] == ["f.A", "f.B"]
    assert apart["f.A"].verdict == "m: V. Not comparable with B: A and B differ in text and tokenizer."
    assert (apart["f.A"].value, apart["f.B"].value) == (0.25, 0.75)
    assert apart["f.B"].question == "B: Q?"
    same = put_side_by_side(run("m", a), run("n", finding(0.75, basis=a.basis)))
    assert same["f"].value == 0.5
    old = put_side_by_side(run("m", a), run("n", finding(0.75)))
    assert old["f"].value == 0.5, "findings that were saved before do not say what they rest on"


def test_the_cards_are_those_of_both() -> None:
    a, b = run("a", finding(1.0)), run("b", finding(4.0))
    both = put_side_by_side(replace(a, opening=("f",)), replace(b, opening=("g", "f")))
    assert both.opening == ("f", "g")
