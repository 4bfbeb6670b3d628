"""Write the pages of the catalogue: docs/schemes/NAME.md and NAME.svg, README.md (the table) and index.html (filters).

The pictures are not kept in the repository: `make docs` draws those that are missing.

    python docs/make_schemes.py [--time [NAME ...]]

``--time`` measures anew what each scheme costs, or those that are named, and keeps it in
src/clockhands/scheme_pages/costs.json.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "tools" / "answers")]

from docs.scheme_advice import write_advice  # noqa: E402
from docs.tools.catalogue.catalogue_page import make_catalogue_page  # noqa: E402
from scheme_results import RULE  # noqa: E402

from clockhands import positions  # noqa: E402
from clockhands.attention import attend  # noqa: E402
from clockhands.errors import PositionError  # noqa: E402
from clockhands.files import write_text  # noqa: E402
from clockhands.report.figures import draw, make_file  # noqa: E402
from clockhands.scheme_pages.page import COSTS, Page, make_pages, read_costs  # noqa: E402
from clockhands.scheme_pages.picture import (  # noqa: E402
    DRAWN_WITH,
    make_figure,
    make_positions,
)
from clockhands.scheme_pages.variants import (  # noqa: E402
    LEFT_OUT,
    VARIANTS,
    SchemeVariant,
    complete_options,
)
from clockhands.schemes import CATALOGUE, Sizes, build  # noqa: E402

FOLDER = ROOT / "docs" / "schemes"
LENGTH, HEADS, HEAD_DIM = 512, 8, 64
SETTING = f"attention alone, forward, batch 1, {LENGTH} tokens, {HEADS} heads of {HEAD_DIM}, float32, one CPU thread"
VARIANT_COLUMNS = ("variant", "kind", "of", "options", "idea", "source", "used by")
COLUMNS = (
    "scheme",
    "enters",
    "invariant",
    "length",
    "extrapolates",
    "learned",
    "parameters",
    "time",
    "known as",
    "used by",
)


UNFUSED = "no fused kernel computes that, so all logits are written to memory"
WHY_SLOW = {
    "rerope": "logits are computed twice, for near keys and for far ones, and chosen by distance",
    "self-extend": "logits are computed twice, for near keys and for far ones, and chosen by distance",
    "dual-chunk": "logits are computed three times, and chosen by the chunks of query and key",
    "liere": "the rotation of each token is the exponential of a matrix, and not of 2 × 2 blocks",
    "shaw": "each query is multiplied with a vector for each distance, and the weights with another; " + UNFUSED,
    "cope": "all logits are needed before the gates can be added up, and each then looks up a vector; " + UNFUSED,
    "dape": "a network reads the logits of all heads for every pair of tokens; " + UNFUSED,
    "deberta": "two more products, of content with a table of distances, are looked up for every pair; " + UNFUSED,
    "inkling": "each token has a number of its own for each distance, looked up for every pair; " + UNFUSED,
    "path": "each key is multiplied by one matrix for every token between it and the query; " + UNFUSED,
    "stick-breaking": "a weight is what the weights of nearer keys leave, which is a sum along the keys; " + UNFUSED,
    "transformer-xl": "a second product, of each query with a vector for each distance, is looked up; " + UNFUSED,
    "tupe": "a second product, of positions' own queries and keys, is added to every logit; " + UNFUSED,
}
"""Why a scheme takes more than three times the time of no position, by its name."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--time", nargs="*", choices=CATALOGUE, help="measure costs anew and draw: all, or those of these"
    )
    names = parser.parse_args().time
    if names is not None:
        known = read_costs()["times the cost of none"] | measure_costs(names or list(CATALOGUE))
        costs = {name: known[name] for name in CATALOGUE if name in known}
        write_text(COSTS, json.dumps({"setting": SETTING, "times the cost of none": costs}, indent=1) + "\n")
        read_costs.cache_clear()
    everything = make_pages()
    for page in everything:
        write_text(FOLDER / f"{page.name}.md", markdown(page))
    draw_pictures(anew=not names)
    rows = [row(page) for page in everything]
    write_text(FOLDER / "README.md", overview(rows))
    write_text(FOLDER / "index.html", filters(rows))


