"""What the page of ``clockhands explore`` costs in Chromium, with the translator of a tour: script time and size.

python benchmarks/exploring.py FOLDER      a folder that `clockhands tour` wrote; needs Node, Chromium and `npm ci`
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from timing import report

sys.path.insert(0, str(Path(__file__).parent.parent))  # `tests` are no package that is installed

from tests.exploring.node import build
from tests.exploring.test_browser import ask
from tests.report.chromium import Browser, find

from clockhands.exploring import find_tour_models, make_page, prepare_model

ROUNDS = 60
# `endIds` is emptied, so that every translation is as long as it is asked to be.
TRANSLATE = (
    "(() => {{ const model = models.numbers, rules = model.data.rules, ends = rules.endIds; rules.endIds = []; "
    "const ids = Array.from({{ length: {tokens} - 1 }}, (_, index) => 4 + (index % 20)).concat(2); "
    "const request = {{ ids, controls: {{}}, beam: {beam}, maxTokens: {tokens} }}; "
    "const times = Array.from({{ length: {rounds} }}, () => model.translate(request).milliseconds); "
    "rules.endIds = ends; return times.slice(10) }})()"
)
REPEAT = (
    "Array.from({{ length: {rounds} }}, () => {{ const start = performance.now(); {work}; "
    "return performance.now() - start }}).slice(10)"
)
WORK = {
    "a table of sinusoids, 512 x 512": "Engine.sinusoidTable({ rows: 512, width: 512, base: 1e4 })",
    "its similarity, 512 x 512": "Engine.similarityOfHands(512, Engine.computeFrequencies(256, 1e4))",
    "the kernel of a head": "models.numbers.kernel(0, 0, {})",
    "everything of a forward pass": (
        "models.numbers.forward({ ids: [4, 5, 6, 7, 2], controls: {}, targetIds: [4, 5, 2] })"
    ),
}


def main(folder: Path) -> None:
    runs = find_tour_models(folder, show=False, say=print)
    models = [prepare_model(run.load(), name, label) for (name, label), run in runs.items()]
    with tempfile.TemporaryDirectory() as place, Browser(find() or "chromium") as browser:
        build("--config", "tests/engine.vite.config.ts", "--outDir", place)
        page = Path(place) / "page.html"
        page.write_text(make_page(models, "clockhands explore"), encoding="utf8")
        browser.open(page, 1000)
        engine = (Path(place) / "engine.js").read_text(encoding="utf8")
        ask(browser, f"{engine}; globalThis.Engine = Engine; 0")
        ask(browser, "globalThis.models = Object.fromEntries(Engine.loadModels().map((model) => [model.id, model])); 0")
        results = {"MB of the page": round(page.stat().st_size / 1e6, 2)}
        for beam in (1, 4):
            for tokens in (10, 32):
                script = TRANSLATE.format(tokens=tokens, beam=beam, rounds=ROUNDS)
                results[f"{tokens} tokens, beam {beam}"] = summarise(ask(browser, script))
        for name, work in WORK.items():
            results[name] = summarise(ask(browser, REPEAT.format(work=work, rounds=ROUNDS)))
    report("exploring", "python benchmarks/exploring.py FOLDER", f"milliseconds of script, {ROUNDS - 10} each", results)


def summarise(times: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(times), 1), "low": round(min(times), 1), "high": round(max(times), 1)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
