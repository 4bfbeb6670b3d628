import { expect, test } from "vitest";
import { ACTIVATIONS, applyNorm, findLargest, logSoftmax } from "../../src/engine/arithmetic";
import { decodeBase64, decodeHalf, readNumbers } from "../../src/engine/numbers";

test.each([
  [0x0000, 0],
  [0x3c00, 1],
  [0xc000, -2],
  [0x3555, 0.333251953125],
  [0x7bff, 65504],
  [0x0001, 2 ** -24],
  [0x0400, 2 ** -14],
  [0x7c00, Infinity],
])("the half %i is %d (IEEE 754, binary16)", (bits, value) => {
  expect(decodeHalf(bits)).toBe(value);
});

test("numbers are read little-endian in either precision", () => {
  expect([...readNumbers(decodeBase64(" ADwAwA==\n"), "float16")]).toEqual([1, -2]);
  expect([...readNumbers(decodeBase64("AACAPwAAAMA="), "float32")]).toEqual([1, -2]);
});

test("norms, log-softmax and the largest, by hand", () => {
  const weight = Float32Array.of(1, 2);
  const layer = applyNorm({ weight, bias: Float32Array.of(0, 1), kind: "layer", eps: 0 }, Float32Array.of(1, 3), 1);
  expect([...layer]).toEqual([-1, 3]);
  const rms = applyNorm({ weight, bias: null, kind: "rms", eps: 0 }, Float32Array.of(3, 3), 1);
  expect([...rms]).toEqual([1, 2]);
  expect(logSoftmax(Float32Array.of(9, 1000, 1000), 1, 2)[0]).toBeCloseTo(-Math.LN2, 6);
  expect(findLargest(Float32Array.of(1, 5, 5, 2, 7), 3)).toEqual([4, 1, 2]);
});

test.each([
  ["relu", -1, 0],
  ["gelu", 1, 0.8413447],
  ["gelu", -0.5, -0.1542688],
  ["gelu-tanh", 1, 0.841192],
  ["silu", 1, 0.7310586],
] as const)("%s(%d) = %d, as PyTorch has it", (name, x, value) => {
  expect(ACTIVATIONS[name](x)).toBeCloseTo(value, 6);
});
