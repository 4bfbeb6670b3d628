import { describe, expect, test } from "vitest";
import type { Controls } from "../../src/engine/api";
import { EngineError } from "../../src/engine/errors";
import { measureDifference, NAMES, readVectors } from "./vectors";

const { model, cases } = readVectors("sinusoidal");
const ids = cases[0]!.ids;

describe("controls", () => {
  const logits = (controls: Controls) => model.forward({ ids, controls, targetIds: cases[0]!.targetIds }).logits.values;
  const trained = logits({});

  test.each<Controls>([
    { positions: ids.map((_, index) => index) },
    { offset: 0 },
    { base: 10_000 },
    { loudness: 1 },
    { scaleTokens: true },
    { targetControls: {} },
  ])("%j is as trained", (controls) => {
    expect(measureDifference(logits(controls), trained)).toBeLessThan(1e-5);
  });

  test.each<Controls>([
    { positions: [1, 0] },
    { reversed: true },
    { frozenAt: 1 },
    { offset: 1 },
    { base: 10 },
    { loudness: 0 },
    { scaleTokens: false },
    { sineOnly: true },
    { stoppedHand: 0 },
    { shuffledRows: 3 },
    { targetControls: { offset: 1 } },
  ])("%j changes what the model computes", (controls) => {
    expect(measureDifference(logits(controls), trained)).toBeGreaterThan(1e-3);
  });

  test("ways to say the same agree", () => {
    const last = ids.length - 1;
    const same: [Controls, Controls][] = [
      [{ reversed: true }, { positions: ids.map((_, index) => last - index) }],
      [{ offset: 2 }, { positions: ids.map((_, index) => index + 2) }],
      [{ frozenAt: 1.5 }, { positions: ids.map(() => 1.5) }],
    ];
    for (const [one, other] of same) expect(measureDifference(logits(one), logits(other))).toBe(0);
  });
});

test("a model that reads no positions is the same wherever its tokens stand", () => {
  const { model: blind } = readVectors("none");
  const run = (controls: Controls) => blind.forward({ ids, controls, targetIds: [5, 2] }).logits.values;
  expect(measureDifference(run({ positions: [9, 3, 1] }), run({}))).toBe(0);
  expect(() => run({ base: 10 })).toThrow(EngineError);
});

test("requests that cannot be answered are refused by a sentence", () => {
  expect(() => model.translate({ ids: [], controls: {} })).toThrow("There is no text to translate.");
  expect(() => model.translate({ ids, controls: {}, beam: 0 })).toThrow("A beam of 0 is no whole number");
  expect(() => model.translate({ ids: [999], controls: {} })).toThrow("There is no token 999");
  expect(() => model.kernel(0, 2, {})).toThrow("The encoder has 2 layers of 2 heads");
  const { model: table } = readVectors("learned");
  expect(() => table.translate({ ids, controls: { offset: 0.5 } })).toThrow("a row for each whole position");
  expect(() => table.translate({ ids, controls: { offset: 18 } })).toThrow("rows for the positions 0 to 19");
  const { model: t5 } = readVectors("t5");
  expect(() => t5.translate({ ids, controls: { positions: [0.5] } })).toThrow("a number for whole distances");
});

describe("kernels", () => {
  test("of sinusoids: the mean of the position-position term over each distance", () => {
    const post = readVectors("sinusoidal-post");
    const { distances, values } = post.model.kernel(0, 1, {})!;
    // With the norm behind the sum the term depends on positions alone: any text of 32 tokens has the same.
    const long = Array.from({ length: 32 }, () => 5);
    const { terms, heads, keys } = post.model.forward({ ids: long, controls: {}, targetIds: [5, 2] }).encoder.layers[0]!.self;
    expect(heads).toBe(2);
    for (const [place, distance] of distances.entries()) {
      const pairs: number[] = [];
      for (let i = 0; i < keys; i++) {
        const j = i - distance;
        if (j >= 0 && j < keys) pairs.push(terms!.positionPosition[(keys + i) * keys + j]!);
      }
      expect(values[place]).toBeCloseTo(pairs.reduce((sum, value) => sum + value, 0) / pairs.length, 4);
    }
  });

  test("of a bias: the bias itself, ALiBi's steps are its slope", () => {
    const alibi = readVectors("alibi");
    const { distances, values, how } = alibi.model.kernel(0, 0, {})!;
    const slope = alibi.data.schemes.encoder.slopes![0]![0]!;
    distances.forEach((distance, place) => expect(values[place]).toBeCloseTo(-slope * Math.abs(distance), 6));
    expect(how).toContain("as it is");
    expect(alibi.model.kernel(0, 0, { loudness: 0 })!.values.every((value) => Math.abs(value) === 0)).toBe(true);
  });

  test("of rotated heads: at frequencies of 0 the same at every distance, else not", () => {
    const rope = readVectors("rope").model;
    const spread = (controls: Controls) => {
      const { values } = rope.kernel(1, 0, controls)!;
      return Math.max(...values) - Math.min(...values);
    };
    expect(spread({ base: 100 })).toBeGreaterThan(1e-3);
    expect(spread({ base: 100, stoppedHand: 0 })).toBeLessThan(spread({ base: 100 }));
  });

  test("there is none where position does not enter the scores directly", () => {
    expect(model.kernel(1, 0, {})).toBeNull();
    expect(readVectors("none").model.kernel(0, 0, {})).toBeNull();
    expect(model.kernel(0, 0, {})).not.toBeNull();
  });
});

test("a position table is the model's own, and its similarity is 1 on the diagonal", () => {
  const { values, columns } = model.positionTable({ positions: [7] }, 3)!;
  const trace = model.forward({ ids: ids.slice(0, 3), controls: {}, targetIds: [5, 2] });
  expect(measureDifference(values, trace.encoder.positionVectors!.values)).toBe(0);
  expect(columns).toBe(8);
  const similarity = model.similarity({}, 3)!;
  expect([0, 4, 8].map((index) => similarity.values[index]!.toFixed(4))).toEqual(["1.0000", "1.0000", "1.0000"]);
  expect(readVectors("rope").model.positionTable({}, 3)).toBeNull();
  expect(model.frequencies({ base: 16, stoppedHand: 1 })).toEqual([1, 0, 0.25, 0.125]);
});

test("probabilities of a written text are those of its log-probability", () => {
  for (const name of NAMES) {
    const { logProbability, perToken, confidence, tokens } = readVectors(name).model.translate({
      ids, controls: {}, maxTokens: 6,
    });
    const sum = perToken.reduce((total, { probability }) => total + Math.log(probability), 0);
    expect(sum).toBeCloseTo(logProbability, 4);
    expect(confidence).toBeCloseTo(Math.exp(logProbability / tokens.length), 6);
    perToken.forEach((token) => expect(token.top[0]!.token.id).toBe(token.id));
  }
});
