/** Language models and byte pairs against what PyTorch and `tokenizers` made of the same texts. */

import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { forEverySentence, judge } from "../../src/engine/evaluate";
import { Transformer } from "../../src/engine/model";
import { decodeBase64, readNumbers } from "../../src/engine/numbers";
import { measureDeviation, measureDifference } from "./vectors";

const FOLDER = fileURLToPath(new URL("../vectors/continuing/", import.meta.url));
const MODELS = readdirSync(FOLDER).map((name) => {
  const { data, weights, cases } = JSON.parse(readFileSync(`${FOLDER}${name}`, "utf8"));
  const texts = cases as { text: string; ids: number[]; logits: number[]; tokens: number[]; written: string }[];
  return { name, cases: texts, model: new Transformer(data, readNumbers(decodeBase64(weights), "float32")) };
});

test.each(MODELS)("$name: texts become the same byte pairs, and text again", ({ model, cases }) => {
  for (const { text, ids } of cases) {
    expect(model.encodeText(text).ids).toEqual(ids);
    expect(model.encodeText(text).unknown).toEqual([]);
    expect(model.decodeIds(ids)).toBe(text);
  }
});

test.each(MODELS)("$name: the logits and the greedy continuation are PyTorch's", ({ model, cases }) => {
  for (const { ids, logits, tokens, written } of cases) {
    const trace = model.forward({ ids, controls: {} });
    expect(measureDifference(trace.logits.values, logits) / measureDeviation(logits)).toBeLessThan(1e-4);
    const continued = model.translate({ ids, controls: {}, maxTokens: 12 });
    expect(continued.tokens).toEqual(tokens);
    expect(continued.text).toBe(written);
  }
});

test.each(MODELS)("$name: positions are controlled, and the next token is judged", ({ model, cases }) => {
  const { text, ids, tokens } = cases[0]!;
  const moved = model.translate({ ids, controls: { frozenAt: 3 }, maxTokens: 12 });
  expect(moved.confidence).not.toBeCloseTo(model.translate({ ids, controls: {}, maxTokens: 12 }).confidence, 4);
  const target = model.decodeIds(tokens.slice(0, 1));
  expect(judge(model, { source: text, target }, forEverySentence({}), 1).right).toBe(true);
  expect(judge(model, { source: text, target: `${target}!` }, forEverySentence({}), 1).right).toBe(false);
  expect(() => model.translate({ ids: [], controls: {} })).toThrow("There is no text to continue.");
});
