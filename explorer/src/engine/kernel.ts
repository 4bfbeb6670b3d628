/** What a head of the encoder gives to a key at each distance. */

import type { Controls, Kernel } from "./api";
import { applyLinear, applyNorm, dot, measureRow } from "./arithmetic";
import { placeTokens } from "./controls";
import { EngineError } from "./errors";
import { rotateHeads } from "./hands";
import type { Transformer } from "./model";

/** So many held-out sentences are averaged over, and so far does a kernel reach to either side. */
export const SENTENCES = 50;
export const REACH = 16;

const DISTANCES = Array.from({ length: 2 * REACH + 1 }, (_, index) => index - REACH);
const tellSentences = (model: Transformer) =>
  model.heldOut.length > 0 ? `of the first ${Math.min(SENTENCES, model.heldOut.length)} held-out sentences` : "of the texts given with this page";

/** Measure the kernel of a head; null where position does not enter its scores directly. Throws an EngineError. */
export function measureKernel(model: Transformer, layer: number, head: number, controls: Controls): Kernel | null {
  const { encoderLayers, heads } = model.config;
  if (!(layer in model.encoder.layers) || !(head >= 0 && head < heads)) {
    throw new EngineError(`The encoder has ${encoderLayers} layers of ${heads} heads, counted from 0.`);
  }
  const plain = { ...controls, positions: undefined, reversed: undefined, frozenAt: undefined };
  const { scheme } = model.control("encoder", plain);
  if (scheme.bias) {
    const values = Float32Array.from(DISTANCES, (distance) => scheme.bias!(head, distance));
    return { distances: DISTANCES, values, how: "What the scheme adds to the score, as it is." };
  }
  if (scheme.rotate) return rotateMeans(model, layer, head, plain);
  return layer === 0 && model.encoder.splitsIntoTerms(scheme) ? multiplyPositions(model, head, plain) : null;
}

/** The position-position term of the first layer, the mean over the pairs of each distance. */
function multiplyPositions(model: Transformer, head: number, controls: Controls): Kernel | null {
  const rows = 2 * REACH;
  const { scheme, controls: own } = model.control("encoder", controls);
  const table = scheme.encode(placeTokens(own, rows));
  if (!table) return null;
  const { encoder } = model;
  const { q, k, norm, sizes } = encoder.layers[0]!.self;
  const columns = encoder.width - (model.scheme.combine === "concatenate" ? table.columns : 0);
  const joined = encoder.join({ rows, columns, values: new Float32Array(rows * columns) }, table);
  const inverse = model.data.rules.preNorm ? meanInverse(model, controls) : 1;
  const held = joined.slice();
  for (let start = 0; model.data.rules.preNorm && start < held.length; start += encoder.width) {
    const { mean } = measureRow(norm, joined, start, encoder.width);
    for (let i = 0; i < encoder.width; i++) held[start + i] = (joined[start + i]! - mean) * inverse * norm.weight[i]!;
  }
  const query = project(q.weight, q.inputs, held, rows, head, sizes.headDim);
  const key = project(k.weight, k.inputs, held, rows, Math.floor((head * sizes.keyHeads) / sizes.heads), sizes.headDim);
  const values = new Float32Array(DISTANCES.length);
  const counts = new Float32Array(DISTANCES.length);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < rows; j++) {
      const place = i - j + REACH;
      if (place < 0 || place >= values.length) continue;
      values[place]! += sizes.scale * dot(query, i * sizes.headDim, key, j * sizes.headDim, sizes.headDim);
      counts[place]!++;
    }
  }
  for (let place = 0; place < values.length; place++) values[place]! /= counts[place]!;
  const norms = model.data.rules.preNorm ? `; the norm multiplies by the mean 1/σ of the tokens ${tellSentences(model)}` : "";
  return { distances: DISTANCES, values, how: `The position-position term, the mean over the pairs of ${rows} positions${norms}.` };
}

/** One head of a projection of each row. */
function project(
  weight: Float32Array,
  inputs: number,
  x: Float32Array,
  rows: number,
  head: number,
  headDim: number,
): Float32Array {
  const out = new Float32Array(rows * headDim);
  for (let row = 0; row < rows; row++) {
    for (let channel = 0; channel < headDim; channel++) {
      out[row * headDim + channel] = dot(x, row * inputs, weight, (head * headDim + channel) * inputs, inputs);
    }
  }
  return out;
}

/** 1/σ of the first norm, the mean over the tokens of held-out sentences. */
function meanInverse(model: Transformer, controls: Controls): number {
  const { norm } = model.encoder.layers[0]!.self;
  const { width } = model.encoder;
  let sum = 0;
  let count = 0;
  for (const source of model.samples.slice(0, SENTENCES)) {
    const { ids } = model.encodeText(source);
    const { scheme, scale, controls: own } = model.control("encoder", controls);
    const { input } = model.encoder.embed(ids, placeTokens(own, ids.length), scheme, scale);
    for (let start = 0; start < input.length; start += width) {
      sum += measureRow(norm, input, start, width).inverse;
      count++;
    }
  }
  return sum / count;
}

/** The score that the mean unrotated query gives to the mean unrotated key at each distance. */
function rotateMeans(model: Transformer, layer: number, head: number, controls: Controls): Kernel {
  const { sizes } = model.encoder.layers[layer]!.self;
  const { scheme } = model.control("encoder", controls);
  const layout = model.scheme.options["layout"] as "interleaved" | "half";
  const { query, key } = averageHeads(model, layer, head, controls);
  const values = Float32Array.from(DISTANCES, (distance) => {
    const turned = query.slice();
    rotateHeads(turned, sizes.headDim, 1, sizes.headDim, [distance], scheme.frequencies, layout);
    return sizes.scale * dot(turned, 0, key, 0, sizes.headDim);
  });
  return { distances: DISTANCES, values, how: `The score of the mean query with the mean key, over the tokens ${tellSentences(model)}.` };
}

/** The mean query and the mean key of a head before they are rotated, over the tokens of held-out sentences. */
function averageHeads(model: Transformer, layer: number, head: number, controls: Controls) {
  const { q, k, norm, sizes } = model.encoder.layers[layer]!.self;
  const query = new Float32Array(sizes.headDim);
  const key = new Float32Array(sizes.headDim);
  const keyHead = Math.floor((head * sizes.keyHeads) / sizes.heads);
  let count = 0;
  for (const source of model.samples.slice(0, SENTENCES)) {
    const { ids } = model.encodeText(source);
    const trace = model.readSource(ids, controls, true).trace!;
    const input = layer === 0 ? trace.input.values : trace.layers[layer - 1]!.output.values;
    const x = model.data.rules.preNorm ? applyNorm(norm, input, ids.length) : input;
    sumHead(query, applyLinear(q, x, ids.length), q.columns, head);
    sumHead(key, applyLinear(k, x, ids.length), k.columns, keyHead);
    count += ids.length;
  }
  return { query: query.map((value) => value / count), key: key.map((value) => value / count) };
}

function sumHead(sum: Float32Array, rows: Float32Array, rowWidth: number, head: number): void {
  for (let start = head * sum.length; start < rows.length; start += rowWidth) {
    for (let channel = 0; channel < sum.length; channel++) sum[channel]! += rows[start + channel]!;
  }
}
