/**
 * What the interface may ask of the engine: live models, their controls, traces and curves.
 *
 * The interface imports from this file alone. Matrices are row-major `Float32Array`s with their sizes beside them.
 * Everything here is synchronous and quick (a translation takes some milliseconds); what reads 200 sentences goes to
 * `EngineWorker`.
 */

import type { Strange } from "./familiar";

export { EngineError } from "./errors";
export { EngineWorker, loadModels, loadRecorded } from "./client";
export { forEverySentence } from "./evaluate";
export { computeFrequencies, similarityCurve, similarityOfHands, sinusoidTable } from "./hands";
export { readPage } from "./page";
export { RecordedModel } from "./recorded";
export type { Strange } from "./familiar";

/** One side of a model whose positions can be controlled. */
export type Side = "encoder" | "decoder";

/**
 * What can be changed about the positions of one side. What is left out stays as the model was trained; whatever does
 * not apply to the model's scheme (see `LiveModel.applicable`) throws an EngineError rather than being ignored.
 *
 * The order in which they act: `positions` (or the count 0, 1, …), `reversed`, `frozenAt`, `offset`, `shuffledRows`,
 * and then the scheme with its `base`, `stoppedHand`, `sineOnly` and `loudness`.
 */
export interface SideControls {
  /** The position of each token, real-valued; tokens beyond the list stand at their index. Counted from 0. */
  positions?: readonly number[];
  /** The last token of the side stands at 0 and the first at n - 1. Encoder only: a decoder does not know its n. */
  reversed?: boolean;
  /** Every token stands at this position. */
  frozenAt?: number;
  /** Added to every position: 1 counts from 1. */
  offset?: number;
  /** Seed of a permutation of the rows 0 to 63: position p gets the encoding of another position. */
  shuffledRows?: number;
  /** Base of the wavelengths of sinusoids or RoPE, above 1. */
  base?: number;
  /** The index of a pair of channels that does not turn: it stays where it is at position 0. */
  stoppedHand?: number;
  /** The cosine of every pair is 0. Sinusoids only. */
  sineOnly?: boolean;
  /** Factor of the position vectors or of the bias; 1 as trained. */
  loudness?: number;
  /** Whether token embeddings are multiplied by their scale, √d_model; `false` leaves it out, `true` sets it. */
  scaleTokens?: boolean;
}

/** The controls of a translation: those of the encoder, and in `targetControls` those of the decoder. */
export interface Controls extends SideControls {
  targetControls?: SideControls;
}

/** The name of one control. */
export type ControlName = keyof SideControls;

/** A token of a text: its id, and its text as a reader sees it (a leading space is kept). */
export interface TokenInfo {
  id: number;
  text: string;
  special: boolean;
}

/** A text as tokens; `unknown` lists the indices of tokens that the vocabulary does not have. */
export interface EncodedText {
  ids: number[];
  tokens: TokenInfo[];
  unknown: number[];
}

/**
 * A source with its controls. `beam` 1 (the default) is greedy search. `maxTokens`: the most tokens of the translation;
 * by default twice the source's, rounded up to a multiple of 16, and 50.
 */
export interface TranslationRequest {
  ids: readonly number[];
  controls: Controls;
  beam?: number;
  maxTokens?: number;
}

/** One written token: its probability, and the likeliest tokens at its place, the likeliest first. */
export interface WrittenToken extends TokenInfo {
  probability: number;
  top: { token: TokenInfo; probability: number }[];
}

/**
 * A translation. `tokens` are its ids with the end token, `text` is without special tokens; `logProbability` is the sum
 * of the natural log-probabilities of its tokens, and `confidence` the geometric mean of their probabilities.
 * `ended`: whether the end token was written before the bound on the length.
 */
export interface Translation {
  tokens: number[];
  text: string;
  logProbability: number;
  confidence: number;
  ended: boolean;
  perToken: WrittenToken[];
  /** Milliseconds of script time. */
  milliseconds: number;
}

/** A matrix of `rows` × `columns` numbers, row by row. */
export interface Matrix {
  rows: number;
  columns: number;
  values: Float32Array;
}

/**
 * The four terms of every score of an attention: what the word and the position of the query have to say to the word
 * and the position of the key, [heads, queries, keys] each; their sum is the logit. The norm in front of the attention
 * is held at what it is for the whole input, and every bias (of that norm, of the projections) belongs to the word. A
 * bias on the scores (ALiBi, T5) belongs to position-position.
 */
export interface FourTerms {
  wordWord: Float32Array;
  wordPosition: Float32Array;
  positionWord: Float32Array;
  positionPosition: Float32Array;
}

/**
 * One attention over `queries` × `keys`. `logits` and `weights` are [heads, queries, keys]; a masked pair has the logit
 * -Infinity and the weight 0. `terms` is null where the split is not exact: after the first layer, in
 * cross-attention, and where queries are rotated; masked pairs have terms too.
 */
