"""Write the sources of the site: the pages of docs/ and of the repository, and a reference made from the code.

    python docs/make_site.py FOLDER        # then: mkdocs build --strict (`make docs` does both)

A link between two files that are both on the site becomes a link between pages; one to a file that is not (source
code, a recipe) becomes its text. A link to nothing stops the writing with its name. A formula becomes MathML, which
browsers draw by themselves: the site asks no other host for a script.
"""

from __future__ import annotations

import argparse
import dataclasses
import html
import importlib
import inspect
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import clockhands
from clockhands.errors import PLACE

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FROM_ROOT = {
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "how-to/contributing.md",
    "benchmarks/README.md": "reference/benchmarks.md",
}
PLACES = {
    "traps.md": "explanation/traps.md",
    "inspect.md": "explanation/inspect.md",
    "explain.md": "explanation/explain.md",
    "how-to.md": "how-to/index.md",
}
"""Pages of docs/ that stand elsewhere on the site; the others keep their folder."""
RENAMED = {"README.md": "overview.md", "index.md": "scheme-index.md", "index.html": "browse.html"}
"""Names within folders of docs/ that a site would take for the folder's own page."""
LIVE = "live.html"
"""The page in which the models of the site run."""
MARK = re.compile(r"<!-- live: (\S+) \| (.+?) -->")
"""Where a page of an answer has its live scene: the scene, and what it shows."""
TWINS = "<!-- twins -->"
"""Where the first page has both readers of Tom and the dog."""
INSTALL = f"""\
# In the folder of Clockhands. Leave this cell out where it is installed already.
%pip install --quiet '{PLACE}[workbench]'"""
"""The first cell of a notebook."""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
CODE = re.compile(r"(^```.*?^```$)", flags=re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"^\$\$(.+?)\$\$$", flags=re.MULTILINE | re.DOTALL)
API = {
    "attention": "A scheme in your own model, and in somebody else's.",
    "schemes": "The interface of every way to encode position, compositions, and the catalogue.",
    "schemes.absolute": "Schemes that add a vector to each token, or write one beside it.",
    "schemes.rotary": "Schemes that turn queries and keys.",
    "schemes.bias": "Schemes that add a number to each attention logit.",
    "schemes.content": "Schemes whose positions or distances depend on what the tokens are.",
    "positions": "Positions as data: from a mask, packed, shifted, randomised.",
    "model": "The Transformer, and its Hugging Face classes.",
    "data": "Text, tokens, batches.",
    "training": "Train what a recipe says.",
    "runs": "A folder with a trained model.",
    "generation": "Translate, continue, score.",
    "inspection": "What position does inside a model.",
    "checking": "Whether a model handles position correctly.",
    "comparison": "Plans, trials, statistics, verdicts.",
    "extension": "How far a model reads, and what makes it read further.",
    "studies": "Questions with plan and measured answer.",
    "exploring": "Trained models in a page.",
    "explanation": "Position configurations as numbers.",
    "models": "Anybody's model, opened.",
    "findings": "What a measurement returns.",
    "options": "The options of functions and dataclasses.",
    "catalogue": "Objects by name.",
}
"""The packages with a page of their own, in the order of the site, and what is in each."""
FIRST = {"attention": ["attend", "Positioning", "install"], "schemes": ["Scheme"], "schemes.rotary": ["RoPE"]}
"""What stands first on the page of a package; the rest follows by its name."""


class BrokenLinkError(Exception):
    """A page links to a file that is not in the repository."""


