/** The encoder or the decoder: its input layer, its layers and its last norm, for whole texts and token by token. */

import type { AttentionTrace, Matrix, Side, StackTrace } from "./api";
import { ACTIVATIONS, applyLinear, applyNorm, type Linear, type Norm } from "./arithmetic";
import { appendToCache, attend, type AttentionSizes, type Cache, copyCache, makeCache, makeTrace } from "./attention";
import type { ModelData, ModelRules } from "./page";
import { type LiveScheme } from "./schemes";
import { splitIntoTerms } from "./terms";
import type { Weights } from "./weights";

/** The projections of one attention, the output projection with its own inputs. */
export interface AttentionWeights {
  q: Linear;
  k: Linear;
  v: Linear;
  out: Linear;
  norm: Norm;
  sizes: AttentionSizes;
}

/** The weights of one layer. */
export interface LayerWeights {
  self: AttentionWeights;
  cross: AttentionWeights | null;
  up: Linear;
  down: Linear;
  feedForwardNorm: Norm;
}

/** Input vectors of tokens: scaled embeddings, position vectors, and what both make together. */
export interface StackInput {
  embeddings: Matrix;
  positionVectors: Matrix | null;
  input: Float32Array;
}

/** What a stack remembers of the tokens that it has read: a cache for each layer, and the source's for each. */
export interface StackState {
  self: Cache[];
  cross: Cache[];
}

const NO_POSITION: LiveScheme = { frequencies: [], encode: () => null, rotate: null, bias: null };

/** One side of a model, ready to compute. */
export class Stack {
  readonly layers: LayerWeights[];
  private readonly tokens: Matrix;
  private readonly project: Linear | null;
  private readonly inputNorm: Norm | null;
  private readonly lastNorm: Norm | null;
  private readonly rules: ModelRules;

  constructor(
    readonly data: ModelData,
    readonly side: Side,
    weights: Weights,
  ) {
    const name = side;
    this.rules = data.rules;
    this.tokens = weights.matrix(`${name}.input.tokens.weight`);
    this.project = weights.has(`${name}.input.project.weight`) ? weights.linear(`${name}.input.project`) : null;
    this.inputNorm = data.rules.embeddingNorm ? weights.norm(`${name}.input.norm`) : null;
    this.lastNorm = data.rules.finalNorm ? weights.norm(`${name}.norm`) : null;
    const count = side === "encoder" ? data.config.encoderLayers : data.config.decoderLayers;
    this.layers = Array.from({ length: count }, (_, layer) => readLayer(data, side, weights, layer));
  }

  get width(): number {
    return this.data.config.dModel;
  }

  /** Embed tokens at positions, and combine them with the scheme's vectors; `scale` is the factor on the embeddings. */
  embed(ids: readonly number[], positions: readonly number[], scheme: LiveScheme, scale: number): StackInput {
    const columns = this.tokens.columns;
    const values = new Float32Array(ids.length * columns);
    ids.forEach((id, row) => {
      for (let i = 0; i < columns; i++) values[row * columns + i] = scale * this.tokens.values[id * columns + i]!;
    });
    const embeddings = { rows: ids.length, columns, values };
    const positionVectors = scheme.encode(positions);
    const joined = this.join(embeddings, positionVectors);
    return { embeddings, positionVectors, input: this.inputNorm ? applyNorm(this.inputNorm, joined, ids.length) : joined };
  }

  /** Combine embeddings with position vectors as the model does, before any norm; either may be zeros. */
  join(embeddings: Matrix, positionVectors: Matrix | null): Float32Array {
    const { rows } = embeddings;
    if (this.data.schemes[this.side].combine === "add" || !positionVectors) {
      const sum = embeddings.values.slice();
      if (positionVectors) for (let i = 0; i < sum.length; i++) sum[i]! += positionVectors.values[i]!;
      return sum;
    }
    const columns = embeddings.columns + positionVectors.columns;
    const joined = new Float32Array(rows * columns);
    for (let row = 0; row < rows; row++) {
      const word = embeddings.values.subarray(row * embeddings.columns, (row + 1) * embeddings.columns);
      const position = positionVectors.values.subarray(row * positionVectors.columns, (row + 1) * positionVectors.columns);
      joined.set(word, row * columns);
      joined.set(position, row * columns + embeddings.columns);
    }
    return this.project ? applyLinear(this.project, joined, rows) : joined;
  }

