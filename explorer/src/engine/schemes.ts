/**
 * The schemes that run in the page, behind one interface: what they add to the input, how they rotate, and what they add
 * to the scores. The names are those of the catalogue of Clockhands; the sources are those that its pages cite.
 */

import type { Matrix, SideControls } from "./api";
import { EngineError } from "./errors";
import { computeFrequencies, computeSinusoids, rotateHeads } from "./hands";
import type { SchemeRules } from "./page";

/** One side's scheme under controls. `frequencies` is empty where there are no hands. */
export interface LiveScheme {
  frequencies: number[];
  /** Vectors for the input layer, [positions, d_p]; null: none. */
  encode(positions: readonly number[]): Matrix | null;
  /** Rotates queries or keys in place; null: nothing is rotated. */
  rotate: ((x: Float32Array, rowWidth: number, heads: number, headDim: number, positions: readonly number[]) => void) | null;
  /** Added to the score of a head at a distance, query less key; null: nothing is added. */
  bias: ((head: number, distance: number) => number) | null;
}

const NOTHING: LiveScheme = { frequencies: [], encode: () => null, rotate: null, bias: null };

/** Make a scheme from its rules and controls; `table` is its learned table, where it has one. */
export function makeScheme(rules: SchemeRules, table: Matrix | null, controls: SideControls): LiveScheme {
  switch (rules.name) {
    case "none":
      return NOTHING;
    case "sinusoidal":
      return makeSinusoidal(rules, controls);
    case "index":
      return makeIndex(rules, controls);
    case "learned":
      return makeLearned(rules, table!, controls);
    case "rope":
      return makeRope(rules, controls);
    case "alibi":
      return makeAlibi(rules, controls);
    case "t5":
      return makeT5(rules, table!, controls);
    default:
      throw new EngineError(`The scheme ${rules.name} does not run in a page.`);
  }
}

/** The frequencies of a scheme's hands under its base and a stopped hand. */
function turnHands(rules: SchemeRules, controls: SideControls): number[] {
  const { exponent = "paper" } = rules.options as { exponent?: "paper" | "tensor2tensor" };
  const base = controls.base;
  let frequencies = rules.frequencies;
  if (base !== undefined) {
    const factors = rules.factors;
    frequencies = [...computeFrequencies(frequencies.length, base, exponent)].map((omega, c) => omega * (factors?.[c] ?? 1));
  }
  return frequencies.map((omega, hand) => (hand === controls.stoppedHand ? 0 : omega));
}

function makeSinusoidal(rules: SchemeRules, controls: SideControls): LiveScheme {
  const { layout, waves } = rules.options as { layout: "interleaved" | "half"; waves: "both" | "sine" | "cosine" };
  const frequencies = turnHands(rules, controls);
  const loudness = (controls.loudness ?? 1) * rules.amplitude!;
  const encode = (positions: readonly number[]): Matrix => {
    const both = computeSinusoids(positions, frequencies, waves === "both" ? layout : "half");
    const kept = waves === "both" ? both : takeWaves(both, waves);
    if (controls.sineOnly) silenceCosines(kept, layout);
    if (loudness !== 1) kept.values.forEach((value, index) => (kept.values[index] = loudness * value));
    return kept;
  };
  return { ...NOTHING, frequencies, encode };
}

/** The half of a table of sines and then cosines that an encoding of one kind of wave consists of. */
function takeWaves(both: Matrix, waves: "sine" | "cosine"): Matrix {
  const columns = both.columns / 2;
  const values = new Float32Array(both.rows * columns);
  for (let row = 0; row < both.rows; row++) {
    const start = row * both.columns + (waves === "sine" ? 0 : columns);
    values.set(both.values.subarray(start, start + columns), row * columns);
  }
  return { rows: both.rows, columns, values };
}

function silenceCosines(table: Matrix, layout: "interleaved" | "half"): void {
  for (let index = 0; index < table.values.length; index++) {
    const column = index % table.columns;
    if (layout === "half" ? column >= table.columns / 2 : column % 2 === 1) table.values[index] = 0;
  }
}

