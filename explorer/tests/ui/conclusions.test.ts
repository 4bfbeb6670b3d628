import { describe, expect, it } from "vitest";
import type { HeldOutProgress } from "../../src/engine/api";
import { readVectors } from "../engine/vectors";
import { findMeasured } from "../../src/ui/count";
import { concludeBase, concludeOrder, concludeScale, type Outcome } from "../../src/ui/conclusions";
import { bringToLife } from "../../src/ui/live";
import { tellLengths } from "../../src/ui/lengths";
import { DEFAULTS, type State } from "../../src/ui/state";

const { model } = readVectors("sinusoidal");
const TOM = "Tom bit a dog";

const whole = (right: number): HeldOutProgress => ({ right, confidence: 1, done: 200, of: 200 });
const writes = (text: string, count: HeldOutProgress | null = null) => ({ live: { after: { text } }, count }) as unknown as Outcome;
const live = (change: Partial<State>, count: HeldOutProgress | null): Outcome => ({ live: bringToLife({ ...DEFAULTS, text: TOM, ...change }, model), count });

describe("what becomes of two orders of the same words", () => {
  it("is one translation where the model without positions writes the same for both", () => {
    const { answer, numbers } = concludeOrder([writes("ab", whole(200)), writes("ba"), writes("ab", whole(73)), writes("ab")]);
    expect(answer).toContain("it cannot tell who bit whom");
    expect(numbers).toBe(
      "Without positions the model writes “ab” for both, and 73 of 200 sentences that it never saw are right; with positions the model writes “ab” and “ba”, and 200 are right.",
    );
  });

  it("is told otherwise where the models do otherwise", () => {
    expect(concludeOrder([writes("ab"), writes("ba"), writes("ab"), writes("ba")]).answer).toBe("The model without positions here still tells the two orders apart.");
    expect(concludeOrder([writes("ab"), writes("ab"), writes("ab"), writes("ab")]).answer).toBe("Neither model here tells the two orders apart.");
  });

  it("has no numbers while sentences are counted", () => {
    expect(concludeOrder([writes("ab", whole(200)), writes("ba"), writes("ab", { ...whole(3), done: 12 }), writes("ab")]).numbers).toBeNull();
    expect(concludeOrder([writes("ab"), writes("ba"), writes("ab", whole(3)), writes("ab")]).numbers).toBeNull();
  });
});

describe("what √d does", () => {
  const steps = (rights: [number, number, number]) => [live({}, whole(rights[0])), live({ scaleTokens: false }, whole(rights[1])), live({ loudness: 3 }, whole(rights[2]))];

  it("is the proportion of a word and its position, which it multiplies by √d", () => {
    const { numbers } = concludeScale(steps([200, 0, 7]));
    const [usual, bare] = numbers!.match(/[\d.]+(?= times)/g)!.map(Number) as [number, number];
    expect(usual / bare).toBeCloseTo(Math.sqrt(model.config.dModel), 0);
    expect(numbers).toMatch(/200 of 200 held-out sentences are right; without √d .*, and 0 are right; .*, 7 are right\.$/);
  });

  it("is told without the last step while that is counted", () => {
    const [trained, without, louder] = steps([200, 0, 7]);
    expect(concludeScale([trained!, without!, { ...louder!, count: null }]).numbers).toMatch(/and 0 are right\.$/);
  });

  it("is said to make the word the louder one only where that is so", () => {
    const outcomes = steps([1, 1, 1]);
    const isLouder = (outcome: Outcome) => tellLengths(outcome.live).startsWith("A word is");
    const flips = isLouder(outcomes[0]!) && !isLouder(outcomes[1]!);
    expect(concludeScale(outcomes).answer.includes("without √d the position is the louder one")).toBe(flips);
    const quiet = [live({ loudness: 0.01 }, null), live({ loudness: 0.01, scaleTokens: false }, null), live({}, null)];
    expect(concludeScale(quiet)).toEqual({ answer: "√d makes a word louder beside the position that is added to it.", numbers: null });
  });
});

describe("what the base does", () => {
  it("is told by the slowest hand under each base", () => {
    const { answer, numbers } = concludeBase([live({}, whole(200)), live({ base: 10 }, whole(145))]);
    const hands = model.config.dModel / 2;
    const slowest = 2 * Math.PI * 10 ** ((hands - 1) / hands);
    expect(Number(answer.match(/with 10 once in ([\d.]+)\.$/)![1])).toBeCloseTo(slowest, 0);
    expect(numbers).toMatch(/: 200 of 200 held-out sentences are right with it, 145 with 10\.$/);
    expect(concludeBase([live({}, whole(200)), live({ base: 10 }, null)]).numbers).toBeNull();
  });
});

describe("what was counted when the page was made", () => {
  const counts = [{ name: "as it was trained", controls: {}, right: 9, of: 10, confidence: 0.5 }, { name: "base 10", controls: { base: 10 }, right: 3, of: 10, confidence: 0.25 }];
  const measured = Object.create(model, { measured: { value: counts } }) as typeof model;

  it("is found by its controls, but for the positions of one sentence", () => {
    expect(findMeasured(measured, {})).toEqual({ right: 9, confidence: 0.5, done: 10, of: 10 });
    expect(findMeasured(measured, { positions: [1, 0], base: 10 })?.right).toBe(3);
    expect(findMeasured(measured, { base: 100 })).toBeNull();
  });
});