  /** Whether the terms of word and position are exact in the first layer: the input is their sum, and nothing rotates. */
  splitsIntoTerms(scheme: LiveScheme): boolean {
    return !this.inputNorm && !scheme.rotate;
  }

  /** An empty state; `source` are the encoder's last states, whose keys and values are computed here once. */
  begin(room: number, source: Float32Array | null): StackState {
    const self = this.layers.map((layer) => makeCache(layer.self.k.columns, room));
    const cross = source === null ? [] : this.layers.map((layer) => readSource(layer.cross!, source));
    return { self, cross };
  }

  /** Read tokens after those of the state: their last states, [tokens, d_model]. The state grows. */
  read(
    input: StackInput,
    positions: readonly number[],
    scheme: LiveScheme,
    state: StackState,
    trace: StackTrace | null,
  ): Float32Array {
    const { everyLayer, skipEvery } = this.data.schemes[this.side];
    let x = input.input;
    this.layers.forEach((layer, index) => {
      const skipped = skipEvery > 0 && (index + 1) % skipEvery === 0;
      const own = skipped ? NO_POSITION : scheme;
      if (everyLayer && index > 0 && !skipped && input.positionVectors) x = add(x, input.positionVectors.values);
      const cross = state.cross[index] ?? null;
      const traces = trace ? startTraces(layer, positions.length, state.self[index]!, cross) : null;
      if (traces && index === 0 && this.splitsIntoTerms(own)) {
        traces.self.terms = splitIntoTerms(this, layer.self, input, positions, own, this.rules.preNorm);
      }
      x = this.runLayer(layer, x, positions, own, state.self[index]!, cross, traces);
      if (trace && traces) trace.layers.push({ ...traces, output: this.asMatrix(x) });
    });
    return this.lastNorm ? applyNorm(this.lastNorm, x, positions.length) : x;
  }

  asMatrix(values: Float32Array): Matrix {
    return { rows: values.length / this.width, columns: this.width, values };
  }

  private runLayer(
    layer: LayerWeights,
    x: Float32Array,
    positions: readonly number[],
    scheme: LiveScheme,
    cache: Cache,
    cross: Cache | null,
    traces: Traces | null,
  ): Float32Array {
    const rows = positions.length;
    const attendSelf = (y: Float32Array) => {
      const { q, k, v, out, sizes } = layer.self;
      const queries = applyLinear(q, y, rows);
      const keys = applyLinear(k, y, rows);
      scheme.rotate?.(queries, q.columns, sizes.heads, sizes.headDim, positions);
      scheme.rotate?.(keys, k.columns, sizes.keyHeads, sizes.headDim, positions);
      appendToCache(cache, keys, applyLinear(v, y, rows), positions);
      const causal = this.side === "decoder" || this.rules.causalEncoder;
      const input = { queries, queryPositions: positions, cache, causal, bias: scheme.bias };
      return applyLinear(out, attend(sizes, input, traces?.self ?? null), rows);
    };
    const attendSource = (y: Float32Array) => {
      const { q, out, sizes } = layer.cross!;
      const queries = applyLinear(q, y, rows);
      const input = { queries, queryPositions: positions, cache: cross!, causal: false, bias: null };
      return applyLinear(out, attend(sizes, input, traces?.cross ?? null), rows);
    };
    const feedForward = (y: Float32Array) => this.feedForward(layer, y, rows);
    let y = this.connect(layer.self.norm, x, rows, attendSelf);
    if (layer.cross && cross) y = this.connect(layer.cross.norm, y, rows, attendSource);
    return this.connect(layer.feedForwardNorm, y, rows, feedForward);
  }

