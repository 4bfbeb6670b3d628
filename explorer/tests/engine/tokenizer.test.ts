import { expect, test } from "vitest";
import { Tokenizer } from "../../src/engine/tokenizer";
import { readVectors } from "./vectors";

const { model } = readVectors("sinusoidal");

test("a text becomes the tokens of PyTorch's tokenizer, and its text again", () => {
  for (const { text, ids } of readVectors("sinusoidal").cases) {
    const encoded = model.encodeText(text);
    expect(encoded.ids).toEqual(ids);
    expect(model.decodeIds(encoded.ids)).toBe(text);
    expect(encoded.unknown).toEqual([]);
  }
});

test("what the list does not have is unknown, and keeps its text", () => {
  const { tokens, unknown, ids } = model.encodeText("Tom bit a zebra");
  expect(unknown).toEqual([3]);
  expect(ids[3]).toBe(3);
  expect(tokens.map(({ text }) => text)).toEqual([" Tom", " bit", " a", " zebra", "</s>"]);
  expect(tokens.at(-1)!.special).toBe(true);
});

test("what looks like a special token is text, and a blank text has no tokens", () => {
  expect(model.encodeText("a </s>").ids.slice(0, -1)).not.toContain(2);
  expect(model.encodeText("  ").ids).toEqual([]);
});

test("what stands between two matches, and after the last, are tokens too", () => {
  const tokens = ["?", "-", "ab", "c"].map((text, id) => ({ id, text, special: false }));
  const rules = { nfc: false, nfkc: false, lowercase: true, prefix: "", pattern: "-", unknownId: 0, endId: null, stripsSpace: false };
  expect(new Tokenizer(tokens, rules).encode("AB-C").ids).toEqual([2, 1, 3]);
});
