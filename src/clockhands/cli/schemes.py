"""``clockhands schemes``: list the schemes, or explain and draw one of them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from clockhands import __version__
from clockhands.catalogue import UnknownNameError
from clockhands.cli.common import check_file
from clockhands.cli.flags import POSITIONAL
from clockhands.errors import ConfigError, DataError, UsageError, describe_unknown
from clockhands.files import write_text
from clockhands.options import options_of, parse, read_assignments

if TYPE_CHECKING:
    from rich.console import Console

    from clockhands.findings import Figure, Scalar
    from clockhands.scheme_pages.page import Page

EXAMPLES = (
    "clockhands schemes", "clockhands schemes sinusoidal", "clockhands schemes rope base=500000 --draw rope.svg",
    "clockhands schemes alibi num_heads=40", "clockhands schemes --json",
)  # fmt: skip
SHADES, BARS, HIDDEN = " ░▒▓█", "▁▂▃▄▅▆▇█", "╱"
ROOM_FOR_IDEAS = 130
MOST_KEPT = 200
"""Printed texts that are kept, the oldest of which make room for new ones."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is explained, and how it is shown.

    Args:
        name: the scheme, spectrum, form or transform to explain, or what is printed of a side: 'rope +
            window(left=511)' (default: list them all)
        options: options of the scheme, such as base=500000, and sizes, such as num_heads=40
        draw: draw the scheme to a file
        overwrite: replace the file of --draw if it exists
        json: print the list, or the explanation, as JSON
    """

    name: Annotated[str | None, POSITIONAL] = None
    options: Annotated[tuple[str, ...], "option=value", POSITIONAL] = ()
    draw: Annotated[str | None, "FILE.svg"] = None
    overwrite: bool = False
    json: bool = False


def run(options: Options) -> int:
    """List the schemes, or explain and draw one. What was printed is kept, so that it is told again without torch."""
    if options.draw:
        _show(options)
        return 0
    from clockhands.reading import read_json

    question = [options.name, options.options, options.json, shutil.get_terminal_size().columns]
    key, place, kept = json.dumps([_stamp_package(), *question]), _find_kept(), {}
    with contextlib.suppress(DataError):  # of a damaged file nothing is read
        kept = {key: text for key, text in read_json(place, DataError).items() if isinstance(text, str)}
    if key in kept:
        print(kept[key], end="")
        return 0
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        _show(options)
    print(shown.getvalue(), end="")
    kept = {**dict(list(kept.items())[1 - MOST_KEPT :]), key: shown.getvalue()}
    with contextlib.suppress(DataError):  # a home that nobody may write into
        write_text(place, json.dumps(kept))
    return 0


def _find_kept() -> Path:
    """Return the file in the user's cache that holds what was printed of schemes; a relative XDG_CACHE_HOME is none."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path("~/.cache").expanduser()) / "clockhands" / "schemes.json"


def _stamp_package() -> str:
    """Return what changes with this version of the package, and with every edit of what its pages are made of."""
    package = Path(__file__).parents[1]
    folders = (package / name for name in ("schemes", "scheme_pages", "positions", "cli", "attention", "findings"))
    files = [*package.glob("*.py"), *(file for folder in folders for file in folder.rglob("*.*"))]
    times = sorted(
        f"{file.name}{file.stat().st_mtime_ns}" for file in files if file.suffix in (".py", ".json", ".toml")
    )
    return f"{__version__} {hashlib.sha256(' '.join(times).encode()).hexdigest()}"


