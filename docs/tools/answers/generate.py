"""Write docs/answers/ and docs/studies/*.md from the studies and their committed results, so that they cannot drift.

    python docs/tools/answers/generate.py            # writes the pages and their pictures
    python docs/tools/answers/generate.py --check    # exit code 1 if a page is not what this writes

``--take NAME FOLDER`` first copies the results of ``clockhands study NAME --out FOLDER`` here (``NAME.long``: those of
``--scale long``); ``--give NAME FOLDER`` writes them into a new folder instead, where the same command goes on with
trainings that are missing; ``--exact`` first computes again what needs no training; ``--inspected FILE`` first keeps
findings of ``clockhands inspect``, ``--encoder MODEL`` first measures that model's weights (`trained.py`). The pictures
of the mechanisms are drawn by ``mechanisms.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from answer_page import write_answers
from exact import FACTS
from exact.trained import measure_trained_encoder
from kept import STUDY_PAGES as HERE
from kept import Facts, Measured, keep, list_kept, read_kept
from question import read_questions
from study_figure import draw_study
from study_page import select_sizes, write_study

from clockhands.comparison import Comparison, read_comparison
from clockhands.comparison.results import PLAN, ComparisonFolder
from clockhands.errors import ClockhandsError, UsageError
from clockhands.files import write_text
from clockhands.findings import Findings
from clockhands.studies import STUDIES

ANSWERS = HERE.parent / "answers"
BODIES = Path(__file__).parent / "pages"
"""What stands on the page of a question between its picture and what people say, with slots."""
READING_GUIDE = HERE / "reading.txt"
"""What a reader must know before the first number: the tasks, the words of the tables, and how equality is shown."""
EXACT = HERE / "exact.json"
INSPECTED = HERE / "minilm.json"
"""Of all-MiniLM-L6-v2, a trained sentence encoder: `clockhands inspect MODEL --texts 48 --no-control --json`."""
LONGER = HERE / "extending.json"
"""Of texts longer than the trained ones: `python docs/tools/answers/extending.py FOLDER`."""
PARTS = HERE / "parts.json"
"""Of the four parts of a score: `python docs/tools/answers/parts.py`."""
ENCODER = HERE / "encoder.json"
"""Of the weights of the same encoder: `generate.py --encoder MODEL`."""
PLACES = HERE / "places.json"
"""Of relative places, and of neighbours that are alike: `python docs/tools/answers/places.py`."""
COST = HERE / "cost.json"
"""Of the time that a step takes with a sum and with concatenations: `python docs/tools/answers/cost.py`."""


def write_pages() -> dict[Path, str]:
    """Return every page by its path."""
    measured = read_measured()
    sized = read_sized()
    pages = {
        HERE / f"{name}.md": write_study(STUDIES[name], comparison, select_sizes(name, sized))
        for name, comparison in measured.items()
    }
    bodies = {path.stem: path.read_text("utf8") for path in BODIES.glob("*.md")}
    guide = READING_GUIDE.read_text("utf8")
    answers = write_answers(read_questions().values(), {**measured, **sized}, read_facts(), bodies, guide)
    return {
        **pages,
        HERE / "README.md": write_index(measured),
        **{ANSWERS / place: text for place, text in answers.items()},
    }


def read_measured() -> Measured:
    """Return the kept results of the planned sizes, by study."""
    return {name: read_kept(name) for name in list_kept() if name in STUDIES}


def read_sized() -> Measured:
    """Return the kept results of other sizes, by study and size: ``scale.long``."""
    return {name: read_kept(name) for name in list_kept() if name not in STUDIES}


def read_facts() -> Facts:
    """Return what was computed without training, by fact."""
    facts: Facts = json.loads(EXACT.read_text("utf8"))
    read = {
        name: json.loads(path.read_text("utf8"))
        for name, path in (("minilm", INSPECTED), ("encoder", ENCODER), ("cost", COST))
    }
    terms = ("content–content", "content–position", "position–position")
    for layer in range(1, 7):
        rest = 100 - sum(read["minilm"][f"{term}, layer {layer}"] for term in terms)
        read["minilm"][f"same for every query, layer {layer}"] = rest
    longer = json.loads(LONGER.read_text("utf8"))
    reach = longer["longer-reach"]
    for kind in ("rope", "windows"):
        reach[f"{kind}, open"] = 5 - reach[f"{kind}, shown to read it"] - reach[f"{kind}, shown not to read it"]
    return {**facts, **read, **longer, **json.loads(PARTS.read_text("utf8")), **json.loads(PLACES.read_text("utf8"))}


def keep_inspected(findings: Findings) -> None:
    """Keep what the answers tell of a trained encoder, of the findings of ``clockhands inspect``; shares in percent."""
    loudness, directions = findings["loudness"], findings["directions"]
    quantities = {row[0]: row[1] for row in directions.table.rows}
    kept = {
        "word over position": loudness.details["ratio"],
        "overlap": directions.value,
        "overlap by chance": directions.references[0].value,
        "overlap below chance": -directions.details["z"],
        "position directions": quantities["dimensions of the positions' subspace"],
    }
    for layer, *terms in findings["logits.layers"].table.rows:
        kept[f"content–content, layer {layer}"] = 100 * terms[0]
        kept[f"content–position, layer {layer}"] = 100 * (terms[1] + terms[3])
        kept[f"position–position, layer {layer}"] = 100 * terms[4]
    for layer, position, _, _, word, *_ in findings["survival"].table.rows:
        kept[f"position read back, layer {layer}"] = 100 * position
        kept[f"word read back, layer {layer}"] = 100 * word
    write_text(INSPECTED, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def keep_encoder(folder: str) -> None:
    """Measure the weights of a trained encoder, and keep what the answers tell of them."""
    write_text(ENCODER, json.dumps(measure_trained_encoder(folder), indent=1, ensure_ascii=False) + "\n")


def write_facts() -> None:
    """Compute every fact again, and keep them."""
    facts = {name: dict(FACTS[name]()) for name in FACTS}
    write_text(EXACT, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def write_index(measured: Measured) -> str:
    """Return the list of the studies."""
    lines = [
        f"- [{STUDIES[name].question}]({name}.md), {len(comparison.trials)} trials, `{comparison.signature}`"
        for name, comparison in measured.items()
    ]
    waiting = [
        f"- {study.question} `clockhands study {name}`" for name, study in STUDIES.items() if name not in measured
    ]
    ready = ["", "Ready, and not run yet:", "", *waiting] if waiting else []
    calibration = "- [Does the comparison itself tell the truth?](calibration.md)"
    return "\n".join(["# Studies", "", *lines, calibration, *ready, ""])


def write_pictures() -> None:
    """Write the picture of every study as SVG."""
    from clockhands.report.figures import draw, make_file

    for name, comparison in read_measured().items():
        figure = draw_study(STUDIES[name], comparison)
        write_text(HERE / "figures" / f"{name}.svg", make_file(draw(figure, name)))


def give(comparison: Comparison, folder: Path) -> None:
    """Write a comparison into a new folder, so that the trials which it does not have yet can be run there.

    Raises UsageError if there is something in the folder already.
    """
    if (folder / PLAN).exists():
        raise UsageError(f"{folder} holds a comparison already; choose another folder")
    target = ComparisonFolder(folder)
    target.open(comparison.plan, comparison.costs)
    for trial in (*comparison.trials, *comparison.outside):
        target.add(trial)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what is to be done: at most one of the options, each with what it needs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true")
    choice.add_argument("--exact", action="store_true")
    choice.add_argument("--take", nargs=2, metavar=("NAME", "FOLDER"))
    choice.add_argument("--give", nargs=2, metavar=("NAME", "FOLDER"))
    choice.add_argument("--inspected", metavar="FILE")
    choice.add_argument("--encoder", metavar="MODEL")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Write, or check."""
    options = parse(arguments)
    if options.give is not None:
        name, folder = options.give
        give(read_kept(name), Path(folder))
        return 0
    if options.take is not None:
        name, folder = options.take
        keep(name, read_comparison(folder))
    if options.exact:
        write_facts()
    if options.inspected is not None:
        keep_inspected(Findings.load(options.inspected))
    if options.encoder is not None:
        keep_encoder(options.encoder)
    try:
        pages = write_pages()
    except (KeyError, ClockhandsError) as fault:
        named = f"no result, fact or comparison has the name {fault}" if isinstance(fault, KeyError) else fault
        print(f"the pages are left as they were: {named}", file=sys.stderr)
        return 1
    if options.check:
        stale = [path for path, text in pages.items() if not path.is_file() or path.read_text("utf8") != text]
        print("\n".join(f"{path} is not what generate.py writes" for path in stale), end="\n" if stale else "")
        return int(bool(stale))
    for path, text in pages.items():
        write_text(path, text)
    write_pictures()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
