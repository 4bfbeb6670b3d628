import { describe, expect, test } from "vitest";
import { computeFrequencies, computeSinusoids, rotateHeads, similarityOfHands, sinusoidTable } from "../../src/engine/hands";
import { compareRows } from "../../src/engine/model";
import { measureDifference } from "./vectors";

test("frequencies are the paper's, and Tensor2Tensor's end at 1/base", () => {
  expect([...computeFrequencies(4, 16)]).toEqual([1, 0.5, 0.25, 0.125]);
  expect(computeFrequencies(4, 8, "tensor2tensor")[3]).toBeCloseTo(1 / 8, 12);
});

test("the table of the paper's first dimensions, written out", () => {
  const { values } = computeSinusoids([0, 1, 2], computeFrequencies(2, 10_000));
  const expected = [0, 1, 2].flatMap((p) => [Math.sin(p), Math.cos(p), Math.sin(p / 100), Math.cos(p / 100)]);
  expect(measureDifference(values, expected)).toBeLessThan(1e-7);
  const half = computeSinusoids([2], computeFrequencies(2, 10_000), "half").values;
  expect([...half].map((value) => value.toFixed(5))).toEqual(
    [Math.sin(2), Math.sin(0.02), Math.cos(2), Math.cos(0.02)].map((value) => value.toFixed(5)),
  );
});

describe("hands that are turned from row to row", () => {
  test.each([
    [16, 64, 10_000, 0],
    [512, 512, 10_000, 0],
    [512, 512, 1e9, 0],
    [512, 32, 1.5, 700.25],
  ])("%i rows of %i channels, base %d, from %d: the sines themselves", (rows, width, base, offset) => {
    const positions = Array.from({ length: rows }, (_, row) => row + offset);
    const exact = computeSinusoids(positions, computeFrequencies(width / 2, base));
    expect(measureDifference(sinusoidTable({ rows, width, base, offset }).values, exact.values)).toBeLessThan(1e-6);
  });
});

test("the similarity by distance is that of all pairs of rows", () => {
  const table = sinusoidTable({ rows: 40, width: 32, base: 300 });
  const all = compareRows(table).values;
  expect(measureDifference(similarityOfHands(40, computeFrequencies(16, 300)).values, all)).toBeLessThan(1e-5);
});

test("rotated queries and keys know their distance alone", () => {
  const frequencies = computeFrequencies(2, 100);
  const score = (i: number, j: number) => {
    const q = Float32Array.of(0.3, -1, 0.5, 2);
    const k = Float32Array.of(1, 0.2, -0.7, 0.4);
    rotateHeads(q, 4, 1, 4, [i], frequencies, "half");
    rotateHeads(k, 4, 1, 4, [j], frequencies, "half");
    return q.reduce((sum, value, channel) => sum + value * k[channel]!, 0);
  };
  expect(score(7, 3)).toBeCloseTo(score(104, 100), 5);
  expect(score(7, 3)).not.toBeCloseTo(score(3, 7), 2);
});