def _show(options: Options) -> None:
    """Print the list or the explanation, and draw the scheme."""
    from clockhands.scheme_pages.page import list_rows, make_page, make_pages
    from clockhands.scheme_pages.variants import describe_variant, find_variant

    if options.name is None:
        if options.draw:
            raise UsageError("--draw needs the name of a scheme: clockhands schemes sinusoidal --draw sinusoidal.svg")
        print(json.dumps(list_rows(), indent=1)) if options.json else _list(make_pages())
        return
    variant = find_variant(options.name)
    if variant is not None:
        if options.options or options.draw:
            taken = "--draw" if options.draw else "options"
            remedy = f"give them to clockhands schemes {variant.of}" if variant.of else "name a scheme"
            raise UsageError(f"{taken}: {variant.name} is a {variant.kind}, and only schemes take that here; {remedy}")
        print(json.dumps(asdict(variant), indent=1) if options.json else describe_variant(variant))
        return
    check_file("--draw", options.draw, overwrite=options.overwrite, suffix=".svg")
    name, options_set, sizes = _read_scheme(options.name, options.options)
    scheme_page = make_page(name, options_set, sizes)
    if options.draw:
        from clockhands.report.figures import draw, make_file
        from clockhands.scheme_pages.picture import make_figure

        write_text(options.draw, make_file(draw(make_figure(name, options_set), name)))
    print(json.dumps(scheme_page.to_dict(), indent=1)) if options.json else _print_page(scheme_page, options_set)


def _read_scheme(name: str, written: Sequence[str]) -> tuple[str, dict[str, Any], dict[str, int]]:
    """Return the name of the scheme, and the values of ``base=500``: options, and sizes as ``num_heads=40``.

    Raises ConfigError for what has another form, and UnknownNameError for a name that no row of the list has.
    """
    from clockhands.scheme_pages.variants import VARIANTS
    from clockhands.schemes import CATALOGUE, list_meant, list_sizes, read_part

    name, table = read_part(name)
    if name not in CATALOGUE:
        if list_meant(name, CATALOGUE):
            raise UnknownNameError(CATALOGUE.describe_unknown_name(name))
        names = [*CATALOGUE, *(variant.name for variant in VARIANTS)]
        raise UnknownNameError(describe_unknown("scheme", name, names))
    known: Mapping[str, Any] = options_of(CATALOGUE[name])
    values = read_assignments(written, f"scheme {name!r}")
    sizes = {key: parse(values.pop(key), int) for key in list_sizes(CATALOGUE[name]) if key in values}
    wrong = [f"{key} is {value!r}, but must be a whole number above 0" for key, value in sizes.items()
             if not (isinstance(value, int) and value > 0)]  # fmt: skip
    if wrong:
        raise ConfigError(wrong, f"scheme {name!r}")
    parsed = {key: parse(value, known[key].type) if key in known else value for key, value in values.items()}
    return name, {**table, **parsed}, sizes


def _list(everything: list[Page]) -> None:
    from rich.console import Console
    from rich.table import Table

    from clockhands.scheme_pages.variants import LEFT_OUT, VARIANTS
    from clockhands.schemes.position_presets import POSITION_PRESETS

    console = Console()
    has_room = console.width >= ROOM_FOR_IDEAS
    table = Table(box=None, pad_edge=False)
    for heading in ("scheme", "enters", "invariant", "length", "learned", *(["idea"] if has_room else [])):
        table.add_column(heading, no_wrap=heading != "idea")
    for listed in everything:
        longest = listed.declares["max_length"]
        row = [listed.name, ", ".join(listed.enters) or "nowhere"]
        row += ["yes" if listed.declares["translation_invariant"] else "no", str(longest or "any")]
        row += ["yes" if listed.parameters else "no"]
        table.add_row(*row, *([listed.title] if has_room else []))
    console.print(table)
    wider = "" if has_room else f" A window of {ROOM_FOR_IDEAS} columns tells the idea of each."
    console.print(f"\n`clockhands schemes NAME` explains and draws one.{wider}", highlight=False)
    for kind, said in (("spectrum", "Spectra of rope"), ("form", "Forms"), ("transform", "Transforms of positions")):
        named = [
            variant.name if variant.of in ("", "rope") else f"{variant.name} ({variant.of})"
            for variant in VARIANTS
            if variant.kind == kind
        ]
        console.print(f"{said}: {', '.join(named)}.", highlight=False, markup=False)
    console.print(f"Positions of real models, for position.preset: {', '.join(POSITION_PRESETS)}.", highlight=False)
    console.print(f"Left out, with reasons in docs/schemes: {'; '.join(LEFT_OUT)}.", highlight=False)


