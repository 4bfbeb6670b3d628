"""Let mkdocstrings show the code blocks of docstrings: in Markdown a block has no ``::`` before it."""

from __future__ import annotations

import re
from typing import Any

import griffe


class LiteralBlocks(griffe.Extension):
    """Takes the ``::`` before a block of code out of every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that griffe has read."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^( *)::$", "", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"::$", ":", obj.docstring.value, flags=re.MULTILINE)
