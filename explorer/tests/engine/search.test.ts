import { expect, test } from "vitest";
import { boundLength, type Hypothesis, searchBeam, searchGreedily } from "../../src/engine/search";

const END = 0;
const START = 9;

/** A model of three tokens, the end among them, whose probabilities follow from what was written. */
const TABLE: Record<string, [number, number, number]> = {
  "": [0.607, 0.301, 0.092],
  "1": [0.111, 0.861, 0.028],
  "11": [0.95, 0.03, 0.02],
};

function begin(written = ""): Hypothesis {
  return {
    step(token) {
      if (token !== START) written += token;
      return Float32Array.from(TABLE[written] ?? [1 / 3, 1 / 3, 1 / 3], Math.log);
    },
    fork: () => begin(written),
  };
}

test("greedy search takes the likeliest token, and ends with the end", () => {
  const written = searchGreedily(begin(), { start: START, ends: [END], most: 5 });
  expect(written.tokens).toEqual([END]);
  expect(written.logProbability).toBeCloseTo(Math.log(0.607), 6);
});

test("a beam goes on while its likeliest hypothesis beats the worst finished text, and finds the better one", () => {
  // After two steps [end] (-0.50 a token) and [1, end] (-1.70) are finished, and [1, 1] stands at -0.68 a token.
  const written = searchBeam(begin(), 2, { start: START, ends: [END], most: 5 });
  expect(written.tokens).toEqual([1, 1, END]);
  expect(written.logProbability).toBeCloseTo(Math.log(0.301 * 0.861 * 0.95), 5);
  expect(written.steps.map((step) => step.length)).toEqual([3, 3, 3]);
});

test("where there is no room every text ends", () => {
  expect(searchBeam(begin(), 2, { start: START, ends: [END], most: 1 }).tokens).toEqual([END]);
  expect(searchGreedily(begin(), { start: START, ends: [], most: 3 }).tokens).toHaveLength(3);
});

test.each([
  [1, 82],
  [16, 82],
  [17, 114],
])("a source of %i tokens has room for %i", (tokens, most) => {
  expect(boundLength(tokens)).toBe(most);
});
