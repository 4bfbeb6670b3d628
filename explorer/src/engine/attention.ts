/** Attention over cached keys and values: scores, mask, softmax, weighted values. */

import type { AttentionTrace } from "./api";
import { dot } from "./arithmetic";

/** Keys and values of the tokens read so far, [tokens, key heads · headDim] each, and the positions of the tokens. */
export interface Cache {
  keys: Float32Array;
  values: Float32Array;
  length: number;
  positions: number[];
}

/** The sizes of one attention; several query heads share a key head where there are fewer of those. */
export interface AttentionSizes {
  heads: number;
  keyHeads: number;
  headDim: number;
  scale: number;
}

/** Make a cache with room for so many tokens of so many numbers. */
export function makeCache(width: number, room: number): Cache {
  return { keys: new Float32Array(width * room), values: new Float32Array(width * room), length: 0, positions: [] };
}

/** Copy what a cache holds, with the same room. */
export function copyCache(cache: Cache): Cache {
  return {
    keys: cache.keys.slice(),
    values: cache.values.slice(),
    length: cache.length,
    positions: [...cache.positions],
  };
}

/** Append keys and values of tokens; the cache grows where it has no room. */
export function appendToCache(cache: Cache, keys: Float32Array, values: Float32Array, positions: readonly number[]): void {
  const width = keys.length / positions.length;
  const needed = (cache.length + positions.length) * width;
  if (needed > cache.keys.length) {
    cache.keys = grow(cache.keys, 2 * needed);
    cache.values = grow(cache.values, 2 * needed);
  }
  cache.keys.set(keys, cache.length * width);
  cache.values.set(values, cache.length * width);
  cache.length += positions.length;
  for (const position of positions) cache.positions.push(position);
}

function grow(numbers: Float32Array, length: number): Float32Array {
  const larger = new Float32Array(length);
  larger.set(numbers);
  return larger;
}

/** What one attention computes on, besides its sizes. */
export interface AttentionInput {
  /** Rotated queries, [queries, heads · headDim]. */
  queries: Float32Array;
  queryPositions: readonly number[];
  cache: Cache;
  /** Whether query i sees the keys up to itself alone; the last query is the last key. */
  causal: boolean;
  bias: ((head: number, distance: number) => number) | null;
}

/** Attend: the joined heads, [queries, heads · headDim]. Logits and weights go into `trace` where there is one. */
export function attend(sizes: AttentionSizes, input: AttentionInput, trace: AttentionTrace | null): Float32Array {
  const { heads, headDim } = sizes;
  const queries = input.queryPositions.length;
  const out = new Float32Array(queries * heads * headDim);
  const weights = new Float64Array(input.cache.length);
  for (let head = 0; head < heads; head++) {
    for (let query = 0; query < queries; query++) {
      const seen = input.causal ? input.cache.length - queries + query + 1 : input.cache.length;
      scoreKeys(sizes, input, head, query, seen, weights);
      const row = (head * queries + query) * input.cache.length;
      if (trace) for (let key = 0; key < input.cache.length; key++) trace.logits[row + key] = key < seen ? weights[key]! : -Infinity;
      softmaxInPlace(weights, seen);
      if (trace) for (let key = 0; key < seen; key++) trace.weights[row + key] = weights[key]!;
      addValues(sizes, input.cache, head, weights, seen, out, query * heads * headDim + head * headDim);
    }
  }
  return out;
}

/** The scores of one query to the keys that it sees. */
function scoreKeys(
  sizes: AttentionSizes,
  input: AttentionInput,
  head: number,
  query: number,
  seen: number,
  scores: Float64Array,
): void {
  const { heads, keyHeads, headDim, scale } = sizes;
  const { queries, cache, bias, queryPositions } = input;
  const keyHead = Math.floor((head * keyHeads) / heads);
  for (let key = 0; key < seen; key++) {
    const at = (key * keyHeads + keyHead) * headDim;
    let score = scale * dot(queries, (query * heads + head) * headDim, cache.keys, at, headDim);
    if (bias) score += bias(head, queryPositions[query]! - cache.positions[key]!);
    scores[key] = score;
  }
}

function softmaxInPlace(scores: Float64Array, length: number): void {
  let max = -Infinity;
  for (let key = 0; key < length; key++) max = Math.max(max, scores[key]!);
  let sum = 0;
  for (let key = 0; key < length; key++) sum += scores[key] = Math.exp(scores[key]! - max);
  for (let key = 0; key < length; key++) scores[key]! /= sum;
}

function addValues(
  sizes: AttentionSizes,
  cache: Cache,
  head: number,
  weights: Float64Array,
  seen: number,
  out: Float32Array,
  start: number,
): void {
  const { heads, keyHeads, headDim } = sizes;
  const keyHead = Math.floor((head * keyHeads) / heads);
  for (let key = 0; key < seen; key++) {
    const weight = weights[key]!;
    const at = (key * keyHeads + keyHead) * headDim;
    for (let channel = 0; channel < headDim; channel++) out[start + channel]! += weight * cache.values[at + channel]!;
  }
}

/** Make the empty trace of an attention of these sizes. */
export function makeTrace(heads: number, queries: number, keys: number): AttentionTrace {
  const size = heads * queries * keys;
  return { heads, queries, keys, logits: new Float32Array(size), weights: new Float32Array(size), terms: null };
}
