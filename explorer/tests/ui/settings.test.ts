import type { Browser } from "puppeteer-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NAMES } from "../engine/vectors";
import { HAS_CHROMIUM, openPage, readTexts, rest, startBrowser, writePage } from "./page";

/** Each control at an end of its range, as an address has it. */
const CHANGES = ["offset=64&view=difference", "shuffled=1&reversed=on", "base=1.5&stopped=0", "loudness=0&sine=on", "width=8&length=512&clock=300", "positions=0,0.5,2,3"];

describe.skipIf(!HAS_CHROMIUM)("a page of a model with unusual settings", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await startBrowser();
  }, 60_000);
  afterAll(() => browser?.close());

  it.each(NAMES)("of %s stays whole under every control", async (name) => {
    const faults: string[] = [];
    const page = await openPage(browser, `${writePage([name])}#text=Tom+bit+a+dog`, 1000, faults);
    for (const change of CHANGES) {
      await page.evaluate((fragment) => (location.hash = fragment), `text=Tom+bit+a+dog&${change}&both=on`);
      await rest(page);
      expect([change, ...faults]).toEqual([change]);
      // Where a table has no row for a position, that is said, and no attention is drawn.
      const parts = (await readTexts(page, ".card h2")).length + (await readTexts(page, ".sentence p.problem")).length;
      expect([change, parts]).toEqual([change, 4]);
    }
    await page.close();
  }, 60_000);
});