export interface AttentionTrace {
  heads: number;
  queries: number;
  keys: number;
  logits: Float32Array;
  weights: Float32Array;
  terms: FourTerms | null;
}

/** What one stack computed: scaled embeddings, position vectors (null: none at the input), states after each layer. */
export interface StackTrace {
  /** The positions that the scheme read, one a token. */
  positions: number[];
  embeddings: Matrix;
  positionVectors: Matrix | null;
  input: Matrix;
  layers: { self: AttentionTrace; cross: AttentionTrace | null; output: Matrix }[];
  states: Matrix;
}

/** Everything of one forward pass. `outputs` has an entry for each target token: what the model would write there. */
export interface Trace {
  encoder: StackTrace;
  decoder: StackTrace;
  /** The ids that the decoder read: the start token and the target without its last token. */
  targetIds: number[];
  outputs: { top: { token: TokenInfo; logit: number; probability: number }[] }[];
  /** Logits of each target position, [targetIds.length, vocabulary]. */
  logits: Matrix;
}

/** A source and a target to trace; without `targetIds` the greedy translation under the same controls. */
export interface TraceRequest {
  ids: readonly number[];
  controls: Controls;
  targetIds?: readonly number[];
}

/**
 * What a head gives to a key at each distance (query - key), in logits. `how` is one sentence that says what was
 * averaged.
 */
export interface Kernel {
  distances: number[];
  values: Float32Array;
  how: string;
  /** What is drawn, where it is no score in logits. */
  title?: string;
}

/** The scheme of one side: its name in the catalogue, and its options with their values. */
export interface SchemeInfo {
  name: string;
  options: Record<string, unknown>;
  combine: "add" | "concatenate" | "project";
  /** Radians per position of each hand as trained; empty for schemes without hands. */
  frequencies: number[];
}

/** The sizes of a model. */
export interface ModelConfig {
  kind: "encoder-decoder" | "decoder" | "recorded";
  dModel: number;
  heads: number;
  headDim: number;
  dFf: number;
  encoderLayers: number;
  decoderLayers: number;
  norm: "pre" | "post";
  vocabulary: number;
  parameters: number;
}

/** A held-out sentence with its one right translation. */
export interface HeldOutPair {
  source: string;
  target: string;
}

/** How many of the held-out translations were right under controls, as PyTorch counted it when the page was made. */
export interface MeasuredCount {
  name: string;
  controls: Controls;
  right: number;
  of: number;
  /** The mean of `Translation.confidence`. */
  confidence: number;
}

/** A model whose positions are computed in the page, whether it runs there or not. */
export interface PositionedModel {
  /** Its key: stands in the address of the page, and names the model to `EngineWorker`. */
  readonly id: string;
  readonly label: string;
  /** What it was trained to do, in a phrase: "German number words to English"; of a recorded model its positions. */
  readonly task: string;
  readonly scheme: SchemeInfo;
  readonly targetScheme: SchemeInfo;
  readonly config: ModelConfig;
  /** The controls that act on each side of this model. */
  readonly applicable: Record<Side, readonly ControlName[]>;

  /** The vectors that the encoder's scheme adds (or concatenates) at positions 0 to rows - 1, or null if it has none. */
  positionTable(controls: Controls, rows: number): Matrix | null;
  /** Radians per position of each hand of the encoder under the controls (a stopped hand has 0). */
  frequencies(controls: Controls): number[];
  /** The kernel of a head of the encoder's self-attention; null where position does not enter its scores directly. */
  kernel(layer: number, head: number, controls: Controls): Kernel | null;
}

/** A model that runs in the page. */
export interface LiveModel extends PositionedModel {
  readonly vocabulary: readonly TokenInfo[];
  readonly heldOut: readonly HeldOutPair[];
  readonly measured: readonly MeasuredCount[];
  /** The factor on the vectors of words with which the encoder was trained: √d, 1, or a learned number. */
  readonly tokenScale: number;
  /** The mean lengths of the vectors of words and positions, over the text that `clockhands inspect` reads. */
  readonly lengths: { word: number; position: number } | null;
  /** Sentences that whoever made the page wants to be seen. */
  readonly texts: readonly string[];

  encodeText(text: string): EncodedText;
  /** What a text has that no text of training had; null where there is nothing, or nothing is known of training. */
  findStrange(ids: readonly number[]): Strange | null;
  decodeIds(ids: readonly number[]): string;
  /** Throws an EngineError for controls that do not apply, and for an empty source. */
  translate(request: TranslationRequest): Translation;
  forward(request: TraceRequest): Trace;
  /** Cosine of the angle between each two rows of `positionTable`; null where that is null. */
  similarity(controls: Controls, rows: number): Matrix | null;
}

/**
 * How far a count over the held-out sentences has come: `right` of the `done` so far, of `of` altogether. `confidence`
 * is the mean of `Translation.confidence` over those that are done: it moves before any translation does.
 */
export interface HeldOutProgress {
  right: number;
  confidence: number;
  done: number;
  of: number;
}