  /** A sublayer inside its residual connection and norm (Vaswani et al. 2017, section 3.1; pre: Xiong et al. 2020). */
  private connect(norm: Norm, x: Float32Array, rows: number, sublayer: (y: Float32Array) => Float32Array): Float32Array {
    const y = sublayer(this.rules.preNorm ? applyNorm(norm, x, rows) : x);
    const sum = this.rules.residual ? add(x, y) : y;
    return this.rules.preNorm ? sum : applyNorm(norm, sum, rows);
  }

  private feedForward(layer: LayerWeights, y: Float32Array, rows: number): Float32Array {
    const activation = ACTIVATIONS[this.rules.activation];
    const up = applyLinear(layer.up, y, rows);
    if (!this.rules.gated) {
      for (let i = 0; i < up.length; i++) up[i] = activation(up[i]!);
      return applyLinear(layer.down, up, rows);
    }
    const width = layer.up.columns / 2;
    const hidden = new Float32Array(rows * width);
    for (let row = 0; row < rows; row++) {
      for (let i = 0; i < width; i++) {
        hidden[row * width + i] = activation(up[2 * row * width + i]!) * up[(2 * row + 1) * width + i]!;
      }
    }
    return applyLinear(layer.down, hidden, rows);
  }
}

/** Copy a state for another hypothesis; the source's keys and values are shared, as nobody changes them. */
export function copyState(state: StackState): StackState {
  return { self: state.self.map(copyCache), cross: state.cross };
}

interface Traces {
  self: AttentionTrace;
  cross: AttentionTrace | null;
}

function startTraces(layer: LayerWeights, queries: number, cache: Cache, cross: Cache | null): Traces {
  const { heads } = layer.self.sizes;
  return {
    self: makeTrace(heads, queries, cache.length + queries),
    cross: cross && makeTrace(heads, queries, cross.length),
  };
}

function add(x: Float32Array, y: Float32Array): Float32Array {
  const out = new Float32Array(x.length);
  for (let i = 0; i < x.length; i++) out[i] = x[i]! + y[i]!;
  return out;
}

function readSource(cross: AttentionWeights, source: Float32Array): Cache {
  const rows = source.length / cross.k.inputs;
  const places = Array.from({ length: rows }, (_, index) => index);
  const cache = makeCache(cross.k.columns, rows);
  appendToCache(cache, applyLinear(cross.k, source, rows), applyLinear(cross.v, source, rows), places);
  return cache;
}

function readLayer(data: ModelData, side: Side, weights: Weights, layer: number): LayerWeights {
  const name = `${side}.blocks.${layer}`;
  const { heads, headDim } = data.config;
  const keyHeads = data.rules.keyHeads;
  const query = heads * headDim;
  const key = keyHeads * headDim;
  const sizes = (where: "encoder" | "decoder" | "cross") => ({ heads, keyHeads, headDim, scale: data.rules.attentionScale[where] });
  const self = {
    q: weights.part(`${name}.attention.qkv`, 0, query),
    k: weights.part(`${name}.attention.qkv`, query, query + key),
    v: weights.part(`${name}.attention.qkv`, query + key, query + 2 * key),
    out: weights.linear(`${name}.attention.out`),
    norm: weights.norm(`${name}.attention_residual.norm`),
    sizes: sizes(side),
  };
  const cross = side === "encoder" ? null : {
    q: weights.linear(`${name}.cross.q`),
    k: weights.part(`${name}.cross.kv`, 0, key),
    v: weights.part(`${name}.cross.kv`, key, 2 * key),
    out: weights.linear(`${name}.cross.out`),
    norm: weights.norm(`${name}.cross_residual.norm`),
    sizes: sizes("cross"),
  };
  return {
    self,
    cross,
    up: weights.linear(`${name}.feed_forward.up`),
    down: weights.linear(`${name}.feed_forward.down`),
    feedForwardNorm: weights.norm(`${name}.feed_forward_residual.norm`),
  };
}
