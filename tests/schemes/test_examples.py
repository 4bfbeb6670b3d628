"""The example in the docstring of every scheme: it is there, it builds the scheme by itself, and it runs as written."""

from __future__ import annotations

import doctest

import pytest
import torch

from clockhands.schemes import CATALOGUE, Scheme


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_example_of_a_scheme_runs(name: str) -> None:
    kind: type[Scheme] = CATALOGUE[name]
    (example,) = doctest.DocTestFinder(recurse=False).find(kind, globs={})
    assert any(f"{kind.__name__}(" in line.source for line in example.examples), "the example does not build the scheme"
    assert any(line.want for line in example.examples), "the example shows no result"
    said: list[str] = []
    with torch.random.fork_rng(devices=[]):
        doctest.DocTestRunner().run(example, out=said.append)
    assert not said, "".join(said)
