"""A figure can be followed: few functions run in a split of the logits, and few stand between weights and sentence."""

from __future__ import annotations

from .hops import list_split, list_way


def test_a_logit_split_is_read_in_few_functions_and_files() -> None:
    functions = list_split()
    assert ("inspection/reading/logit_split.py", "split_logits") in functions
    assert len(functions) <= 25, sorted(functions)
    assert len({file for file, _ in functions}) <= 5


def test_the_most_quoted_figure_is_few_hops_from_its_weights() -> None:
    way = list_way()
    assert way[0] == ("inspection/run.py", "inspect"), way
    assert ("inspection/reading/attention_hooks.py", "_rebuild_attention") in way
    assert ("inspection/measures/measure.py", "make_finding") in way
    assert len(way) <= 15, way
