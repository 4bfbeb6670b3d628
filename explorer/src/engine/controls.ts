/** From controls to the positions that a scheme reads. */

import type { ControlName, SideControls } from "./api";
import { EngineError } from "./errors";

/** So many rows are shuffled by `shuffledRows`; positions beyond them keep their rows. */
export const SHUFFLED_ROWS = 64;

const WORDS: Record<ControlName, string> = {
  positions: "positions",
  reversed: "reversing",
  frozenAt: "freezing",
  offset: "an offset",
  shuffledRows: "shuffled rows",
  base: "a base",
  stoppedHand: "a stopped hand",
  sineOnly: "the sine alone",
  loudness: "a loudness of position",
  scaleTokens: "a scale of the tokens",
};

/** The names of the controls that are set. */
export function listSet(controls: SideControls): ControlName[] {
  return (Object.keys(WORDS) as ControlName[]).filter((name) => controls[name] !== undefined);
}

/** Throw an EngineError for a control that does not apply, or has no sensible value. */
export function checkControls(controls: SideControls, applicable: readonly ControlName[], hands: number): void {
  for (const name of listSet(controls)) {
    if (!applicable.includes(name)) throw new EngineError(`This side of the model has no use for ${WORDS[name]}.`);
    const value = controls[name];
    const numbers = Array.isArray(value) ? value : typeof value === "number" ? [value] : [];
    if (!numbers.every(Number.isFinite)) throw new EngineError(`A value of ${WORDS[name]} is no finite number.`);
  }
  if (controls.base !== undefined && controls.base <= 1) {
    throw new EngineError(`A base of ${controls.base} makes no progression of wavelengths; it must be above 1.`);
  }
  const hand = controls.stoppedHand;
  if (hand !== undefined && !(Number.isInteger(hand) && hand >= 0 && hand < hands)) {
    throw new EngineError(`There is no hand ${hand}: this model has the hands 0 to ${hands - 1}.`);
  }
}

/** The position of the token at `index` among `length` tokens. */
export function placeToken(controls: SideControls, index: number, length: number): number {
  let position = controls.positions?.[index] ?? index;
  if (controls.reversed) position = length - 1 - position;
  if (controls.frozenAt !== undefined) position = controls.frozenAt;
  position += controls.offset ?? 0;
  return controls.shuffledRows === undefined ? position : shufflePosition(position, controls.shuffledRows);
}

/** The positions of all tokens of a side. */
export function placeTokens(controls: SideControls, length: number): number[] {
  return Array.from({ length }, (_, index) => placeToken(controls, index, length));
}

/** The position whose encoding a position gets under a permutation; what lies between two rows moves with the lower. */
function shufflePosition(position: number, seed: number): number {
  const row = Math.floor(position);
  return row < 0 || row >= SHUFFLED_ROWS ? position : shuffleRows(seed)[row]! + (position - row);
}

/** A permutation of the shuffled rows by Fisher and Yates, with the generator mulberry32. */
export function shuffleRows(seed: number): number[] {
  let state = seed | 0;
  const draw = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const rows = Array.from({ length: SHUFFLED_ROWS }, (_, row) => row);
  for (let last = rows.length - 1; last > 0; last--) {
    const other = Math.floor(draw() * (last + 1));
    [rows[last], rows[other]] = [rows[other]!, rows[last]!];
  }
  return rows;
}
