import { describe, expect, test } from "vitest";
import { measureDeviation, measureDifference, NAMES, readVectors } from "./vectors";

test("there are vectors of every scheme that runs in a page", () => {
  const names = new Set(NAMES.map((name) => readVectors(name).data.schemes.encoder.name));
  expect([...names].sort()).toEqual(["alibi", "index", "learned", "none", "rope", "sinusoidal", "t5"]);
});

describe.each(NAMES)("%s", (name) => {
  const { model, cases } = readVectors(name);

  test.each(cases)("the states, scores and logits are PyTorch's: $text $positions", (text) => {
    const controls = text.positions ? { positions: text.positions } : {};
    const trace = model.forward({ ids: text.ids, controls, targetIds: text.targetIds });
    expect(measureDifference(trace.encoder.states.values, text.states)).toBeLessThan(2e-5);
    expect(measureDifference(trace.encoder.layers[0]!.self.logits, text.scores)).toBeLessThan(2e-5);
    const cross = trace.decoder.layers.at(-1)!.cross!;
    expect(measureDifference(cross.weights, text.weights)).toBeLessThan(2e-5);
    const error = measureDifference(trace.logits.values, text.logits);
    expect(error / measureDeviation(text.logits)).toBeLessThan(1e-5);
  });

  test.each(cases.filter((text) => text.greedy))("greedy search and a beam write PyTorch's texts: $text", (text) => {
    for (const [beam, expected] of [[1, text.greedy!], [3, text.beam!]] as const) {
      const written = model.translate({ ids: text.ids, controls: {}, beam, maxTokens: 12 });
      expect(written.tokens).toEqual(expected.tokens);
      expect(written.logProbability).toBeCloseTo(expected.logProbability, 3);
    }
  });

  test("the four terms add up to the score wherever there are any", () => {
    const { ids, targetIds } = cases[1]!;
    const trace = model.forward({ ids, controls: {}, targetIds });
    for (const stack of [trace.encoder, trace.decoder]) {
      const { terms, logits } = stack.layers[0]!.self;
      const scheme = stack === trace.encoder ? model.scheme : model.targetScheme;
      if (terms === null) {
        expect(scheme.name === "rope" || name === "learned-projected").toBe(true);
        continue;
      }
      const sum = terms.wordWord.map((value, i) => {
        return value + terms.wordPosition[i]! + terms.positionWord[i]! + terms.positionPosition[i]!;
      });
      const seen = sum.filter((_, i) => logits[i] !== -Infinity);
      expect(measureDifference(seen, logits.filter((value) => value !== -Infinity))).toBeLessThan(1e-5);
    }
    expect(trace.encoder.layers[1]!.self.terms).toBeNull();
  });
});
