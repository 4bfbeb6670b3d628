import type { Browser, Page } from "puppeteer-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Controls } from "../../src/engine/api";
import { readVectors } from "../engine/vectors";
import { cutWords } from "../../src/ui/words";
import { BROWSERS, findSerious, openPage, readTexts, rest, startBrowser, writePage } from "./page";

const TOM = ["Tom", "bit", "a", "dog"];
const { model } = readVectors("sinusoidal");

/** What the model writes for words in this order, computed here and not in the page. */
function write(words: readonly string[], controls: Controls = {}, beam = 1): string {
  const { ids, tokens } = model.encodeText("Tom bit a dog");
  const ordered = words.map((word) => ids[tokens.findIndex((token) => token.text.trim() === word)]!);
  return cutWords(model.translate({ ids: [...ordered, ...ids.slice(words.length)], controls, beam }).text);
}

/** What Firefox cannot be told by WebDriver BiDi: a scheme of colours, and that motion is not wanted. */
const emulates = (name: string) => name === "chrome";

describe.skipIf(BROWSERS.length === 0).each(BROWSERS)("the page in %s", (name) => {
  let browser: Browser;
  let address: string;
  const faults: string[] = [];
  const open = (state = "", width = 1280): Promise<Page> => openPage(browser, `${address}#${state}`, width, faults);
  const words = async (page: Page) => (await readTexts(page, ".chips .word")).slice(0, 4);
  const positions = async (page: Page) => (await readTexts(page, ".chips .position")).slice(0, 4).map(Number);
  const written = async (page: Page) => (await readTexts(page, ".written .text")).map((text) => (text === "(nothing)" ? "" : text));
  const press = (page: Page, text: string) =>
    page.$$eval("button", (buttons, wanted) => buttons.find((button) => button.textContent!.trim().startsWith(wanted))!.click(), text);

  beforeAll(async () => {
    browser = await startBrowser(name);
    address = writePage(["sinusoidal", "none", "unscaled"]);
  }, 60_000);
  afterAll(() => browser?.close());

  it("loads without an error or a request, and writes what the model writes", async () => {
    const page = await open();
    expect(faults).toEqual([]);
    expect(await words(page)).toEqual(TOM);
    expect(await positions(page)).toEqual([0, 1, 2, 3]);
    expect(await written(page)).toEqual([write(TOM), write(TOM)]);
    expect(new URL(page.url()).hash).toBe("");
    await page.close();
  });

  it("translates what is typed, and marks a word that nobody knows", async () => {
    const page = await open();
    await page.click(".sentence input", { count: 3 });
    await page.keyboard.type("dog bit zyx");
    await rest(page);
    expect((await readTexts(page, ".chips .word")).slice(0, 3)).toEqual(["dog", "bit", "zyx?"]);
    expect(decodeURIComponent(new URL(page.url()).hash)).toContain("text=dog+bit+zyx");
    await page.close();
  });

  it("swaps words, and positions in their place, and takes both back", async () => {
    const page = await open();
    await press(page, "Swap “Tom”");
    await rest(page);
    expect(await words(page)).toEqual(["a", "dog", "bit", "Tom"]);
    expect(await written(page)).toEqual([write(TOM), write(["a", "dog", "bit", "Tom"])]);
    await press(page, "Undo all");
    await press(page, "Swap their positions");
    await rest(page);
    expect(await words(page)).toEqual(TOM);
    expect(await positions(page)).toEqual([3, 2, 0, 1]);
    expect((await written(page))[1]).toBe(write(TOM, { positions: [3, 2, 0, 1] }));
    await press(page, "Undo all");
    await press(page, "All at position 0");
    await rest(page);
    expect(await positions(page)).toEqual([0, 0, 0, 0]);
    expect((await written(page))[1]).toBe(write(TOM, { frozenAt: 0 }));
    await page.close();
  });

  it("moves a word, and gives a position away, by mouse and by keyboard", async () => {
    const page = await open();
    await page.$eval(".chips", (chips) => chips.scrollIntoView({ block: "center" }));
    const drag = async (from: string, to: string) => {
      const [start, end] = [await (await page.$(from))!.boundingBox(), await (await page.$(to))!.boundingBox()];
      await page.mouse.move(start!.x + 12, start!.y + 10);
      await page.mouse.down();
      await page.mouse.move(end!.x + 20, end!.y + 12, { steps: 5 });
      await page.mouse.up();
      await rest(page);
    };
    await drag(".chips li:nth-child(1) .word", ".chips li:nth-child(3) .word");
    expect(await words(page)).toEqual(["bit", "a", "Tom", "dog"]);
    await page.focus(".chips li:nth-child(3) .word");
    await page.keyboard.press("ArrowLeft");
    await rest(page);
    await page.keyboard.press("ArrowLeft");
    await rest(page);
    expect(await words(page)).toEqual(TOM);
    await drag(".chips li:nth-child(4) .position", ".chips li:nth-child(1) .word");
    expect(await positions(page)).toEqual([3, 1, 2, 3]);
    await page.focus(".chips li:nth-child(1) .position");
    await page.keyboard.press("ArrowUp");
    await page.keyboard.down("Shift");
    await page.keyboard.press("ArrowUp");
    await page.keyboard.up("Shift");
    await rest(page);
    expect(await positions(page)).toEqual([4.1, 1, 2, 3]);
    expect((await written(page))[1]).toBe(write(TOM, { positions: [4.1, 1, 2, 3] }));
    await page.focus(".chips li:nth-child(2) .position");
    await page.keyboard.press("Enter");
    await page.focus(".chips li:nth-child(3) .position");
    await page.keyboard.press("Enter");
    await rest(page);
    expect(await positions(page)).toEqual([4.1, 1, 1, 3]);
    const hint = async () => (await readTexts(page, ".chips + .hint"))[0];
    await page.click(".chips li:nth-child(4) .position");
    await rest(page);
    expect(await hint()).toMatch(/^Position 3 picked up/);
    await page.click(".chips li:nth-child(2) .word");
    await rest(page);
    expect(await positions(page)).toEqual([4.1, 3, 1, 3]);
    expect(await hint()).toBe("bit stands at position 3 too.");
    await page.click(".chips li:nth-child(4) .position");
    await page.keyboard.press("Escape");
    await rest(page);
    expect(await hint()).not.toContain("picked up");
    await page.close();
  });

  it("turns the hands by mouse and keyboard, and a word with them", async () => {
    const page = await open("clock=3");
    const place = () => page.$eval(".dial", (dial) => Number(dial.getAttribute("aria-valuenow")));
    await page.$eval(".dial canvas", (dial) => dial.scrollIntoView({ block: "center" }));
    const box = (await (await page.$(".dial canvas"))!.boundingBox())!;
    const at = (angle: number): [number, number] => [box.x + box.width / 2 + 20 * Math.sin(angle), box.y + box.height / 2 - 20 * Math.cos(angle)];
    await page.mouse.move(...at(3));
    await page.mouse.down();
    await page.mouse.move(...at(4));
    await page.mouse.move(...at(5));
    await page.mouse.up();
    await rest(page);
    // The mouse moves by whole pixels, of which one is 0.05 radians so near to the centre.
    expect(Math.abs((await place()) - 5)).toBeLessThan(0.15);
    await page.focus(".dial");
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowRight");
    await rest(page);
    expect(await place()).toBe(1);
    await page.select(".time select", "3");
    await page.focus(".dial");
    await page.keyboard.press("ArrowRight");
    await rest(page);
    expect(await positions(page)).toEqual([0, 1, 2, 4]);
    await page.close();
  });

  it("scrubs the hands, by mouse and keyboard, and whatever follows them", async () => {
    const page = await open("clock=3&token=1");
    const shown = () => page.$$eval(".dial", (dials) => dials.map((dial) => Number(dial.getAttribute("aria-valuenow"))));
    await page.$eval(".scrub input", (slider) => slider.scrollIntoView({ block: "center" }));
    const box = (await (await page.$(".scrub input"))!.boundingBox())!;
    await page.mouse.move(box.x + 2, box.y + box.height / 2);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2, { steps: 4 });
    await page.mouse.up();
    await rest(page);
    const [middle, ...others] = await shown();
    expect(Math.abs(middle! - 63 / 2)).toBeLessThan(2);
    expect(new Set([middle, ...others]).size).toBe(1);
    expect(await readTexts(page, ".scrub output")).toEqual([String(middle)]);
    expect((await positions(page))[1]).toBe(middle);
    await page.$eval(".scrub input", (slider) => {
      slider.value = "20.5";
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    });
    await page.focus(".scrub input");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.down("Shift");
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.up("Shift");
    await rest(page);
    expect((await shown())[0]).toBeCloseTo(21.4, 6);
    expect(new URL(page.url()).hash).toContain("clock=21.4");
    await page.close();
  });

  it("plays the hands four positions a second until it is stopped", async () => {
    const page = await open("clock=3");
    const place = () => page.$eval(".dial", (dial) => Number(dial.getAttribute("aria-valuenow")));
    const wait = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));
    await page.click(".play");
    await wait(1000);
    const played = await place();
    expect(await page.$eval(".play", (button) => button.getAttribute("aria-pressed"))).toBe("true");
    expect(played).toBeGreaterThan(4);
    expect(played).toBeLessThan(10);
    await page.click(".play");
    await rest(page); // The last frame before the click may still be on its way.
    const stopped = await place();
    await wait(300);
    expect(await place()).toBe(stopped);
    await page.close();
  });

  it.skipIf(!emulates(name))("lets the clock tick once a second where motion is not wanted", async () => {
    const page = await open("clock=3");
    const stopped = 3;
    const place = () => page.$eval(".dial", (dial) => Number(dial.getAttribute("aria-valuenow")));
    await page.emulateMediaFeatures([{ name: "prefers-reduced-motion", value: "reduce" }]);
    await page.click(".play");
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect(await place()).toBe(stopped);
    await page.waitForFunction((from) => Number(document.querySelector(".dial")!.getAttribute("aria-valuenow")) === Math.floor(from) + 1, { timeout: 3000 }, stopped);
    await page.close();
  });

  it("finds a head by keyboard, and adds its four terms up to the score", async () => {
    const page = await open("show=scores");
    await page.focus(".heads [aria-checked=true]");
    await page.keyboard.press("ArrowRight");
    await rest(page);
    expect(await readTexts(page, ".chosen h3")).toEqual(["Layer 1, head 2"]);
    const [sentence] = await readTexts(page, ".readout p");
    const score = sentence!.match(/score (\S+),/)![1]!;
    expect((await readTexts(page, ".readout p")).at(-1)).toBe(`The four terms add up to ${score}: the score.`);
    const { ids } = model.encodeText("Tom bit a dog");
    const { logits, queries, keys } = model.forward({ ids, controls: {} }).encoder.layers[0]!.self;
    expect(Number(score.replace("−", "-"))).toBeCloseTo(logits[queries * keys]!, 2);
    await page.click(".terms input");
    await rest(page);
    expect((await readTexts(page, ".readout p")).at(-1)).toContain("The chosen terms add up to");
    await page.close();
  });

  it("counts over the held-out sentences in the worker", async () => {
    const page = await open("loudness=0");
    await page.waitForFunction(() => [...document.querySelectorAll(".count")].every((count) => /\d+ of \d+ held-out/.test(count.textContent!)), { timeout: 10_000 });
    expect(await readTexts(page, ".count")).toHaveLength(2);
    await page.close();
  });

  it("writes by beam search where that is chosen, also when it comes back", async () => {
    const page = await open("frozen=0");
    await page.select(".search select", "3");
    await rest(page);
    const wanted = [write(TOM, {}, 3), write(TOM, { frozenAt: 0 }, 3)];
    expect(wanted).not.toEqual([write(TOM), write(TOM, { frozenAt: 0 })]);
    expect(await written(page)).toEqual(wanted);
    const other = await open(new URL(page.url()).hash.slice(1));
    expect(await written(other)).toEqual(wanted);
    await Promise.all([page.close(), other.close()]);
  });

  it("says why nothing is counted where no worker starts", async () => {
    const page = await browser.newPage();
    await page.evaluateOnNewDocument(() => {
      window.Worker = class {
        constructor() {
          throw new Error("workers are switched off");
        }
      } as unknown as typeof Worker;
    });
    await page.goto(address);
    await page.waitForFunction(() => document.querySelectorAll(".count .problem").length === 2);
    expect((await readTexts(page, ".count"))[1]).toBe("With the sliders as they are: The held-out sentences are not counted: This browser starts no worker: workers are switched off");
    await page.close();
  });

  it("comes back from its address exactly", async () => {
    const page = await open();
    await press(page, "Swap “Tom”");
    await page.$eval(".sliders input[type=range]", (slider) => {
      slider.value = "2";
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    });
    await page.focus(".heads [aria-checked=true]");
    await page.keyboard.press("ArrowDown");
    await rest(page);
    const { hash } = new URL(page.url());
    const other = await open(hash.slice(1));
    expect(new URL(other.url()).hash).toBe(hash);
    expect(await words(other)).toEqual(await words(page));
    expect(await written(other)).toEqual(await written(page));
    expect(await readTexts(other, ".control output")).toEqual(await readTexts(page, ".control output"));
    expect(await readTexts(other, ".chosen h3")).toEqual(["Layer 2, head 1"]);
    await Promise.all([page.close(), other.close()]);
  });

  it("copies the link and the pictures, or says where they are", async () => {
    const page = await open("loudness=2");
    await press(page, "Copy link");
    await page.waitForFunction(() => /link/i.test(document.querySelector(".said")!.textContent!));
    for (const figure of [".hands", ".attention"]) {
      await page.$eval(`${figure} .head button`, (button) => button.click());
      await page.waitForFunction(() => /^The picture is (copied|saved as)/.test(document.querySelector(".said")!.textContent!));
      await page.waitForFunction(() => document.querySelector(".said")!.textContent === "");
    }
    await page.close();
  });

  it("begins with three questions, and shows the live model on the first screen", async () => {
    for (const [width, height] of [[1440, 900], [768, 1024]] as const) {
      const page = await open("", width);
      await page.setViewport({ width, height });
      await rest(page);
      expect(await page.$$eval(".questions h2 + ol button", (buttons) => buttons.map((button) => button.textContent))).toEqual([
        "What becomes of “Tom bit a dog” without positions?",
        "Why are words multiplied by √d?",
        "What does the base do?",
      ]);
      const shown = width > 1000 ? ".written .text" : ".chips .position";
      const tops = await page.$$eval(shown, (texts) => texts.map((text) => text.getBoundingClientRect().top));
      expect(Math.max(...tops)).toBeLessThan(height - 30);
      await page.close();
    }
  });

  it("gives back at the end of a scene what was there before it", async () => {
    const page = await open("base=100");
    await press(page, "Swap “Tom”");
    await rest(page);
    const { hash } = new URL(page.url());
    for (const end of ["Done", "Leave", "Escape"]) {
      await page.click("#ask-scale");
      await rest(page);
      for (let step = 0; step < (end === "Done" ? 2 : 1); step++) await page.click("#scene-next");
      await rest(page);
      expect(new URL(page.url()).hash).not.toBe(hash);
      if (end === "Escape") await page.keyboard.press("Escape");
      else await press(page, end);
      await rest(page);
      expect(new URL(page.url()).hash).toBe(hash);
      expect(await page.$eval(".said", (said) => said.textContent)).toBe("Everything is as it was before the question.");
      expect(await page.evaluate(() => document.activeElement!.id)).toBe("ask-scale");
    }
    await page.close();
  });

  it("goes on from one question to the next, and still knows what was before the first", async () => {
    const page = await open("loudness=2");
    await page.click("#ask-scale");
    await rest(page);
    for (let step = 0; step < 2; step++) await page.click("#scene-next");
    await rest(page);
    await press(page, "Next question");
    await rest(page);
    expect((await readTexts(page, ".where"))[0]).toMatch(/^What does the base do\?/);
    await press(page, "Leave");
    await rest(page);
    expect(new URL(page.url()).hash).toContain("loudness=2");
    await page.close();
  });

  it("ends the first three questions with the third", async () => {
    const page = await open("scene=why-10000&step=3");
    expect((await readTexts(page, ".where span"))[0]).toBe("4 of 4");
    expect(await readTexts(page, ".strip-keys button")).toEqual(["←", "Done"]);
    const other = await open("scene=scale&step=2");
    expect(await readTexts(other, ".strip-keys button")).toEqual(["←", "Done", "Next question →"]);
    await Promise.all([page.close(), other.close()]);
  });

  it("plays the step of an address that names nothing else, with the model of that step", async () => {
    const page = await open("scene=order-at-all&step=3");
    expect(await page.$eval(".models select", (select) => (select as HTMLSelectElement).selectedIndex)).toBe(1);
    expect(await words(page)).toEqual(["a", "dog", "bit", "Tom"]);
    const kept = await open("scene=scale&step=1&model=sinusoidal");
    expect(await kept.$eval(".toggle input", (toggle) => (toggle as HTMLInputElement).checked)).toBe(true);
    await Promise.all([page.close(), kept.close()]);
  });

  it("does not tell what a step sets where the reader has set something else, and goes back to it", async () => {
    const page = await open("scene=why-10000&step=1");
    const told = async () => (await readTexts(page, ".strip-text"))[0]!;
    expect(await told()).toContain("A base of 10");
    await page.click(".toggle input");
    await rest(page);
    expect(await told()).toContain("You changed something else than this step does");
    expect(await told()).not.toContain("A base of 10");
    await press(page, "Back to the step");
    await rest(page);
    expect(await told()).toContain("A base of 10");
    await page.close();
  });

  it.each([[360, 740, 0.42], [768, 1024, 0.3], [1440, 900, 0.3]])("covers little of a window of %i × %i px while a question is asked", async (width, height, most) => {
    const page = await open("", width);
    await page.setViewport({ width, height });
    const heights = new Set<number>();
    for (const [scene, steps] of [["order-at-all", 4], ["scale", 2], ["why-10000", 3]] as const) {
      await page.click(`#ask-${scene}`);
      for (let step = 0; step <= steps; step++) {
        await rest(page);
        const { share, hidden } = await page.$eval(".strip", (strip) => {
          const text = strip.querySelector(".strip-text")!;
          return { share: strip.getBoundingClientRect().height / innerHeight, hidden: text.scrollHeight - text.clientHeight };
        });
        heights.add(share);
        // Only a step must be seen whole; the answer at the end may be scrolled inside.
        expect([scene, step, share < most || share, step === steps ? 0 : hidden]).toEqual([scene, step, true, 0]);
        if (step < steps) await page.click("#scene-next");
      }
      await page.keyboard.press("Escape");
      await rest(page);
    }
    expect(heights.size).toBe(1);
    await page.close();
  });

  it("says that the model is not trained again wherever a control changes it, and only there", async () => {
    const page = await open("scene=scale&model=sinusoidal");
    const told = async () => (await readTexts(page, ".strip-text")).join().includes("not trained again");
    expect(await told()).toBe(false);
    const other = await open("scene=why-10000&step=1");
    expect((await readTexts(other, ".strip-text")).join()).toContain("not trained again");
    await Promise.all([page.close(), other.close()]);
  });

  it("shows the words of Next under the mouse", async () => {
    const page = await open("scene=scale&model=sinusoidal");
    await page.hover("#scene-next");
    await rest(page);
    const [ink, ground, hovered] = await page.$eval("#scene-next", (button) => {
      const { color, backgroundColor } = getComputedStyle(button);
      return [color, backgroundColor, button.matches(":hover")];
    });
    expect(hovered).toBe(true);
    const brightness = (colour: string) => {
      const [red, green, blue] = colour.match(/\d+/g)!.map((part) => (Number(part) / 255) ** 2.2) as [number, number, number];
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const [low, high] = [brightness(ink as string), brightness(ground as string)].sort((one, other) => one - other) as [number, number];
    expect((high + 0.05) / (low + 0.05)).toBeGreaterThan(4.5);
    await page.close();
  });

  it("says of nonsense that it is outside of what the model was trained on, and names unknown words", async () => {
    const page = await open("text=Tom+zyx+a+qux");
    expect(await readTexts(page, "p.outside")).toEqual([expect.stringMatching(/^This sentence is outside of what the model was trained on\. It does not know “zyx” and “qux”\./)]);
    expect((await readTexts(page, ".written h3")).every((title) => title.endsWith(": no translation"))).toBe(true);
    const known = await open();
    expect(await readTexts(known, "p.outside")).toEqual([]);
    expect((await readTexts(known, ".written h3")).join()).not.toContain("no translation");
    await Promise.all([page.close(), known.close()]);
  });

  it("says of known words in an order that training never showed where that is", async () => {
    const size = model.vocabulary.length;
    const { ids } = model.encodeText("Tom bit a dog");
    const [tom, bit, a, dog] = ids as [number, number, number, number];
    const write = (pairs: [number, number][], columns: number, rows: number) => {
      const bits = Array.from({ length: 4 * Math.ceil((rows * columns) / 4) }, () => 0);
      pairs.forEach(([row, column]) => (bits[row * columns + column] = 1));
      return Array.from({ length: bits.length / 4 }, (_, digit) => parseInt(bits.slice(4 * digit, 4 * digit + 4).join(""), 2).toString(16)).join("");
    };
    const next = write([[size, tom], [tom, bit], [bit, a], [a, dog], [dog, size]], size + 1, size + 1);
    const before = write([[tom, bit], [tom, a], [tom, dog], [bit, a], [bit, dog], [a, dog]], size, size);
    const place = writePage(["sinusoidal"], [], { shortest: 4, longest: 4, next, before });
    const page = await openPage(browser, place, 1280, faults);
    expect(await readTexts(page, "p.outside")).toEqual([]);
    await press(page, "Swap “Tom”");
    await rest(page);
    expect(await readTexts(page, "p.outside")).toEqual([expect.stringMatching(/^In this order the sentence is outside .* comes right after “dog”\./)]);
    const titles = await readTexts(page, ".written h3");
    expect([titles[0]!.endsWith("no translation"), titles[1]!.endsWith("no translation")]).toEqual([false, true]);
    await page.close();
  });

  it.skipIf(name !== "firefox")("draws the rails of its sliders in the page's own colours", async () => {
    const page = await open();
    const [rail, wash] = await page.$eval(".sliders input[type=range]", (slider) => {
      const shown = document.createElement("i");
      shown.style.background = "var(--wash)";
      slider.parentElement!.append(shown);
      return [getComputedStyle(slider, "::-moz-range-track").backgroundColor, getComputedStyle(shown).backgroundColor];
    });
    expect(rail).toBe(wash);
    await page.close();
  });

  it("offers no choice where there is only one", async () => {
    const page = await openPage(browser, writePage(["none"]), 1280, faults);
    expect(await page.$(".models select")).toBeNull();
    expect((await readTexts(page, ".models"))[0]).toContain(readVectors("none").data.label);
    expect(await page.$$(".sliders input[type=range]")).toHaveLength(0);
    const both = await open();
    expect(await both.$$(".models option")).toHaveLength(3);
    await Promise.all([page.close(), both.close()]);
  });

  it("needs no sideways scrolling after it was made narrower", async () => {
    // The examples and the translation of a sentence may be one word longer than a phone is wide.
    const page = await open(`width=512&length=512&text=${"Donaudampfschifffahrt".repeat(5)}`, 1440);
    await page.$$eval(".examples button", (buttons) => buttons.forEach((button) => (button.textContent = "siebenundsiebzigtausendsiebenhundertsechzehn")));
    for (const width of [768, 360]) {
      await page.setViewport({ width, height: 800 });
      await rest(page);
      expect(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)).toBe(0);
    }
    await page.close();
  });

  it("plays a scene by arrow keys to the answer of its question", async () => {
    const page = await open("scene=scale&model=sinusoidal");
    for (const step of [2, 3]) {
      await page.keyboard.press("ArrowRight");
      await rest(page);
      expect((await readTexts(page, ".where span"))[0]).toBe(`${step} of 3`);
    }
    expect((await readTexts(page, ".plainly"))[0]).toMatch(/^With √d a word is [\d.]+ times as long as the position that is added to it; without, /);
    expect((await readTexts(page, ".ended .number"))[0]).toBe("It makes words longer. The answer, with its evidence");
    expect(await page.$eval(".ended a", (link) => link.getAttribute("href"))).toBe("scale.html");
    await page.keyboard.press("Escape");
    await rest(page);
    expect(await page.$(".where")).toBeNull();
    await page.close();
  });

  it("shows one scene and nothing else inside another page, and begins again at its end", async () => {
    const page = await open("scene=scale&embedded=on", 700);
    const shown = (selector: string) => page.$$eval(selector, (found) => found.filter((one) => (one as HTMLElement).offsetParent !== null).length);
    for (const step of [1, 2, 3, 1]) {
      expect((await readTexts(page, ".where span"))[0]).toBe(`${step} of 3`);
      expect([await shown(".card.sentence"), await shown(".first"), await shown(".questions"), await shown("#told")]).toEqual([1, 0, 0, 0]);
      await page.click("#scene-next");
      await rest(page);
    }
    expect(await readTexts(page, ".strip-keys button")).toEqual(["←", "Next →"]);
    await page.close();
  });

  it("draws one drag at 512 × 512 in at most 16 ms of script", async () => {
    const page = await open("width=512&length=512&clock=20");
    const times = await page.$eval(".scrub input", async (slider) => {
      const measured: number[] = [];
      for (let step = 0; step < 40; step++) {
        await new Promise(requestAnimationFrame);
        // What the page does in a frame runs between the callback asked for before its own and the one asked for after.
        let frame = 0;
        requestAnimationFrame(() => (frame = performance.now()));
        const start = performance.now();
        slider.value = String(20 + step * 3.7);
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        const spent = performance.now() - start;
        await new Promise(requestAnimationFrame);
        measured.push(spent + performance.now() - frame);
      }
      return measured.sort((one, other) => one - other);
    });
    console.log(`script time of a drag at 512 × 512: median ${times[20]!.toFixed(1)} ms, slowest of 40 ${times[39]!.toFixed(1)} ms`);
    expect(times[20]).toBeLessThan(16);
    await page.close();
  });

  it.each([360, 768, 1440])("needs no sideways scrolling at %i px", async (width) => {
    const page = await open("scene=scale&step=2&width=512", width);
    expect(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)).toBe(0);
    await page.close();
  });

  it.each(emulates(name) ? ["light", "dark"] : ["light"])("gives axe no serious finding, %s", async (scheme) => {
    const page = await open("show=scores");
    if (emulates(name)) await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await rest(page);
    expect(await findSerious(page)).toEqual([]);
    await page.close();
  });

  it("reports no error in all of this", () => {
    expect(faults).toEqual([]);
  });
});
