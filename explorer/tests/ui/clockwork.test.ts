/** What the sliders and the dials say, of models with every setting: tried where it would be false. */

import { describe, expect, it } from "vitest";
import { NAMES, readVectors } from "../engine/vectors";
import { makeClock, nameScale, ownWidth, tellDials, tellHands, tellScale } from "../../src/ui/clockwork";
import type { Placed } from "../../src/ui/live";
import { DEFAULTS, makeControls, placePositions, type State } from "../../src/ui/state";

function place(name: string, change: Partial<State> = {}): { live: Placed; state: State } {
  const { model } = readVectors(name);
  const state = { ...DEFAULTS, ...change };
  const places = model.encodeText("Tom bit a dog").tokens;
  return { state, live: { model, places, positions: placePositions(state, places.length), controls: makeControls(state, model) } };
}

describe("the picture of a model's positions", () => {
  it.each(NAMES.filter((name) => /^(sinusoidal|learned|index)/.test(name)))("is what %s adds, or has its angles", (name) => {
    for (const change of [{}, { base: 40 }, { stoppedHand: 0 }].map((wanted) => (name.startsWith("sinusoidal") ? wanted : {}))) {
      const { live, state } = place(name, { ...change, length: 8 });
      const own = live.model.positionTable(live.controls, 8)!;
      const { table, turning, settings } = makeClock(state, live);
      if (!turning) expect([...table.values]).toEqual([...own.values]);
      else expect([...settings.frequencies]).toEqual(live.model.frequencies(live.controls));
      if (turning) expect(table.columns).toBe(own.columns);
      expect(ownWidth(live.model) === table.columns || !turning).toBe(true);
    }
  });

  it("is named for what it is", () => {
    const tell = (name: string) => tellDials(makeClock(place(name).state, place(name).live), place(name).live.model.scheme);
    expect(tell("sinusoidal")).toMatch(/of 4 hands, each slower than the one before it\. .*turn with it\.$/);
    expect(tell("sinusoidal-concatenated")).toContain("of 2 hands, each slower");
    expect(tell("sinusoidal-cosines")).toContain("the cosines of its hands alone, drawn below");
    expect(tell("index")).toContain("adds the index of a position, times one vector");
    expect(tell("learned")).toContain("learned a vector for each position");
    expect(tell("t5")).toContain("This model has no clock");
    const same = { settings: { frequencies: [0.5, 0.5], sineOnly: false, loudness: 1 }, table: { rows: 0, columns: 4, values: new Float32Array() }, turning: true };
    expect(tellDials(same, place("sinusoidal").live.model.scheme)).not.toContain("slower");
  });
});

describe("the captions of the sliders", () => {
  it("tell the factor that the words have, and whether a position stands beside them", () => {
    const { model } = readVectors("sinusoidal");
    expect(`${nameScale(model)}: ${tellScale(model)}`).toBe("√d: Off: words are 2.83 times quieter beside their positions.");
    const learned = readVectors("learned-projected", ({ rules }) => (rules.tokenScale.encoder = 0.5)).model;
    expect(`${nameScale(learned)}: ${tellScale(learned)}`).toBe("0.5, as it was trained: Off: words are 2 times louder beside their positions.");
    expect(tellScale(readVectors("rope").model)).toMatch(/quieter\.$/);
  });

  it("count the hands that move in the sentence as it stands", () => {
    expect(tellHands(place("sinusoidal").live)).toMatch(/^Sets .* turns once in 6,283 tokens\. Within this sentence 2 of the 4 hands move/);
    expect(tellHands(place("sinusoidal", { frozenAt: 3 }).live)).toContain("0 of the 4 hands move");
    expect(tellHands(place("sinusoidal", { base: 1.5 }).live)).toContain("4 of the 4 hands move");
    const { live } = place("rope-interleaved");
    const slowest = Math.min(...live.model.frequencies({}).map(Math.abs));
    expect(tellHands(live)).toContain(`once in ${((2 * Math.PI) / slowest).toLocaleString("en-US", { maximumSignificantDigits: 3 })} tokens`);
  });
});
