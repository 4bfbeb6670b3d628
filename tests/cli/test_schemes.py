"""``clockhands schemes``: everything in the catalogue can be listed, explained and drawn."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from clockhands.cli import main
from clockhands.cli.schemes import BARS, _choose_symbol, _find_kept
from clockhands.model import PositionConfig
from clockhands.model.faults import find_position_faults
from clockhands.options import options_of
from clockhands.positions import make_transform
from clockhands.scheme_pages.variants import VARIANTS, SchemeVariant
from clockhands.schemes import CATALOGUE
from tests.cli.conftest import Capture, Patch


def test_the_list_names_every_scheme(capsys: Capture) -> None:
    assert main(["schemes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:5] == ["scheme", "enters", "invariant", "length", "learned"]
    assert set(CATALOGUE) <= {line.split(" ")[0] for line in lines}


@pytest.mark.parametrize("columns", [80, 130])
def test_no_word_of_the_list_is_cut(columns: int, capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["schemes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in "".join(lines)
    assert ("Sinusoids of fixed wavelengths" in "".join(lines)) == (columns == 130)


def test_json_holds_every_scheme_with_every_option_explained(capsys: Capture) -> None:
    assert main(["schemes", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["kind"] for row in rows} == {"scheme", "spectrum", "form", "transform"}
    told = {row["name"]: row for row in rows if row["kind"] == "scheme"}
    assert list(told) == list(CATALOGUE)
    assert all(row["of"] in CATALOGUE or row["kind"] == "transform" for row in rows)
    assert len(rows) >= 75
    for name, one in told.items():
        assert one["equation"], f"{name} has no equation"
        assert one["source"], f"{name} has no source"
        assert [option["name"] for option in one["options"]] == list(options_of(CATALOGUE[name]))
        silent = [option["name"] for option in one["options"] if not option["meaning"]]
        assert not silent, f"the docstring of {name} does not explain {silent}"


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_scheme_is_told(name: str, capsys: Capture) -> None:
    assert main(["schemes", name]) == 0
    printed = capsys.readouterr().out
    assert CATALOGUE[name].equation.split()[0] in printed
    assert "declares" in printed
    assert any(symbol in printed for symbol in "▁▂▃▄▅▆▇█░▒▓")


def test_a_hidden_key_is_printed_as_such(capsys: Capture) -> None:
    """A window of two: of the fourth query two keys are hidden behind it, and 28 after it."""
    assert main(["schemes", "window", "left=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.endswith("all heads")).split() == ["▁▁", "all", "heads"]
    below = next(place for place, line in enumerate(lines) if line.startswith("the same by position"))
    assert lines[below + 4].rstrip() == "  ╱╱  " + "╱" * 28


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_every_other_row_is_told_as_a_recipe_has_it(variant: SchemeVariant, capsys: Capture) -> None:
    assert main(["schemes", variant.name]) == 0
    told, _, recipe = capsys.readouterr().out.partition("in a recipe:\n")
    assert variant.title in told and variant.source in told
    position = PositionConfig.from_dict(tomllib.loads(recipe)["position"])
    assert find_position_faults(position, "decoder") == []
    if variant.of:
        options = json.loads(json.dumps(variant.options))
        assert (position.scheme, json.loads(json.dumps(position.options))) == (variant.of, options)
    else:
        assert position.transform == variant.name
        assert position.make_transform() == make_transform(variant.name)


def test_a_spectrum_is_a_row_of_json_too(capsys: Capture) -> None:
    assert main(["schemes", "yarn", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert main(["schemes", "--json"]) == 0
    assert row in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["sinusoidal", "alibi"])
def test_drawing_writes_a_file(name: str, tmp_path: Path) -> None:
    target = tmp_path / "picture.svg"
    assert main(["schemes", name, "--draw", str(target)]) == 0
    assert "<svg" in target.read_text("utf8")


def test_a_file_that_cannot_be_written_is_one_message(capsys: Capture) -> None:
    assert main(["schemes", "rope", "--draw", f"{__file__}/rope.svg"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_drawing_replaces_a_file_only_if_asked(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.svg").write_text("mine")
    assert main(["schemes", "rope", "--draw", str(tmp_path / "a.svg")]) == 2
    assert "a.svg exists; name another file, or pass --overwrite" in capsys.readouterr().err
    assert (tmp_path / "a.svg").read_text() == "mine"
    assert main(["schemes", "rope", "--draw", str(tmp_path / "a.svg"), "--overwrite"]) == 0
    assert "<svg" in (tmp_path / "a.svg").read_text("utf8")


def test_options_change_what_is_told(capsys: Capture) -> None:
    assert main(["schemes", "learned", "max_length=77", "beyond=clamp"]) == 0
    printed = capsys.readouterr().out
    assert "max_length = 77" in printed
    assert "beyond                 clamp" in printed
    assert main(["schemes", "rope", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["declares"]["translation_invariant"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ropee"], "unknown scheme 'ropee'; did you mean 'rope'?"),
        (["yarnn"], "unknown scheme 'yarnn'; did you mean 'yarn'?"),
        (["yarn", "factor=8"], "options: yarn is a spectrum, and only schemes take that here; give them to clockhands"),
        (["scaled", "--draw", "a.svg"],
         "--draw: scaled is a transform, and only schemes take that here; name a scheme"),
        (["rope", "bas=3"], "unknown option of rope 'bas'; did you mean 'base'?"),
        (["rope", "base"], "'base' is not of the form KEY=VALUE"),
        (["rope", "base=much"], "rope.base is 'much', but must be a number"),
        (["rope", "--draw", "rope.png"], "--draw rope.png: the format is SVG; name the file rope.svg"),
        (["--draw", "all.svg"], "--draw needs the name of a scheme"),
    ],
)  # fmt: skip
def test_faults_are_one_message(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(["schemes", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("scheme", "parameters"),
    [("learned", f"{512 * 512:,} parameters in all"), ("shaw", f"{2 * 33 * 64:,} parameters in every layer")],
)
def test_what_is_learned_is_told_by_the_layer_or_for_all(scheme: str, parameters: str, capsys: Capture) -> None:
    """One table at the input serves all layers; Shaw et al. have two tables of 2k+1 vectors in each."""
    assert main(["schemes", scheme]) == 0
    assert f"learns     {parameters} (d_model 512" in " ".join(capsys.readouterr().out.split(" "))


def test_a_value_has_the_symbol_of_its_place_between_the_least_and_the_largest() -> None:
    steps = [_choose_symbol(low, 0.0, float(len(BARS)), BARS) for low in range(len(BARS) + 1)]
    assert "".join(steps) == BARS + BARS[-1]
    assert _choose_symbol(3.0, 3.0, 3.0, BARS) == BARS[0]


def test_what_was_told_is_told_again_without_torch(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    """The second process imports no torch, and says the same; a file in its place that is damaged is written anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["schemes", "rope", "base=500"]) == 0
    first = capsys.readouterr().out
    code = (
        "import sys; from clockhands.cli import main; code = main(['schemes', 'rope', 'base=500']); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    environment = {**os.environ, "COLUMNS": str(shutil.get_terminal_size().columns)}
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert again.stdout == first
    (tmp_path / "clockhands" / "schemes.json").write_text("{")
    assert main(["schemes", "rope", "base=500"]) == 0
    assert capsys.readouterr().out == first
    assert json.loads((tmp_path / "clockhands" / "schemes.json").read_text())
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert _find_kept().is_absolute()


@pytest.mark.parametrize("written", [["window(left=7)"], ["window", "left=7"]])
def test_a_scheme_is_explained_as_messages_print_it(written: list[str], capsys: Capture) -> None:
    assert main(["schemes", *written]) == 0
    assert "left = 7" in capsys.readouterr().out


def test_the_slopes_of_alibi_are_told_for_any_number_of_heads(capsys: Capture, monkeypatch: Patch) -> None:
    """Those of the paper for 12 heads: 2^(-h) for 8, and every other one of 16 heads for the rest."""
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["schemes", "alibi", "num_heads=12"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("slopes ")]
    slopes = [float(number) for number in line.removeprefix("slopes ").split(",")]
    wanted = [2.0**-head for head in range(1, 9)] + [2.0 ** (-0.5 * head) for head in (1, 3, 5, 7)]
    assert slopes == pytest.approx(wanted, rel=1e-5)
    assert main(["schemes", "alibi", "num_heads=0"]) == 2
    assert "num_heads is 0, but must be a whole number above 0" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "meant"), [("rotary", "rope"), ("NoPE", "none"), ("sliding_window", "window")])
def test_names_that_people_use_lead_to_the_scheme(name: str, meant: str, capsys: Capture) -> None:
    assert main(["schemes", name]) == 2
    assert f"did you mean '{meant}'" in capsys.readouterr().err
