/** Language models and recorded models in a real Chromium. */

import type { Browser, Page } from "puppeteer-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { RecordedData } from "../../src/engine/recorded";
import { RecordedModel } from "../../src/engine/recorded";
import { readVectors } from "../engine/vectors";
import { formatNumber } from "../../src/ui/words";
import { HAS_CHROMIUM, findSerious, openPage, readTexts, rest, startBrowser, writePage } from "./page";

const WEIGHTS = [1, 0, 0, 0.25, 0.75, 0, 0.5, 0.125, 0.375];
const data: RecordedData = {
  id: "theirs",
  label: "theirs",
  task: "Queries and keys are rotated.",
  reason: "A page runs models of Clockhands alone.",
  config: { ...readVectors("rope").data.config, kind: "recorded", dModel: 4, heads: 1, encoderLayers: 1, decoderLayers: 0 },
  scheme: { name: "rope", options: { layout: "half", base: 100 }, combine: "add", frequencies: [1, 0.1] },
  applicable: { encoder: ["positions", "offset", "base", "stoppedHand"], decoder: [] },
  sentences: [{ text: "Tom bit him", tokens: ["Tom", " bit", " him"].map((text, id) => ({ id, text, special: false })) }],
  tensors: { "sentence.0": { offset: 0, shape: [1, 1, 3, 3] } },
  weights: { element: "explorer-weights-theirs", type: "float32" },
};
const rotating = readVectors("continuing/rope").model;
const recorded = { data, numbers: Float32Array.from(WEIGHTS) };

it("computes the kernel of rotation and the attention as it was recorded", () => {
  const model = new RecordedModel(data, recorded.numbers);
  const { distances, values } = model.kernel(0, 0, { base: 100 })!;
  expect(values[distances.indexOf(3)]).toBeCloseTo((Math.cos(3) + Math.cos(0.3)) / 2, 6);
  expect(model.frequencies({ base: 4, stoppedHand: 0 })).toEqual([0, 0.5]);
  expect([...model.readAttention(0)[0]!.weights]).toEqual(WEIGHTS);
  expect(() => model.kernel(0, 0, { loudness: 2 })).toThrow("has no use for a loudness");
});

describe.skipIf(!HAS_CHROMIUM)("the page in Chromium", () => {
  let browser: Browser;
  let address: string;
  const faults: string[] = [];
  const open = (state: string, width = 1280): Promise<Page> => openPage(browser, `${address}#${state}`, width, faults);

  beforeAll(async () => {
    browser = await startBrowser();
    address = writePage(["continuing/sinusoidal", "continuing/rope"], [recorded]);
  }, 60_000);
  afterAll(() => browser?.close());

  it("shows a recorded model, whose hands turn and whose attention stays", async () => {
    const page = await open("model=theirs");
    expect(await readTexts(page, ".dial small")).toEqual(["6.28", "62.8"]);
    expect(await page.$eval("canvas.matrix", (canvas) => canvas.getAttribute("aria-label"))).toContain("“Tom” to “Tom”: 1");
    await page.focus("canvas.matrix");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowRight");
    await page.select(".sliders select", "0");
    await rest(page);
    expect((await readTexts(page, ".readout"))[0]).toBe("From “bit” to “bit”: weight 0.75.");
    expect((await readTexts(page, ".dial small"))[0]).toBe("∞");
    expect(new URL(page.url()).hash).toContain("stopped=0");
    await page.close();
  });

  it("shows as many hands as a head of a live model rotates, and no words that are trained without positions", async () => {
    const page = await open("model=rope");
    const { frequencies } = rotating.scheme;
    expect(await readTexts(page, ".dial small")).toEqual(frequencies.map((omega) => formatNumber((2 * Math.PI) / omega)));
    expect((await readTexts(page, ".sliders .note"))[0]).toContain("position enters its attention alone");
    await page.close();
  });

  it("continues a text, and says how the positions change that", async () => {
    const page = await open("text=Tom bit&frozen=0");
    expect((await readTexts(page, ".compare .verdict"))[0]).toContain("continuation");
    expect(await readTexts(page, ".choice legend")).toEqual(["When", "What"]);
    await page.close();
  });

  it.each(["model=theirs", "text=Tom bit"])("gives axe no serious finding, and scrolls to no side: %s", async (state) => {
    const page = await open(state, 360);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
    expect(await findSerious(page)).toEqual([]);
    await page.close();
  });

  it("reports no error in all of this", () => {
    expect(faults).toEqual([]);
  });
});
