/** How loud words and their positions are, which is how long their vectors are: what √d is for. */

import type { Matrix } from "../engine/api";
import { traceAfter, type Live } from "./live";
import { formatNumber } from "./words";

/** Their mean loudness in the sentence; null where no position is added. */
export function measureLoudness(live: Live): { word: number; position: number } | null {
  if (live.model.scheme.combine !== "add" || live.problem) return null;
  const { embeddings, positionVectors } = traceAfter(live).encoder;
  if (!positionVectors) return null;
  return { word: meanLength(embeddings), position: meanLength(positionVectors) };
}

/** The loudness of the words beside that of their positions, in a sentence; empty where no position is added. */
export function tellLoudness(live: Live): string {
  const sizes = measureLoudness(live);
  if (!sizes) return "";
  if (sizes.position === 0) return "No position is left to hear.";
  const times = sizes.word / sizes.position;
  return times >= 1
    ? `A word is ${formatNumber(times, 2)} times as loud as its position.`
    : `A position is ${formatNumber(1 / times, 2)} times as loud as its word.`;
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
