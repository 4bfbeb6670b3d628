/** The page in a real browser: the built bundle with tiny models of the vectors, under the page's own policy. */

import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import axe from "axe-core";
import type { TrainedOrder } from "../../src/engine/familiar";
import type { RecordedData } from "../../src/engine/recorded";
import puppeteer, { type Browser, type Page } from "puppeteer-core";

const VECTORS = fileURLToPath(new URL("../vectors/", import.meta.url));
const BUNDLE = fileURLToPath(new URL("../../../src/clockhands/exploring/bundle/", import.meta.url));

/** Where each browser is, by its name; `CHROMIUM` and `FIREFOX` name other places. */
const PLACES = { chrome: process.env["CHROMIUM"] ?? "/usr/bin/chromium", firefox: process.env["FIREFOX"] ?? "/usr/bin/firefox-esr" };
export type BrowserName = keyof typeof PLACES;
/** The browsers of this machine. */
export const BROWSERS = (Object.keys(PLACES) as BrowserName[]).filter((name) => existsSync(PLACES[name]));
export const HAS_CHROMIUM = BROWSERS.includes("chrome");

/** A recorded model with its numbers. */
export interface Recorded {
  data: RecordedData;
  numbers: Float32Array;
}

function readVector(name: string): any {
  return JSON.parse(readFileSync(`${VECTORS}${name}.json`, "utf8"));
}

/** The same model, said to have been trained without √d. */
function unscale({ data, ...rest }: any): any {
  const weights = { ...data.weights, element: "explorer-weights-unscaled" };
  return { ...rest, data: { ...data, id: "unscaled", label: "unscaled", weights, rules: { ...data.rules, tokenScale: { encoder: 1, decoder: 1 } } } };
}

/** Write a page of these vectors, and return its address. `trained`: what their training is said to have shown. */
export function writePage(names: readonly string[], recorded: readonly Recorded[] = [], trained?: TrainedOrder): string {
  const found = names.map((name) => (name === "unscaled" ? unscale(readVector("sinusoidal")) : readVector(name)));
  const models = found.map(({ data, cases }) => ({
    ...data,
    ...(trained ? { trained } : {}),
    heldOut: data.heldOut?.length ? data.heldOut : cases.map((one: { text: string }) => ({ source: one.text, target: "" })),
  }));
  const data = JSON.stringify({ version: "0", command: "test", models, recorded: recorded.map((one) => one.data), findings: [] }).replaceAll("<", "\\u003c");
  const script = readFileSync(`${BUNDLE}explorer.js`, "utf8").replaceAll("</", "<\\/");
  const style = readFileSync(`${BUNDLE}explorer.css`, "utf8");
  const digest = createHash("sha256").update(script).digest("base64");
  const policy = `default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-${digest}'; worker-src blob:`;
  const weights = found.map(({ data: { weights: place }, weights: numbers }) => `<script type="text/plain" id="${place.element}">${numbers}</script>`);
  weights.push(...recorded.map(({ data, numbers }) => `<script type="text/plain" id="${data.weights.element}">${Buffer.from(numbers.buffer).toString("base64")}</script>`));
  const study = '<section id="answer-scale" tabindex="-1"><h3>Why?</h3><p class="short">It makes words longer.</p><p><a href="scale.html">More</a></p></section>';
  const page = `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Test</title><style>${style}</style></head><body><div id="explorer"></div>
<main id="told"><h1>Told</h1>${study}</main><script type="application/json" id="explorer-data">${data}</script>${weights.join("")}<script>${script}</script></body></html>`;
  const path = join(mkdtempSync(join(tmpdir(), "explorer-")), "page.html");
  writeFileSync(path, page);
  return pathToFileURL(path).href;
}

/** Start a browser; Firefox is spoken to in WebDriver BiDi. */
export function startBrowser(browser: BrowserName = "chrome"): Promise<Browser> {
  return puppeteer.launch({ browser, executablePath: PLACES[browser], args: browser === "chrome" ? ["--no-sandbox"] : [], headless: true });
}

/** Open an address in a window of this width; whatever the page reports as an error is kept in `faults`. */
export async function openPage(browser: Browser, address: string, width = 1280, faults: string[] = []): Promise<Page> {
  const page = await browser.newPage();
  page.on("pageerror", (fault) => faults.push(String(fault)));
  page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
  page.on("request", (request) => /^(file|data|blob):/.test(request.url()) || faults.push(`asks for ${request.url()}`));
  await page.setViewport({ width, height: 900 });
  await page.goto(address);
  await page.waitForSelector(".chips li, canvas.matrix");
  await rest(page);
  return page;
}

/** Wait until what was changed is drawn and stands in the address. */
export async function rest(page: Page): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 330));
  await page.evaluate(() => new Promise(requestAnimationFrame));
}

/** The texts of all elements that match. */
export function readTexts(page: Page, selector: string): Promise<string[]> {
  return page.$$eval(selector, (elements) => elements.map((element) => element.textContent!.trim()));
}

/** What axe calls serious or worse about a page, one line each. */
export async function findSerious(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const found = await page.evaluate(async () => {
    const { violations } = await (globalThis as unknown as { axe: typeof axe }).axe.run();
    return violations.map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
  });
  return found.filter((finding) => /^(serious|critical)/.test(finding));
}
