/** The vectors that `tests/vectors/generate.py` wrote: tiny random models, and what PyTorch makes of texts with them. */

import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Transformer } from "../../src/engine/model";
import { decodeBase64, readNumbers } from "../../src/engine/numbers";
import type { ModelData } from "../../src/engine/page";

const FOLDER = fileURLToPath(new URL("../vectors/", import.meta.url));

/** A written text of PyTorch. */
export interface Expected {
  tokens: number[];
  logProbability: number;
}

/** One text, as PyTorch computed it; `scores` are those of the first attention, `weights` those of the last. */
export interface Case {
  text: string;
  ids: number[];
  positions: number[] | null;
  targetIds: number[];
  states: number[];
  logits: number[];
  scores: number[];
  weights: number[];
  greedy?: Expected;
  beam?: Expected;
}

/** The names of all models. */
export const NAMES = readdirSync(FOLDER)
  .filter((name) => name.endsWith(".json"))
  .map((name) => name.replace(".json", ""));

/** A model and its texts; `change`: what is said of it otherwise than was written. */
export function readVectors(name: string, change: (data: ModelData) => void = () => {}): { model: Transformer; cases: Case[]; data: ModelData } {
  const { data, weights, cases } = JSON.parse(readFileSync(`${FOLDER}${name}.json`, "utf8"));
  change(data);
  return { model: new Transformer(data, readNumbers(decodeBase64(weights), "float32")), cases, data };
}

/** The largest difference between two rows of numbers; -Infinity counts as -1e9. */
export function measureDifference(ours: ArrayLike<number>, theirs: ArrayLike<number>): number {
  if (ours.length !== theirs.length) return Infinity;
  let worst = 0;
  for (let i = 0; i < ours.length; i++) {
    const own = ours[i] === -Infinity ? -1e9 : ours[i]!;
    const other = theirs[i] === -Infinity ? -1e9 : theirs[i]!;
    const difference = Math.abs(own - other);
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

/** The standard deviation of a row of numbers. */
export function measureDeviation(values: ArrayLike<number>): number {
  const all = Array.from(values);
  const mean = all.reduce((sum, value) => sum + value, 0) / all.length;
  return Math.sqrt(all.reduce((sum, value) => sum + (value - mean) ** 2, 0) / all.length);
}
