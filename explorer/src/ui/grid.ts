/** One head of one attention as a matrix to look at: which values, before, after or the difference. */

import type { AttentionTrace, FourTerms, Matrix, Trace } from "../engine/api";
import type { Quantity, Stack, View } from "./state";
import { formatNumber } from "./words";

export const TERMS: readonly { bit: number; key: keyof FourTerms; name: string }[] = [
  { bit: 1, key: "wordWord", name: "word to word" },
  { bit: 2, key: "wordPosition", name: "word to position" },
  { bit: 4, key: "positionWord", name: "position to word" },
  { bit: 8, key: "positionPosition", name: "position to position" },
];

/** The attention of a layer in one of the three stacks. */
export function pickAttention(trace: Trace, stack: Stack, layer: number): AttentionTrace {
  const { layers } = stack === "encoder" ? trace.encoder : trace.decoder;
  const picked = layers[Math.min(layer, layers.length - 1)]!;
  return stack === "cross" ? picked.cross! : picked.self;
}

/** The values of one head: weights, or scores as the sum of the chosen terms (the logits where there is no split). */
export function readHead(attention: AttentionTrace, head: number, quantity: Quantity, bits: number): Matrix {
  const { queries, keys } = attention;
  const size = queries * keys;
  const part = (values: Float32Array) => values.subarray(head * size, (head + 1) * size);
  const result = { rows: queries, columns: keys };
  if (quantity === "weights") return { ...result, values: part(attention.weights) };
  const logits = part(attention.logits);
  if (!attention.terms) return { ...result, values: logits };
  const chosen = TERMS.filter((term) => bits & term.bit).map((term) => part(attention.terms![term.key]));
  const values = Float32Array.from({ length: size }, (_, cell) =>
    logits[cell] === -Infinity ? -Infinity : chosen.reduce((sum, term) => sum + term[cell]!, 0),
  );
  return { ...result, values };
}

/** Rows and columns in another order; the queries or the keys stay where `rows` or `columns` is null. */
export function reorder(matrix: Matrix, rows: readonly number[] | null, columns: readonly number[] | null): Matrix {
  const values = new Float32Array(matrix.values.length);
  for (let row = 0; row < matrix.rows; row++) {
    for (let column = 0; column < matrix.columns; column++) {
      const from = (rows?.[row] ?? row) * matrix.columns + (columns?.[column] ?? column);
      values[row * matrix.columns + column] = matrix.values[from]!;
    }
  }
  return { ...matrix, values };
}

/** `after` less `before`; a pair that is masked in both has no difference. */
export function subtract(after: Matrix, before: Matrix): Matrix {
  const values = after.values.map((value, cell) => (value === before.values[cell] ? 0 : value - before.values[cell]!));
  return { ...after, values };
}

/** What a view shows of two matrices. */
export function chooseView(view: View, before: Matrix, after: Matrix): Matrix {
  return view === "before" ? before : view === "after" ? after : subtract(after, before);
}

/** The largest finite size of a value. */
export function findLargest(values: Float32Array): number {
  return values.reduce((most, value) => (Number.isFinite(value) ? Math.max(most, Math.abs(value)) : most), 0);
}

/** Say how large the four terms of a head are on average, over all pairs that are not masked; null without a split. */
export function tellTerms(attention: AttentionTrace, head: number): string | null {
  if (!attention.terms) return null;
  const seen = readHead(attention, head, "scores", 15).values.map((value) => (value === -Infinity ? 0 : 1));
  const pairs = seen.reduce((sum, one) => sum + one, 0);
  const sizes = TERMS.map((term) => {
    const { values } = readHead(attention, head, "scores", term.bit);
    return `${term.name} ${formatNumber(values.reduce((sum, value) => sum + (value === -Infinity ? 0 : Math.abs(value)), 0) / pairs, 2)}`;
  });
  return `Their mean size in head ${head + 1}: ${sizes.join(", ")}.`;
}

/** The mean size of the difference of two attentions' weights, over heads and pairs. */
export function compareWeights(before: AttentionTrace, after: AttentionTrace): number {
  const sum = after.weights.reduce((total, weight, cell) => total + Math.abs(weight - before.weights[cell]!), 0);
  return sum / after.weights.length;
}
