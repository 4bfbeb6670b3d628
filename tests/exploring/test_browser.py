"""The models of a page in a real browser: what its script computes is what PyTorch computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clockhands.data import Pair, encode_texts
from clockhands.exploring.controls import Controls, translate_controlled
from clockhands.exploring.model_data import ExplorerModel, describe_model
from clockhands.exploring.page import find_tour_models, prepare_model
from clockhands.model import TokenBatch
from clockhands.runs import Run
from tests.exploring.engine import ask, open_page
from tests.report.chromium import Browser

HALF, SINGLE = 1e-2, 1e-5
"""The largest error of a logit, in standard deviations of the logits, with weights of half and of single precision."""


def find_texts(model: ExplorerModel) -> tuple[list[str], list[str]]:
    pairs = model.data["heldOut"]
    return [pair["source"] for pair in pairs], [pair["target"] for pair in pairs]


@torch.no_grad()
def measure_error(browser: Browser, run: Run, model: ExplorerModel, count: int) -> float:
    """The largest error of a logit in standard deviations, over the first texts with their translations."""
    sources, targets = (texts[:count] for texts in find_texts(model))
    ids, wanted = encode_texts(run.tokenizers.source, sources), encode_texts(run.tokenizers.target, targets)
    requests = [{"ids": row, "controls": {}, "targetIds": target} for row, target in zip(ids, wanted, strict=True)]
    name = json.dumps(model.data["id"])
    theirs = ask(
        browser, f"{json.dumps(requests)}.map((request) => Array.from(models[{name}].forward(request).logits.values))"
    )
    assert ask(browser, f"{json.dumps(sources)}.map((text) => models[{name}].encodeText(text).ids)") == ids
    worst = 0.0
    for row, target, values in zip(ids, wanted, theirs, strict=True):
        transformer = run.model.transformer
        states = transformer.decode(
            TokenBatch(torch.tensor([[1, *target[:-1]]])), transformer.encode(TokenBatch(torch.tensor([row])))
        )
        logits = transformer.output(states).flatten()
        worst = max(worst, float((torch.tensor(values) - logits).abs().max() / logits.std()))
    return worst


def translate(browser: Browser, model: ExplorerModel, beam: int) -> list[str]:
    """The texts that the page writes for all held-out sentences."""
    name = json.dumps(model.data["id"])
    texts: list[str] = ask(
        browser,
        f"models[{name}].heldOut.map(({{ source }}) => models[{name}].translate("
        f"{{ ids: models[{name}].encodeText(source).ids, controls: {{}}, beam: {beam} }}).text)",
    )
    return texts


def count_in_worker(browser: Browser, model: ExplorerModel, controls: dict[str, Any]) -> dict[str, Any]:
    """What a worker counts over all held-out sentences; the last progress has to be the count itself."""
    name, told = json.dumps(model.data["id"]), json.dumps(controls)
    result: dict[str, Any] = ask(
        browser, f"(globalThis.worker ??= new Engine.EngineWorker()).evaluateHeldOut({name}, {told})"
    )
    return result


def test_a_page_computes_what_pytorch_computes(translator: Run, engine: str, browser: Browser, tmp_path: Path) -> None:
    """Logits, texts of greedy and beam search, and counts under every control, on a small translator."""
    model = prepare_model(translator, "small", "small")
    open_page(browser, engine, [model], tmp_path)
    assert measure_error(browser, translator, model, 20) < HALF
    sources, _ = find_texts(model)
    for beam in (1, 4):
        (written,) = translate_controlled(translator, sources, [Controls()], beam)
        assert translate(browser, model, beam) == [translation.text for translation in written]
    for count in model.data["measured"]:
        counted = count_in_worker(browser, model, count["controls"])
        # Rounded weights write a wrong text of a changed model otherwise now and then, with another confidence.
        assert abs(counted.pop("confidence") - count["confidence"]) < 2e-2, count["name"]
        assert counted == {"right": count["right"], "done": count["of"], "of": count["of"]}, count["name"]
    assert browser.faults() == []


def test_a_page_with_whole_weights_is_as_exact_as_single_precision(
    translator: Run, engine: str, browser: Browser, tmp_path: Path
) -> None:
    prepared = prepare_model(translator, "small", "small")
    pairs = [Pair(**pair) for pair in prepared.data["heldOut"]]
    whole = describe_model(translator, "whole", "whole", "", pairs, dtype="float32")
    whole.data["measured"] = prepared.data["measured"]
    open_page(browser, engine, [whole], tmp_path)
    assert measure_error(browser, translator, whole, 20) < SINGLE
    for count in whole.data["measured"]:
        counted = count_in_worker(browser, whole, count["controls"])
        assert abs(counted["confidence"] - count["confidence"]) < 1e-3, count["name"]


def test_the_worker_stops_counting_when_nobody_waits_and_names_what_is_wrong(
    translator: Run, engine: str, browser: Browser, tmp_path: Path
) -> None:
    open_page(browser, engine, [prepare_model(translator, "small", "small")], tmp_path)
    ask(browser, "globalThis.worker = new Engine.EngineWorker(); 0")
    stopped = ask(
        browser,
        "(() => { const stop = new AbortController(); const count = worker.evaluateHeldOut('small', {}, "
        "{ signal: stop.signal }); stop.abort(); return count.then(() => 'counted', (fault) => fault.name) })()",
    )
    assert stopped == "AbortError"
    for call, said in (
        ("worker.evaluateHeldOut('large', {})", "There is no model large on this page."),
        ("worker.evaluateHeldOut('small', { base: 0.5 })", "A base of 0.5 makes no progression of wavelengths"),
        ("worker.translate('small', { ids: [], controls: {} })", "There is no text to translate."),
    ):
        assert ask(browser, f"{call}.then(() => '', (fault) => fault.message)").startswith(said)
    written = "worker.translate('small', { ids: models.small.encodeText('a dog bit Tom').ids, controls: {} })"
    assert ask(browser, f"{written}.then((one) => one.text)") == ask(
        browser, "models.small.translate({ ids: models.small.encodeText('a dog bit Tom').ids, controls: {} }).text"
    )


@pytest.mark.slow
def test_the_tours_models_are_pytorchs_on_200_sentences(
    engine: str, browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also the size of the page."""
    runs = find_tour_models(tmp_path / "tour", show=False, say=lambda text: None)
    models = [prepare_model(run.load(), name, label) for (name, label), run in runs.items()]
    open_page(browser, engine, models, tmp_path)
    assert (tmp_path / "page.html").stat().st_size < 2.5e6
    for run, model in zip(runs.values(), models, strict=True):
        sources, _ = find_texts(model)
        error = measure_error(browser, run, model, 200)
        for beam in (1, 4):
            (written,) = translate_controlled(run, sources, [Controls()], beam)
            assert translate(browser, model, beam) == [translation.text for translation in written]
        with capsys.disabled():
            print(f"{model.data['label']}: logits off by {error:.1e} standard deviations")
        assert error < HALF
        for count in model.data["measured"]:
            assert count_in_worker(browser, model, count["controls"])["right"] == count["right"], count["name"]
