"""Where the text of an inspection comes from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clockhands.inspection.text_choice import describe_origin


@pytest.mark.parametrize(
    ("texts", "pairs", "default", "source", "told"),
    [
        (["a"], None, True, False, " of the text it was trained on"),
        (None, None, True, False, " of Python's documentation"),
        (None, [("a", "b")], True, True, " of the text it was trained on, with the sources that they translate"),
        (None, None, True, True, " of Python's documentation, with the same text as source"),
        (["a"], None, False, False, ""),
        (None, [("a", "b")], False, True, ", with the same text as source"),
    ],
)
def test_the_origin_of_the_text_is_told(texts: Any, pairs: Any, default: bool, source: bool, told: str) -> None:
    subject: Any = SimpleNamespace(training_texts=texts, training_pairs=pairs)
    data: Any = SimpleNamespace(source_NS=1 if source else None)
    assert describe_origin(subject, data, default) == told