def main() -> int:
    """Write the sources of the site into a folder, which is emptied first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    shutil.rmtree(folder, ignore_errors=True)
    write_site(folder)
    return 0


def write_site(folder: Path) -> None:
    """Write all pages, and draw what is not kept. Raises BrokenLinkError for a link to nothing."""
    sys.path.insert(0, str(ROOT))
    from docs.make_models import read_models, write_live_page
    from docs.make_schemes import draw_pictures

    draw_pictures()
    places = dict(list_places())
    models = {model.data["id"]: model.data for model in read_models()}
    for source, target in places.items():
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = relink(source.read_text("utf8"), source, target, places)
            text = draw_formulas(make_live(text, target, models))
            # The search reads what people look for: the answers, not the tables of numbers under them.
            unsearched = target.startswith(("studies/", "answers/evidence/"))
            path.write_text("---\nsearch: {exclude: true}\n---\n" * unsearched + text, "utf8")
        elif target == "schemes/browse.html":
            path.write_text(relink_catalogue(source.read_text("utf8")), "utf8")
        else:
            shutil.copy2(source, path)
    for path in sorted((DOCS / "tutorials").glob("*.md")):
        if path.stem != "index":
            target = folder / "tutorials" / f"{path.stem}.ipynb"
            target.write_text(json.dumps(notebook(path), indent=1) + "\n", "utf8")
            page = target.with_suffix(".md")
            page.write_text(f"{page.read_text('utf8')}\n[This page as a notebook]({target.name})\n", "utf8")
    (folder / LIVE).write_text(write_live_page("answers"), "utf8")
    for name, make in REFERENCE.items():
        path = folder / "reference" / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make(), "utf8")


def list_places() -> Iterator[tuple[Path, str]]:
    """Yield every file that goes onto the site, with its place there."""
    for name, target in FROM_ROOT.items():
        yield ROOT / name, target
    for path in sorted(DOCS.rglob("*")):
        name = path.relative_to(DOCS).as_posix()
        left_out = path.suffix in (".py", ".gz") or name.startswith("tools/") or "__pycache__" in name
        if left_out or not path.is_file():
            continue
        inside = path.parent != DOCS and path.name in RENAMED and path.parent.name not in ("tutorials", "answers")
        yield (
            path,
            PLACES.get(name, f"{path.parent.relative_to(DOCS).as_posix()}/{RENAMED[path.name]}" if inside else name),
        )


def relink(text: str, source: Path, target: str, places: dict[Path, str]) -> str:
    """Return a page with links that lead to pages of the site; others become their text. Code is left as it is."""

    def rewrite(match: re.Match[str]) -> str:
        image, shown, address = match.groups()
        if re.match(r"[a-z]+:|#", address):
            return match.group()
        name, _, anchor = address.partition("#")
        path = (source.parent / name).resolve()
        if not path.exists():
            raise BrokenLinkError(f"{source.relative_to(ROOT)} links to {address}, which is not there")
        if path.is_dir() and (path / "README.md") in places:
            path /= "README.md"
        if path not in places:
            return shown
        place = os.path.relpath(places[path], Path(target).parent)
        return f"{image}[{shown}]({place}{'#' + anchor if anchor else ''})"

    return "".join(part if part.startswith("```") else LINK.sub(rewrite, part) for part in CODE.split(text))


def make_live(text: str, target: str, models: Mapping[str, Any]) -> str:
    """Return a page with a button for each live scene, and both readers of Tom and the dog."""
    up = os.path.relpath(LIVE, Path(target).parent)

    def rewrite(match: re.Match[str]) -> str:
        scene, title = match[1], html.escape(match[2])
        address = f"{up}#scene={html.escape(scene)}&amp;embedded=on"
        note = "<small>A trained model runs in your browser; nothing is asked of another host.</small>"
        return (
            f'<div class="live" data-page="{address}" data-title="{title}">'
            f'<button type="button">▶ {title} {note}</button></div>'
        )

    return MARK.sub(rewrite, text).replace(TWINS, write_twins(models) if TWINS in text else TWINS)


def write_twins(models: Mapping[str, Any]) -> str:
    """Return what both readers of the site make of “Tom bit a dog” and “a dog bit Tom”, with a switch between them."""
    seeing, blind = models["roles"], models["roles-no-position"]
    rows = "".join(
        f'<dt>{html.escape(source)}</dt><dd lang="eo"><span class="seeing">{html.escape(written)}</span>'
        f'<span class="unseeing">{html.escape(blind["twins"][source])}</span></dd>'
        for source, written in seeing["twins"].items()
    )
    counts = "".join(
        f'<p class="{kind}">{counted["right"]} of {counted["of"]} held-out sentences right.</p>'
        for kind, counted in (("seeing", seeing["measured"][0]), ("unseeing", blind["measured"][0]))
    )
    return (
        '<div class="twins" aria-live="polite"><label><input type="checkbox" checked> positions</label>'
        f"<dl>{rows}</dl>{counts}</div>"
    )


def draw_formulas(text: str) -> str:
    """Return a page in which each formula between two ``$$`` is MathML. Code is left as it is.

    Raises ValueError with a formula that cannot be drawn.
    """
    from latex2mathml.converter import convert

    def rewrite(match: re.Match[str]) -> str:
        # MathML would set the two signs of "+=" apart, as two operators.
        try:
            drawn = convert(match[1].strip().replace(r"\mathrel{+}=", r"\;\text{+=}\;"), display="block")
        except Exception as fault:  # the converter has a dozen errors of its own, with no words
            raise ValueError(f"the formula {match[1].strip()} cannot be drawn: {type(fault).__name__}") from fault
        if "\\" in drawn:
            raise ValueError(f"the formula {match[1].strip()} has a command that cannot be drawn: {drawn}")
        return f'<div class="formula">{drawn}</div>'

    return "".join(part if part.startswith("```") else FORMULA.sub(rewrite, part) for part in CODE.split(text))


def relink_catalogue(text: str) -> str:
    """Return the catalogue's page with links to the pages that the site makes of its Markdown files."""

    def rewrite(match: re.Match[str]) -> str:
        name = RENAMED.get(match[1], match[1])
        return f'href="{name.removesuffix(".md")}.html"'

    return re.sub(r'href="([\w-]+\.md)"', rewrite, text)


