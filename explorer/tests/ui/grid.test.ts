import { describe, expect, it } from "vitest";
import type { AttentionTrace, Matrix } from "../../src/engine/api";
import { chooseView, compareWeights, findLargest, readHead, reorder, subtract, tellTerms } from "../../src/ui/grid";
import { chooseTicks, makeScale, readHex } from "../../src/ui/plots";

const matrix = (values: number[], columns = 2): Matrix => ({ rows: values.length / columns, columns, values: Float32Array.from(values) });

const ATTENTION: AttentionTrace = {
  heads: 2,
  queries: 1,
  keys: 2,
  logits: Float32Array.of(10, 26, 42, -Infinity),
  weights: Float32Array.of(0.25, 0.75, 1, 0),
  terms: {
    wordWord: Float32Array.of(1, 5, 9, 13),
    wordPosition: Float32Array.of(2, 6, 10, 14),
    positionWord: Float32Array.of(3, 7, 11, 15),
    positionPosition: Float32Array.of(4, 8, 12, 16),
  },
};

describe("the grid of attention", () => {
  it("adds the chosen terms of the chosen head, all four to the logit", () => {
    expect([...readHead(ATTENTION, 0, "scores", 15).values]).toEqual([10, 26]);
    expect([...readHead(ATTENTION, 0, "scores", 9).values]).toEqual([5, 13]);
    expect([...readHead(ATTENTION, 1, "scores", 6).values]).toEqual([21, -Infinity]);
    expect([...readHead(ATTENTION, 0, "scores", 0).values]).toEqual([0, 0]);
  });

  it("reads weights, and logits where there is no split", () => {
    expect([...readHead(ATTENTION, 0, "weights", 1).values]).toEqual([0.25, 0.75]);
    expect([...readHead({ ...ATTENTION, terms: null }, 1, "scores", 1).values]).toEqual([42, -Infinity]);
  });

  it("puts rows and columns in another order", () => {
    expect([...reorder(matrix([1, 2, 3, 4]), [1, 0], null).values]).toEqual([3, 4, 1, 2]);
    expect([...reorder(matrix([1, 2, 3, 4]), [1, 0], [1, 0]).values]).toEqual([4, 3, 2, 1]);
  });

  it("finds no difference where both are masked", () => {
    const masked = matrix([1, -Infinity]);
    expect([...subtract(matrix([3, -Infinity]), masked).values]).toEqual([2, 0]);
    expect(chooseView("before", masked, matrix([3, 4]))).toBe(masked);
    expect(findLargest(Float32Array.of(-3, 2, -Infinity))).toBe(3);
  });
});

describe("what is said of attention", () => {
  it("names the mean size of each term over the pairs that are not masked", () => {
    expect(tellTerms(ATTENTION, 0)).toBe("Their mean size in head 1: word to word 3, word to position 4, position to word 5, position to position 6.");
    expect(tellTerms(ATTENTION, 1)).toContain("word to word 9, word to position 10");
    expect(tellTerms({ ...ATTENTION, terms: null }, 0)).toBeNull();
  });

  it("measures how far weights are apart", () => {
    expect(compareWeights(ATTENTION, { ...ATTENTION, weights: Float32Array.of(0.75, 0.25, 1, 0) })).toBeCloseTo(0.25);
    expect(compareWeights(ATTENTION, ATTENTION)).toBe(0);
  });
});

describe("plots", () => {
  it("reads long and short colours", () => {
    expect(readHex("#0b5c9a")).toEqual([11, 92, 154]);
    expect(readHex("#fa0")).toEqual([255, 170, 0]);
  });

  it("scales from one colour over the middle to another", () => {
    const scale = makeScale("#ff0000", "#ffffff", "#0000ff");
    expect(scale[0]).toBe(0xff0000ff);
    expect(scale[255]).toBe(0xffff0000);
    expect(scale[127]! & 0xff).toBeGreaterThan(250);
  });

  it("puts ticks on round values inside the range", () => {
    expect(chooseTicks(0, 63, 8)).toEqual([0, 10, 20, 30, 40, 50, 60]);
    expect(chooseTicks(-1, 1, 3)).toEqual([-1, 0, 1]);
    expect(chooseTicks(2, 2, 3)).toEqual([2]);
  });
});
