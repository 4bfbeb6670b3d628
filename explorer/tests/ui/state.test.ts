import { describe, expect, it } from "vitest";
import type { LiveModel } from "../../src/engine/api";
import { DEFAULTS, isTouched, makeControls, placePositions, UNTOUCHED, type State } from "../../src/ui/state";

const SEEING = { scheme: { name: "sinusoidal" }, targetScheme: { name: "none" }, applicable: { encoder: ["positions", "frozenAt", "offset", "base", "scaleTokens"], decoder: ["offset", "scaleTokens"] } } as unknown as LiveModel;
const BLIND = { scheme: { name: "none" }, targetScheme: { name: "none" }, applicable: { encoder: ["scaleTokens", "offset"], decoder: [] } } as unknown as LiveModel;
const CHANGED: State = { ...DEFAULTS, positions: [1, 0], frozenAt: 2, offset: 5, base: 100, scaleTokens: false };

describe("controls", () => {
  it("are empty for a state that nobody touched", () => {
    expect(makeControls({ ...DEFAULTS }, SEEING)).toEqual({});
    expect(isTouched({ ...DEFAULTS })).toBe(false);
    expect(isTouched({ ...CHANGED, ...UNTOUCHED })).toBe(false);
  });

  it("hold what the model has a use for, of each side", () => {
    const source = { positions: [1, 0], frozenAt: 2, offset: 5, base: 100, scaleTokens: false };
    expect(makeControls(CHANGED, SEEING)).toEqual(source);
    expect(makeControls({ ...CHANGED, bothSides: true }, SEEING)).toEqual({ ...source, targetControls: { scaleTokens: false } });
    expect(makeControls({ ...CHANGED, bothSides: true }, BLIND)).toEqual({ scaleTokens: false });
  });

  it("touch a state one by one", () => {
    for (const change of [{ order: [1, 0] }, { frozenAt: 0 }, { loudness: 0 }, { scaleTokens: false }, { stoppedHand: 0 }]) {
      expect(isTouched({ ...DEFAULTS, ...change })).toBe(true);
    }
  });
});

describe("positions", () => {
  it("are counted, given, reversed or frozen", () => {
    expect(placePositions({ ...DEFAULTS }, 3)).toEqual([0, 1, 2]);
    expect(placePositions({ ...DEFAULTS, positions: [2, 2] }, 3)).toEqual([2, 2, 2]);
    expect(placePositions({ ...DEFAULTS, reversed: true }, 3)).toEqual([2, 1, 0]);
    expect(placePositions({ ...DEFAULTS, frozenAt: 1 }, 3)).toEqual([1, 1, 1]);
  });
});
