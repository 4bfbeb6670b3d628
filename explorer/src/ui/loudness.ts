/** How long the vectors of words and of their positions are: what √d is for. */

import type { Matrix, Trace } from "../engine/api";
import { traceAfter, traceBefore, type Live } from "./live";
import { formatNumber } from "./words";

/**
 * Their mean lengths; null where no position is added. They are those of `clockhands inspect`, over the text that the
 * model was measured on, and change as the lengths in the sentence do; of a model without such a text they are those in
 * the sentence.
 */
export function measureLengths(live: Live): { word: number; position: number } | null {
  if (live.model.scheme.combine !== "add" || live.problem) return null;
  const [before, after] = [readLengths(traceBefore(live)), readLengths(traceAfter(live))];
  const { lengths } = live.model;
  if (!after || !before || !lengths || before.position === 0 || before.word === 0) return after;
  return { word: (lengths.word * after.word) / before.word, position: (lengths.position * after.position) / before.position };
}

function readLengths({ encoder: { embeddings, positionVectors } }: Trace): { word: number; position: number } | null {
  return positionVectors && { word: meanLength(embeddings), position: meanLength(positionVectors) };
}

/** The length of the words beside that of their positions, in a sentence; empty where no position is added. */
export function tellLengths(live: Live): string {
  const sizes = measureLengths(live);
  if (!sizes) return "";
  if (sizes.position === 0) return "Nothing is left of the positions.";
  return `A word is ${formatNumber(sizes.word / sizes.position, 2)} times as long as its position.`;
}

/** How far the vectors of the first two places are apart; empty where no position is added. */
export function tellStep(live: Live): string {
  const vectors = live.problem ? null : (traceAfter(live)?.encoder.positionVectors ?? null);
  if (!vectors || vectors.rows < 2) return "";
  let squares = 0;
  for (let column = 0; column < vectors.columns; column++) squares += (vectors.values[vectors.columns + column]! - vectors.values[column]!) ** 2;
  return `In this sentence of ${vectors.rows} tokens one step has a length of ${formatNumber(Math.sqrt(squares), 2)}.`;
}

function meanLength(matrix: Matrix): number {
  let sum = 0;
  for (let row = 0; row < matrix.rows; row++) {
    let squares = 0;
    for (let column = 0; column < matrix.columns; column++) squares += matrix.values[row * matrix.columns + column]! ** 2;
    sum += Math.sqrt(squares);
  }
  return matrix.rows > 0 ? sum / matrix.rows : 0;
}
