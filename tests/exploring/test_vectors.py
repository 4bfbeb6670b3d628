"""The vectors that the engine is tested against are what their script writes."""

from __future__ import annotations

import base64
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

VECTORS = Path(__file__).resolve().parent.parent.parent / "explorer" / "tests" / "vectors"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_vectors", VECTORS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_vectors_are_what_the_script_writes(script: ModuleType, tmp_path: Path) -> None:
    """Up to the rounding of another processor."""
    script.main(tmp_path)
    written, kept = read(tmp_path), read(VECTORS)
    assert set(written) == set(kept) == {*script.MODELS, *(f"continuing/{name}" for name in script.CONTINUING)}
    for name, vectors in written.items():
        ours, theirs = (np.frombuffer(base64.b64decode(each.pop("weights")), "<f4") for each in (vectors, kept[name]))
        assert np.array_equal(ours, theirs), name
        compare(vectors, kept[name], name)


def read(folder: Path) -> dict[str, Any]:
    """Return the vectors below a folder by their names in it."""
    files = {path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.json")}
    return {name: json.loads(path.read_text("utf8")) for name, path in files.items()}


def compare(ours: Any, theirs: Any, place: str) -> None:
    """Fail where two trees of JSON differ by more than rounding."""
    assert type(ours) is type(theirs), place
    if isinstance(ours, dict):
        # A scheme may have got more options since.
        assert set(ours) >= set(theirs), place
        for key in theirs:
            compare(ours[key], theirs[key], f"{place}.{key}")
    elif isinstance(ours, list) and ours and isinstance(ours[0], float):
        assert np.allclose(ours, theirs, atol=1e-5), place
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), place
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            compare(*pair, f"{place}[{index}]")
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, abs=1e-4), place
    else:
        assert ours == theirs, place
