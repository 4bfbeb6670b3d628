import { expect, test } from "vitest";
import type { SideControls } from "../../src/engine/api";
import { checkControls, placeTokens, shuffleRows, SHUFFLED_ROWS } from "../../src/engine/controls";
import { EngineError } from "../../src/engine/errors";
import { forEverySentence } from "../../src/engine/evaluate";

test.each<[SideControls, number[]]>([
  [{}, [0, 1, 2]],
  [{ positions: [2, 0.5] }, [2, 0.5, 2]],
  [{ reversed: true }, [2, 1, 0]],
  [{ frozenAt: 1 }, [1, 1, 1]],
  [{ offset: 5 }, [5, 6, 7]],
  [{ positions: [2, 1, 0], offset: 1 }, [3, 2, 1]],
  [{ frozenAt: 1, offset: 0.5 }, [1.5, 1.5, 1.5]],
])("%j places three tokens at %j", (controls, positions) => {
  expect(placeTokens(controls, 3)).toEqual(positions);
});

test("shuffled rows are a permutation that its seed decides", () => {
  const rows = shuffleRows(1);
  expect([...rows].sort((a, b) => a - b)).toEqual(Array.from({ length: SHUFFLED_ROWS }, (_, row) => row));
  expect(rows).toEqual(shuffleRows(1));
  expect(rows).not.toEqual(shuffleRows(2));
  expect(placeTokens({ shuffledRows: 1 }, 3)).toEqual(rows.slice(0, 3));
  expect(placeTokens({ shuffledRows: 1, offset: SHUFFLED_ROWS }, 1)).toEqual([SHUFFLED_ROWS]);
});

test.each<[SideControls, string]>([
  [{ base: 0.5 }, "A base of 0.5 makes no progression of wavelengths; it must be above 1."],
  [{ stoppedHand: 4 }, "There is no hand 4: this model has the hands 0 to 3."],
  [{ stoppedHand: 0.5 }, "There is no hand 0.5: this model has the hands 0 to 3."],
  [{ offset: NaN }, "A value of an offset is no finite number."],
  [{ positions: [0, Infinity] }, "A value of positions is no finite number."],
  [{ loudness: 2 }, "This side of the model has no use for a loudness of position."],
])("%j is refused: %s", (controls, message) => {
  const check = () => checkControls(controls, ["base", "stoppedHand", "offset", "positions"], 4);
  expect(check).toThrow(EngineError);
  expect(check).toThrow(message);
});

test("what belongs to one sentence is left out for all sentences", () => {
  const controls = { positions: [1, 0], base: 10, targetControls: { positions: [3], offset: 1 } };
  expect(forEverySentence(controls)).toEqual({ base: 10, targetControls: { offset: 1 } });
  expect(forEverySentence({ positions: [1] })).toEqual({});
});
