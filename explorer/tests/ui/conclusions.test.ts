import { describe, expect, it } from "vitest";
import type { HeldOutProgress } from "../../src/engine/api";
import { readVectors } from "../engine/vectors";
import { findMeasured } from "../../src/ui/count";
import { concludeBase, concludeOrder, concludeScale, type Outcome } from "../../src/ui/conclusions";
import { bringToLife } from "../../src/ui/live";
import { tellLengths } from "../../src/ui/loudness";
import { canPlay, castModel, SCENES } from "../../src/ui/scenes";
import { DEFAULTS, type State } from "../../src/ui/state";

const { model } = readVectors("sinusoidal");
const TOM = "Tom bit a dog";

const whole = (right: number): HeldOutProgress => ({ right, confidence: 1, done: 200, of: 200 });
const writes = (text: string, count: HeldOutProgress | null = null) => ({ live: { after: { text }, model }, count }) as unknown as Outcome;
const live = (change: Partial<State>, count: HeldOutProgress | null): Outcome => ({ live: bringToLife({ ...DEFAULTS, text: TOM, ...change }, model), count });

describe("what becomes of two orders of the same words", () => {
  it("is one translation where the model without positions writes the same for both", () => {
    const { answer, rows } = concludeOrder([writes("ab", whole(200)), writes("ba"), writes("ab", whole(73)), writes("ab")]);
    expect(answer).toContain("it cannot tell who bit whom");
    expect(rows).toEqual([
      ["with positions", "ab / ba", "200"],
      ["without", "ab, for both", "73"],
    ]);
  });

  it("is told otherwise where the models do otherwise", () => {
    expect(concludeOrder([writes("ab"), writes("ba"), writes("ab"), writes("ba")]).answer).toBe("The model without positions here still tells the two orders apart.");
    expect(concludeOrder([writes("ab"), writes("ab"), writes("ab"), writes("ab")]).answer).toBe("Neither model here tells the two orders apart.");
  });

  it("has no count while sentences are counted", () => {
    const { rows } = concludeOrder([writes("ab", whole(200)), writes("ba"), writes("ab", { ...whole(3), done: 12 }), writes("ab")]);
    expect(rows.map((row) => row.at(-1))).toEqual(["200", "…"]);
  });
});

describe("what √d does", () => {
  const bare = readVectors("sinusoidal", (data) => {
    data.id = "bare";
    data.rules.tokenScale = { encoder: 1, decoder: 1 };
  }).model;
  const steps = (rights: [number, number] | []): Outcome[] =>
    [model, bare].map((each, index) => ({ live: bringToLife({ ...DEFAULTS, text: TOM }, each), count: rights[index] === undefined ? null : whole(rights[index]) }));

  it("is told by two models, one trained with it and one without", () => {
    const { answer, rows } = concludeScale(steps([200, 33]));
    const long = rows.map(([, word, position]) => Number(word) / Number(position));
    expect(long[0]! / long[1]!).toBeCloseTo(Math.sqrt(model.config.dModel), 0);
    expect(answer).toContain("the model without √d gets 33 right, the one with it 200");
    expect(rows.map((row) => [row[0], row.at(-1)])).toEqual([["trained with √d", "200"], ["trained without √d", "33"]]);
    expect(concludeScale(steps([])).answer).not.toContain("right");
  });

  it("is measured on the text of the page where there is one, and follows the sentence", () => {
    const measured = readVectors("sinusoidal", (data) => Object.assign(data, { id: "measured", lengths: { word: 8.14, position: 5.66 } })).model;
    const tell = (change: Partial<State>) => tellLengths(bringToLife({ ...DEFAULTS, text: TOM, ...change }, measured));
    expect(tell({})).toBe("A word is 1.4 times as long as its position.");
    expect(tell({ loudness: 2 })).toBe("A word is 0.72 times as long as its position.");
    expect(tell({ loudness: 0 })).toBe("Nothing is left of the positions.");
  });

  it("is asked only where the page has a model that was trained without it", () => {
    const scale = SCENES.find(({ study }) => study === "scale")!;
    expect(canPlay([model], scale)).toBe(false);
    expect(canPlay([model, bare], scale)).toBe(true);
    expect([0, 1].map((step) => castModel([model, bare], scale.steps[step]!.cast ?? scale.cast))).toEqual([model, bare]);
    expect(scale.steps.every((step) => Object.keys(step.set).length === 0)).toBe(true);
  });
});

describe("what the base does", () => {
  it("is told by the slowest hand under each base", () => {
    const { columns, rows } = concludeBase([live({}, whole(200)), live({ base: 10 }, null), live({ base: 1e5 }, whole(145))]);
    const hands = model.config.dModel / 2;
    const turns = (base: number) => Array.from({ length: hands }, (_, hand) => 2 * Math.PI * base ** (hand / hands));
    expect(columns).toHaveLength(4);
    expect(rows.map(([name]) => name)).toEqual(["10,000, as trained", "10", "100,000"]);
    rows.forEach(([, slowest, slower], row) => {
      const wanted = turns([1e4, 10, 1e5][row]!);
      expect(Number(slowest!.replaceAll(",", "")) / wanted.at(-1)!).toBeCloseTo(1, 2);
      expect(slower).toBe(`${wanted.filter((turn) => turn > 64).length} of ${hands}`);
    });
    expect(rows.map((row) => row.at(-1))).toEqual(["200", "…", "145"]);
  });
});

describe("what reading with another base costs", () => {
  const tell = (rights: (number | null)[]) =>
    concludeBase([live({}, null), live({ base: 10 }, null), live({ base: 1e5 }, null)].map((outcome, step) => ({ ...outcome, count: rights[step] === null ? null : whole(rights[step]!) }))).answer;

  it("is told of the bases that cost something, once all are counted", () => {
    expect(tell([200, 137, 200])).toContain("this trained model may lose: with base 10 it gets 137 right, not 200.");
    expect(tell([200, 200, 200])).toContain("does no worse");
    expect(tell([200, 137, null])).not.toContain("trained model");
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
