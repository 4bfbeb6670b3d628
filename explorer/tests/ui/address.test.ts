import { describe, expect, it } from "vitest";
import { readAddress, writeAddress } from "../../src/ui/address";
import { DEFAULTS, type State } from "../../src/ui/state";

const EVERYTHING: State = {
  model: "numbers-2",
  text: "zwei & drei = 100 % #ß",
  order: [2, 0, 1],
  positions: [0.1, 1e-7, 3, -2.5],
  frozenAt: 0,
  reversed: true,
  base: 1.5000000000000002,
  loudness: 0.125,
  offset: 7,
  scaleTokens: false,
  sineOnly: true,
  shuffledRows: 12,
  stoppedHand: 0,
  bothSides: true,
  beam: 4,
  width: 512,
  length: 362,
  clock: 12.34,
  follow: 0,
  stack: "cross",
  layer: 1,
  head: 3,
  view: "difference",
  quantity: "scores",
  terms: 0,
  scene: "scale",
  step: 2,
  embedded: true,
};

describe("the address", () => {
  it("brings every value back exactly", () => {
    expect(Object.keys(EVERYTHING).sort()).toEqual(Object.keys(DEFAULTS).sort());
    expect(readAddress(`#${writeAddress(EVERYTHING)}`)).toEqual(EVERYTHING);
  });

  it("brings each value back alone, and holds nothing else", () => {
    for (const name of Object.keys(EVERYTHING) as (keyof State)[]) {
      const state = { ...DEFAULTS, [name]: EVERYTHING[name] };
      const address = writeAddress(state);
      expect([...new URLSearchParams(address)]).toHaveLength(1);
      expect(readAddress(address)).toEqual(state);
    }
  });

  it("tells an empty sentence from none", () => {
    expect(readAddress(writeAddress({ ...DEFAULTS, text: "" })).text).toBe("");
    expect(readAddress("").text).toBeNull();
  });

  it("is empty for a page that nobody touched", () => {
    expect(writeAddress({ ...DEFAULTS })).toBe("");
    expect(readAddress("")).toEqual(DEFAULTS);
  });

  it("keeps the defaults where a value makes no sense", () => {
    const address = "base=1&loudness=NaN&offset=&order=0,x&positions=1e9&length=7.5&stack=up&terms=16&reversed=yes&what=1";
    expect(readAddress(address)).toEqual(DEFAULTS);
  });
});