def _print_page(page: Page, options_set: dict[str, Any]) -> None:
    from rich.console import Console

    from clockhands.scheme_pages.page import read_costs
    from clockhands.scheme_pages.picture import make_figure

    console = Console()
    lines = [f"{page.name}: {page.title}", "", page.summary, "", f"equation   {page.equation}"]
    lines += [f"source     {page.source}", f"enters at  {', '.join(page.enters) or 'nowhere'}"]
    lines += [f"peers      {', '.join(page.peers) or 'none'}"]
    lines += [f"used by    {', '.join(page.models) or 'no widely known model'}"]
    where = "in every layer" if page.per_layer else "in all"
    lines += [f"learns     {page.parameters:,} parameters {where} (d_model 512, 8 heads)"]
    if page.cost is not None:
        lines += [f"costs      {page.cost:.2f} times the time of no position ({read_costs()['setting']})"]
    for label, values in page.numbers.items():
        lines += [f"{label:<10} {', '.join(f'{value:.6g}' for value in values)}"]
    labels = ["not", *[""] * len(page.limits)]
    lines += [f"{label:<10} {limit}" for label, limit in zip(labels, page.limits, strict=False)]
    lines += ["keeps      every law" + (", except" if page.excuses else "")]
    lines += [f"  {law}: {reason}" for law, reason in page.excuses.items()]
    lines += ["", "declares"]
    lines += [f"  {fact:<22} {value}" for fact, value in page.declares.items()]
    for variant in page.variants:
        written = " ".join(f"{key}={value}" for key, value in variant.options.items())
        lines += ["", "variants"] if variant is page.variants[0] else []
        lines += [f"  {variant.name:<22} {variant.title} {written}".rstrip()]
    if page.options:
        lines += ["", "options"]
    for option in page.options:
        lines += [
            f"  {option.name} = {options_set.get(option.name, option.default)!r}",
            f"      {option.takes}: {option.meaning}",
        ]
    for line in lines:
        console.print(line, markup=False, highlight=False)
    _draw_small(make_figure(page.name, options_set), console)


def _draw_small(drawing: Figure, console: Console) -> None:
    """Print a figure with characters: heatmaps as shades, lines as bars. ``--draw`` draws the real one."""
    console.print(f"\n{drawing.caption}", markup=False, highlight=False)
    for panel in drawing.panels:
        rows: list[tuple[tuple[Scalar, ...], str]] = [(row, "") for mark in panel.marks for row in mark.z[:16]]
        rows += [(mark.y, mark.label) for mark in panel.marks if mark.kind == "line"]
        values = [float(value) for row, _ in rows for value in row if value is not None]
        low, high = min(values), max(values)
        span = f"{panel.ylabel} from {low:.3g} to {high:.3g}, by {panel.xlabel}"
        if panel.marks[0].kind == "heatmap":
            span = f"{panel.ylabel} down, {panel.xlabel} across, from {low:.3g} to {high:.3g}"
        console.print(f"\n{panel.title}: {span}", markup=False, highlight=False)
        for row, label in rows:
            symbols = BARS if label or panel.marks[0].kind == "line" else SHADES
            text = "".join(_choose_symbol(value, low, high, symbols) for value in row[:64])
            console.print(f"  {text}  {label}", markup=False, highlight=False, no_wrap=True)


def _choose_symbol(value: Any, low: float, high: float, symbols: str) -> str:
    """Return the symbol that stands for a value between ``low`` and ``high``, or for the lack of one."""
    if value is None:
        return HIDDEN if symbols is SHADES else " "
    share = (float(value) - low) / (high - low) if high > low else 0.0
    return symbols[min(int(share * len(symbols)), len(symbols) - 1)]
