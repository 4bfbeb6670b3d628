"""A catalogue: objects by name, the nearest name for an unknown one, entries that are imported when they are used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clockhands.catalogue import Catalogue, Lazy, UnknownNameError, get_first_sentence, get_module_line, import_later
from clockhands.errors import UsageError


def circle() -> None:
    """Draw a circle (Euclid et al. 300, definition 15). It is round.

    More about it.
    """


def test_names_keep_the_order_in_which_they_were_added() -> None:
    shapes = Catalogue("shape", {"square": 4, "circle": 0})
    shapes["angle"] = 2
    assert list(shapes) == ["square", "circle", "angle"]
    assert dict(shapes) == {"square": 4, "circle": 0, "angle": 2}
    del shapes["circle"]
    assert len(shapes) == 2 and "circle" not in shapes


def test_an_unknown_name_names_the_nearest() -> None:
    shapes = Catalogue("shape", {"square": 4, "circle": 0})
    with pytest.raises(UnknownNameError) as fault:
        shapes["circel"]
    assert str(fault.value) == "unknown shape 'circel'; did you mean 'circle'?"
    assert isinstance(fault.value, UsageError) and fault.value.exit_code == 2
    with pytest.raises(UnknownNameError, match="did you mean 'square'"):
        del shapes["sqare"]


def test_it_is_a_mapping_for_those_who_ask_first() -> None:
    shapes = Catalogue("shape", {"square": 4})
    assert shapes.get("cube") is None
    assert shapes.get(["square"]) is None  # type: ignore[call-overload]
    assert ["square"] not in shapes
    assert shapes.describe_unknown_name(3) == "unknown shape 3; choose one of square"


def test_a_lazy_entry_is_made_once_and_only_when_it_is_used() -> None:
    made: list[int] = []
    shapes: Catalogue[object] = Catalogue("shape", {"square": Lazy(lambda: made.append(1) or object())})
    assert "square" in shapes and list(shapes) == ["square"] and made == []
    assert shapes["square"] is shapes["square"]
    assert made == [1]


def test_an_imported_entry_imports_its_module_when_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_shape.py").write_text("class Square: '''Four sides.'''\n", "utf8")
    monkeypatch.syspath_prepend(tmp_path)
    shapes = Catalogue("shape", {"square": import_later("planted_shape", "Square")})
    assert len(shapes) == 1 and "planted_shape" not in sys.modules
    assert shapes.describe("square") == "Four sides"
    assert sys.modules.pop("planted_shape").Square is shapes["square"]


def test_modules_of_a_package_register_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "planted_shapes"
    package.mkdir()
    (package / "__init__.py").write_text("from clockhands.catalogue import import_modules\nimport_modules(__name__)\n")
    (tmp_path / "planted_list.py").write_text(
        "from clockhands.catalogue import Catalogue\nSHAPES = Catalogue('shape', modules=('planted_shapes',))\n"
    )
    for name in ("square", "circle"):
        text = f"from planted_list import SHAPES\n@SHAPES.register({name!r})\ndef draw():\n    '''Draw a {name}.'''\n"
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import planted_list  # type: ignore[import-not-found]

    assert planted_list.SHAPES.listing() == {"circle": "Draw a circle", "square": "Draw a square"}
    for name in [name for name in sys.modules if name.startswith("planted_")]:
        del sys.modules[name]


def test_two_entries_cannot_register_under_one_name() -> None:
    shapes: Catalogue[object] = Catalogue("shape")
    shapes.register("circle")(circle)
    with pytest.raises(ValueError, match="two entries 'circle'"):
        shapes.register("circle")(circle)


def test_a_first_sentence_ends_before_a_capital() -> None:
    assert get_first_sentence(circle) == "Draw a circle (Euclid et al. 300, definition 15)"


def test_the_first_line_of_a_module_is_empty_where_there_is_no_module() -> None:
    assert get_module_line(circle) == (__doc__ or "").partition("\n")[0]
    assert get_module_line(type("Nowhere", (), {"__module__": "no.such.module"})) == ""