def draw_pictures(*, anew: bool = False) -> None:
    """Draw the pictures of all schemes, or those that are missing; they are not kept in the repository."""
    for name in CATALOGUE:
        picture = FOLDER / f"{name}.svg"
        if anew or not picture.is_file():
            write_text(picture, make_file(draw(make_figure(name), name)))


def measure_costs(names: list[str], rounds: int = 45) -> dict[str, float]:
    """Median over interleaved rounds of CPU time of these schemes over that of none."""
    names = list(dict.fromkeys(["none", *names]))
    torch.set_num_threads(1)
    width = HEADS * HEAD_DIM
    taken: dict[str, list[float]] = {name: [] for name in names}
    sizes = Sizes(width, width, HEADS, HEAD_DIM)
    schemes = {name: build(CATALOGUE, name, sizes, complete_options(name)).eval() for name in names}
    q, k, v = (torch.randn(1, HEADS, LENGTH, HEAD_DIM) for _ in range(3))
    x = torch.randn(1, LENGTH, width)
    refused = set()
    for turn in range(-1, rounds):
        # What ran before leaves its traces in caches and allocator, so that the order is another in every round.
        for name in random.Random(turn).sample(names, len(names)):
            scheme = schemes[name]
            pos = (
                make_positions(scheme, 1, LENGTH)
                if scheme.declares.axes != 2
                else positions.make_grid(1, 16, LENGTH // 16)
            )
            start = time.process_time()
            try:
                with torch.no_grad():
                    scheme.encode(pos)
                    own = scheme.locate(x, pos, None)
                    here = pos if own is None else own
                    attend(scheme, q, k, v, here, here, causal=True)
            except PositionError:
                refused.add(name)
            if turn >= 0:
                taken[name].append(time.process_time() - start)
    ratios = {name: [a / b for a, b in zip(taken[name], taken["none"], strict=True)] for name in names}
    return {name: round(statistics.median(values), 2) for name, values in ratios.items() if name not in refused}


def row(page: Page) -> tuple[str, ...]:
    """A line of the overview."""
    facts = page.declares
    return (
        page.name,
        ", ".join(page.enters) or "nowhere",
        "yes" if facts["translation_invariant"] else "no",
        "any" if page.extrapolates else describe_limit(facts["max_length"], facts["beyond"]),
        "yes" if page.extrapolates else "no",
        "yes" if page.parameters else "no",
        f"{page.parameters:,}",
        "" if page.cost is None else f"{page.cost:.2f}",
        "; ".join(page.peers),
        ", ".join(page.models),
    )


def describe_limit(longest: int | None, beyond: str) -> str:
    """Say how far the positions of a scheme go, and what becomes of those beyond."""
    end = "its window" if longest is None else f"{longest:,}"
    return f"{end}, then {'an error' if beyond == 'raise' else 'read as the last one'}"


def overview(rows: list[tuple[str, ...]]) -> str:
    """The table in Markdown."""
    lines = ["# Every scheme", "", "Written by `docs/make_schemes.py`; `index.html` is this table with filters.", ""]
    lines += [table_line(COLUMNS), table_line(["---"] * len(COLUMNS))]
    lines += [table_line([f"[{name}]({name}.md)", *rest]) for name, *rest in rows]
    lines += ["", f"Parameters: d_model 512, 8 heads, one instance. Time: of {SETTING}, over no position.", ""]
    lines += [
        "Extrapolates: is defined beyond any length; how well models read there, [a study](../studies/how-far.md) asks."
    ]
    lines += ["", "## Variants", "", "Spectra, forms and transforms that have a name of their own."]
    lines += ["", table_line(VARIANT_COLUMNS), table_line(["---"] * len(VARIANT_COLUMNS)), *map(variant_line, VARIANTS)]
    lines += ["", "## Which results are told", "", f"On the page of a scheme, under *When to take it*. {RULE}"]
    lines += ["", "## Left out, and why", "", *(f"- **{name}**: {why}." for name, why in LEFT_OUT.items()), ""]
    return "\n".join(lines)


def table_line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def markdown(page: Page) -> str:
    """A scheme's own page."""
    scope = "every layer" if page.per_layer else "the whole stack"
    lines = [f"# {page.name}", "", f"*{page.title}*", "", page.summary, "", f"$$ {page.equation} $$", ""]
    lines += [f"![{page.name}: what it does by distance and by position]({page.name}.svg)", ""]
    lines += [f"Drawn: {make_figure(page.name).caption}.", ""]
    lines += ["With these options a short picture shows what it does.", ""] if page.name in DRAWN_WITH else []
    lines += [f"- **Enters at** {', '.join(page.enters) or 'nothing'}", f"- **Source** {page.source}"]
    lines += [f"- **Known as** {'; '.join(page.peers) or 'nothing else'}"]
    lines += [f"- **Compared with** its oracle in float64 (`{find_oracle(page.name)}`)"]
    lines += [f"- **Used by** {', '.join(page.models) or 'no widely known model'}"]
    lines += [f"- **Learns** {page.parameters:,} parameters for {scope} (d_model 512, 8 heads)"]
    if page.cost is not None:
        why = f"; {WHY_SLOW[page.name]}" if page.name in WHY_SLOW else ""
        lines += [f"- **Costs** {page.cost:.2f} times the time of no position ({SETTING}){why}"]
    lines += ["", "## Example", "", "```python", page.example, "```"]
    lines += ["", *write_advice(page)]
    if page.variants:
        lines += ["", "## Variants", "", table_line(VARIANT_COLUMNS), table_line(["---"] * len(VARIANT_COLUMNS))]
        lines += [variant_line(variant) for variant in page.variants]
    lines += ["", "## Options", "", "| option | takes | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [table_line([f"`{o.name}`", bar(o.takes), f"`{o.default!r}`", bar(o.meaning)]) for o in page.options]
    lines += ["", "## Declares", "", *(f"- `{fact}`: {value}" for fact, value in page.declares.items())]
    lines += ["", "## What the laws say", ""]
    lines += ["It keeps every law of `tests/schemes/test_laws.py`" + (", except:" if page.excuses else "."), ""]
    lines += [f"- *{law}*: {reason}." for law, reason in page.excuses.items()]
    return "\n".join(lines).rstrip() + "\n"


def find_oracle(name: str) -> str:
    """The file of a scheme's oracle, which computes the same from its paper, slowly."""
    files = sorted((ROOT / "tests" / "schemes" / "oracles").glob("*.py"))
    registered = re.compile(rf'@oracle\(\s*"{re.escape(name)}"')
    return next(str(path.relative_to(ROOT)) for path in files if registered.search(path.read_text("utf8")))


def variant_line(variant: SchemeVariant) -> str:
    """A line of the table of variants."""
    options = " ".join(f"{key}={value}" for key, value in variant.options.items())
    cells = [variant.name, variant.kind, variant.of, f"`{options}`" if options else "", variant.title, variant.source]
    return table_line([*map(bar, cells), ", ".join(variant.models)])


def bar(text: str) -> str:
    """Text that may stand in a cell of a table."""
    return text.replace("|", "\\|").replace("``", "`")


def filters(rows: list[tuple[str, ...]]) -> str:
    """The table as one page whose rows are filtered by what is typed and chosen."""
    return make_catalogue_page(COLUMNS, rows, ("enters", "invariant", "extrapolates", "learned", "used by"))


if __name__ == "__main__":
    main()