/** The position itself as a number, or over the last of the text's positions, times a vector. */
function makeIndex(rules: SchemeRules, controls: SideControls): LiveScheme {
  const step = rules.step!;
  const loudness = controls.loudness ?? 1;
  const encode = (positions: readonly number[]): Matrix => {
    const last = rules.options["normalise"] === "length" ? Math.max(1, ...positions) : 1;
    const values = new Float32Array(positions.length * step.length);
    positions.forEach((position, row) => {
      step.forEach((number, column) => (values[row * step.length + column] = (loudness * position * number) / last));
    });
    return { rows: positions.length, columns: step.length, values };
  };
  return { ...NOTHING, encode };
}

function makeLearned(rules: SchemeRules, table: Matrix, controls: SideControls): LiveScheme {
  const { beyond, offset, max_length: length } = rules.options as { beyond: string; offset: number; max_length: number };
  const loudness = controls.loudness ?? 1;
  const encode = (positions: readonly number[]): Matrix => {
    const values = new Float32Array(positions.length * table.columns);
    positions.forEach((position, row) => {
      const place = beyond === "clamp" ? Math.min(Math.max(position, 0), length - 1) : position;
      if (!Number.isInteger(place)) {
        throw new EngineError(`A learned table has a row for each whole position, and none for ${position}.`);
      }
      if (place < 0 || place >= length) {
        throw new EngineError(`This learned table has rows for the positions 0 to ${length - 1}, and none for ${position}.`);
      }
      for (let column = 0; column < table.columns; column++) {
        values[row * table.columns + column] = loudness * table.values[(place + offset) * table.columns + column]!;
      }
    });
    return { rows: positions.length, columns: table.columns, values };
  };
  return { ...NOTHING, encode };
}

function makeRope(rules: SchemeRules, controls: SideControls): LiveScheme {
  const { layout } = rules.options as { layout: "interleaved" | "half" };
  const frequencies = turnHands(rules, controls);
  return {
    ...NOTHING,
    frequencies,
    rotate: (x, rowWidth, heads, headDim, positions) =>
      rotateHeads(x, rowWidth, heads, headDim, positions, frequencies, layout),
  };
}

/** -m·distance in each of its forms (Press et al. 2022, section 3; the forms are told on the page of ALiBi). */
function makeAlibi(rules: SchemeRules, controls: SideControls): LiveScheme {
  const { form } = rules.options as { form: string };
  const slopes = rules.slopes!;
  const loudness = controls.loudness ?? 1;
  const bias = (head: number, distance: number): number => {
    const right = slopes[slopes.length - 1]![head]!;
    const left = slopes[0]![head]!;
    if (form === "causal") return -loudness * left * distance;
    if (form === "asymmetric" && (head < slopes[0]!.length / 2 ? distance < 0 : distance > 0)) return -Infinity;
    const steepness = distance > 0 ? left : right;
    return -loudness * steepness * (Math.abs(distance) - (form === "broken" && distance > 0 ? 0.5 : 0));
  };
  return { ...NOTHING, bias };
}

/** T5's buckets of distances (Raffel et al. 2020, section 2.1); `table` is [heads, buckets]. */
function makeT5(rules: SchemeRules, table: Matrix, controls: SideControls): LiveScheme {
  const { bidirectional } = rules.options as { bidirectional: boolean };
  const scale = (controls.loudness ?? 1) * Number(rules.options["bias_scale"]);
  const starts = rules.starts!;
  const bias = (head: number, distance: number): number => {
    if (!Number.isInteger(distance)) {
      throw new EngineError(`T5's bias has a number for whole distances, and none for ${distance}.`);
    }
    const size = bidirectional ? Math.abs(distance) : Math.max(distance, 0);
    let bucket = 0;
    while (bucket < starts.length && size >= starts[bucket]!) bucket++;
    if (bidirectional && distance < 0) bucket += starts.length + 1;
    return scale * table.values[head * table.columns + bucket]!;
  };
  return { ...NOTHING, bias };
}