def notebook(path: Path) -> dict[str, Any]:
    """Return a tutorial as a notebook: its title, a cell that installs, and the page.

    Blocks of Python are cells, commands begin with "!", and output is where it was.
    """
    title, _, text = path.read_text("utf8").partition("\n")
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "metadata": {}, "source": [title]},
        {"cell_type": "code", "metadata": {}, "source": INSTALL.splitlines(keepends=True), "execution_count": None,
         "outputs": []},
    ]  # fmt: skip
    count = 0
    for part in re.split(r"(^```\w+\n.*?^```$)", text, flags=re.MULTILINE | re.DOTALL):
        block = re.fullmatch(r"```(\w+)\n(.*)```", part, flags=re.DOTALL)
        if block is None and part.strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": part.strip().splitlines(keepends=True)})
        elif block is not None and block[1] in ("python", "console"):
            count += 1
            code = re.sub(r"^\$ ", "!", block[2], flags=re.MULTILINE).rstrip()
            cells.append({"cell_type": "code", "metadata": {}, "source": code.splitlines(keepends=True),
                          "execution_count": count, "outputs": []})  # fmt: skip
        elif block is not None and block[1] == "text":
            output = {"output_type": "stream", "name": "stdout", "text": block[2].splitlines(keepends=True)}
            cells[-1]["outputs"].append(output)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


def commands() -> str:
    """Return the help of every command."""
    from clockhands.cli import VERBS
    from clockhands.cli import main as clockhands

    pages = ["# Commands\n"]
    os.environ["COLUMNS"] = "100"
    for verb, meaning in VERBS.items():
        printed = io.StringIO()
        with redirect_stdout(printed), suppress(SystemExit):
            clockhands([verb, "--help"])
        pages.append(
            f"## clockhands {verb}\n\n{meaning[0].upper()}{meaning[1:]}.\n\n```text\n{printed.getvalue()}```\n"
        )
    return "\n".join(pages)


def recipe_keys() -> str:
    """Return every key of a recipe, from the dataclasses that a recipe is validated against."""
    from clockhands.options import MISSING, describe, options_of, read_docstring

    pages = ["# Recipe keys\n\nA recipe is TOML; `--set table.key=value` overrides a key.\n"]
    for name, owner in recipe_tables().items():
        rows = []
        for option in options_of(owner).values():
            default = "must be given" if option.default is MISSING else f"`{_shown(option.default)}`"
            cells = [_cell(text) for text in (describe(option.type), default, option.meaning)]
            rows.append(f"| `{name}.{option.name}` | {' | '.join(cells)} |")
        table = "| key | values | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows)
        pages.append(f"## [{name}]\n\n{read_docstring(owner)[0]}\n\n{table}\n")
    return "\n".join(pages)


def recipe_tables() -> dict[str, Any]:
    """Return the tables of a recipe with their dataclasses."""
    from clockhands.model import PositionConfig, TransformerConfig
    from clockhands.runs.recipe import sections

    own = {
        re.match(r"``\[(\w+)\]``", inspect.cleandoc(kind.__doc__ or "")): kind
        for kind in vars(sections).values()
        if dataclasses.is_dataclass(kind) and inspect.isclass(kind)
    }
    named = {match[1]: kind for match, kind in own.items() if match is not None}
    return {"model": TransformerConfig, "position": PositionConfig, **named}


def _shown(value: Any) -> str:
    return f"{value!r}" if len(repr(value)) < 60 else "…"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def catalogue_page(title: str, module: str, name: str, lead: str) -> Callable[[], str]:
    """Return a function that writes the page of one catalogue: its entries with their first sentences."""

    def make() -> str:
        catalogue = getattr(importlib.import_module(module), name)
        rows = [f"| `{entry}` | {_cell(sentence)} |" for entry, sentence in catalogue.listing().items()]
        return f"# {title}\n\n{lead}\n\n| name | what it does |\n|---|---|\n" + "\n".join(rows) + "\n"

    return make


def api() -> str:
    """Return the first page of the Python API: the verbs, and the pages of the packages."""
    from clockhands.cli import VERBS

    verbs = [f"| `clockhands.{verb}` | {meaning} |" for verb, meaning in VERBS.items() if verb in clockhands.__all__]
    rows = [f"| [clockhands.{name}](api/{name}.md) | {what} |" for name, what in API.items()]
    places = [(package, name) for package, names in FIRST.items() for name in names]
    first = [f"[`{name}`](api/{package}.md#{find_home(package, name)})" for package, name in places]
    return "\n".join([
        "# Python API\n", f"Begin with {', '.join(first)}.\n", "| package | what is in it |", "|---|---|", *rows,
        "\nEvery verb of the command line is a function of the package `clockhands`:\n",
        "| function | what it does |", "|---|---|", *verbs, "",
    ])  # fmt: skip


def list_public(package: str) -> dict[str, Any]:
    """Return the public names of a package with values; a folder of schemes has those defined there."""
    module = importlib.import_module(f"clockhands.{package.split('.')[0]}")
    public = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]  # fmt: skip
    values = {name: getattr(module, name) for name in public}
    # The folder in which a scheme is defined has it: one page of all schemes would have half a megabyte.
    return {name: value for name, value in values.items() if _find_page(value, package.split(".")[0]) == package}


def _find_page(value: Any, package: str) -> str:
    home = f"{getattr(value, '__module__', '')}."
    inside = (page for page in API if page.startswith(f"{package}.") and home.startswith(f"clockhands.{page}."))
    return next(inside, package)


def find_home(package: str, name: str) -> str:
    """Return where a public name of a package is defined: griffe takes ``attention.install`` for the module."""
    value = list_public(package)[name]
    home = getattr(value, "__module__", "") if inspect.isclass(value) or inspect.isfunction(value) else ""
    return f"{home}.{name}" if home.startswith("clockhands.") else f"clockhands.{package}.{name}"


def package_page(package: str) -> Callable[[], str]:
    """Return a function that writes the page of a package: mkdocstrings asks its public names what they say."""

    def make() -> str:
        others = sorted(set(list_public(package)) - set(FIRST.get(package, ())), key=str.lower)
        parts = [f"::: {find_home(package, name)}\n" for name in (*FIRST.get(package, ()), *others)]
        own = "    options: {members: false, show_root_heading: false, show_root_toc_entry: false}\n"
        return "\n".join([f"# clockhands.{package}\n", f"::: clockhands.{package}\n{own}", *parts])

    return make


def schemas() -> str:
    """Return the JSON schemas, as they stand in the package."""
    files = sorted((ROOT / "src" / "clockhands").rglob("*.schema.json"))
    parts = [f"## {path.name}\n\n```json\n{path.read_text('utf8').rstrip()}\n```\n" for path in files]
    return "# JSON schemas\n\n" + "\n".join(parts)


def run_folder() -> str:
    """Return what a run folder holds, from the docstrings of what reads and writes it."""
    from clockhands.runs import folder, run

    told = "\n\n".join(inspect.cleandoc(part.__doc__ or "") for part in (folder, run, run.Run))
    return f"# A run folder\n\n```text\n{told}\n```\n"


def glossary() -> str:
    """Return the words of ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf8")
    words = text.split("## Words\n")[1].split("\n## ")[0]
    return "# Glossary\n" + relink(words, ROOT / "ARCHITECTURE.md", "reference/glossary.md", {})


REFERENCE: dict[str, Callable[[], str]] = {
    "commands": commands,
    "recipe": recipe_keys,
    "api": api,
    **{f"api/{name}": package_page(name) for name in API},
    "run-folder": run_folder,
    "schemas": schemas,
    "glossary": glossary,
    "checks": catalogue_page("Checks", "clockhands.checking.checks.check", "CHECKS", "What `clockhands check` tests."),
    "measures": catalogue_page(
        "Measures", "clockhands.inspection.measures", "MEASURES", "What `clockhands inspect` measures."
    ),
    "corpora": catalogue_page("Corpora", "clockhands.data", "CORPORA", "What `data.corpus` of a recipe names."),
    "engines": catalogue_page("Engines", "clockhands.generation.engines", "ENGINES", "What `--engine` names."),
    "studies": catalogue_page("Studies", "clockhands.studies", "STUDIES", "What `clockhands study NAME` measures."),
    "schemes": catalogue_page("Schemes", "clockhands.schemes", "CATALOGUE", "What `position.scheme` names."),
}

if __name__ == "__main__":
    sys.exit(main())
