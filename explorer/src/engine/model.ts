/** A model that runs in the page: text to tokens, tokens to a translation, and everything that was computed between. */

import type {
  Controls,
  EncodedText,
  Kernel,
  LiveModel,
  Matrix,
  Side,
  SideControls,
  StackTrace,
  TokenInfo,
  Trace,
  TraceRequest,
  Translation,
  TranslationRequest,
} from "./api";
import { applyLinear, findLargest, type Linear, logSoftmax } from "./arithmetic";
import { checkControls, placeToken, placeTokens } from "./controls";
import { DescribedModel } from "./described";
import { EngineError } from "./errors";
import { findStrange, type Strange } from "./familiar";
import { measureKernel } from "./kernel";
import type { ModelData } from "./page";
import { type LiveScheme, makeScheme } from "./schemes";
import { boundLength, type Hypothesis, searchBeam, searchGreedily, type Written } from "./search";
import { copyState, Stack, type StackState } from "./stack";
import { Tokenizer } from "./tokenizer";
import { Weights } from "./weights";

/** So many of the likeliest tokens are told of every place. */
export const TOP = 5;

/** The greatest number of hypotheses of a search. */
export const WIDEST_BEAM = 16;

/** So many tokens does a language model write. */
export const CONTINUATION = 24;

/** What a side computes with under controls. */
export interface ControlledSide {
  controls: SideControls;
  scheme: LiveScheme;
  scale: number;
}

/** A source that the encoder has read. */
export interface ReadSource {
  states: Float32Array;
  trace: StackTrace | null;
}

/** The implementation of `LiveModel`. */
export class Transformer extends DescribedModel<ModelData> implements LiveModel {
  readonly encoder: Stack;
  /** null: a language model, whose one stack is the encoder here and attends to what came before. */
  readonly decoder: Stack | null;
  readonly vocabulary: readonly TokenInfo[];
  private readonly output: Linear;
  private readonly source: Tokenizer;
  private readonly target: Tokenizer;
  private readonly tables: Record<Side, Matrix | null>;

  constructor(data: ModelData, numbers: Float32Array) {
    super(data);
    const weights = new Weights(data, numbers);
    this.encoder = new Stack(data, "encoder", weights);
    this.decoder = data.config.kind === "decoder" ? null : new Stack(data, "decoder", weights);
    this.output = weights.linear("output");
    this.tables = {
      encoder: weights.has("encoder.table") ? weights.matrix("encoder.table") : null,
      decoder: weights.has("decoder.table") ? weights.matrix("decoder.table") : null,
    };
    const number = (tokens: { text: string; special: boolean }[]) => tokens.map((token, id) => ({ id, ...token }));
    this.source = new Tokenizer(number(data.tokens), data.tokenizer);
    this.vocabulary = this.source.tokens;
    this.target = new Tokenizer(number(data.targetTokens ?? data.tokens), data.targetTokenizer);
  }

  get scheme() {
    return this.data.schemes.encoder;
  }
  get targetScheme() {
    return this.data.schemes.decoder;
  }
  get tokenScale() {
    return this.data.rules.tokenScale.encoder;
  }

  get lengths() {
    return this.data.lengths ?? null;
  }

  get heldOut() {
    return this.data.heldOut;
  }
  /** Texts over which means are taken: the held-out ones, or where nobody knows any, those that were given. */
  get samples(): readonly string[] {
    return this.heldOut.length > 0 ? this.heldOut.map((pair) => pair.source) : this.texts;
  }
  get measured() {
    return this.data.measured;
  }
  get texts() {
    return this.data.texts ?? [];
  }

  encodeText(text: string): EncodedText {
    return this.source.encode(text);
  }

  findStrange(ids: readonly number[]): Strange | null {
    const { trained } = this.data;
    const places = ids.flatMap((id, place) => (this.vocabulary[id]!.special ? [] : [place]));
    if (!trained || places.length === 0) return null;
    const found = findStrange(trained, places.map((place) => ids[place]!), this.vocabulary.length);
    return found && { ...found, places: found.places.map((index) => places[index]!) };
  }

  decodeIds(ids: readonly number[]): string {
    return this.target.decode(ids);
  }

  translate({ ids, controls, beam = 1, maxTokens }: TranslationRequest): Translation {
    const started = performance.now();
    if (!(Number.isInteger(beam) && beam >= 1 && beam <= WIDEST_BEAM)) {
      throw new EngineError(`A beam of ${beam} is no whole number from 1 to ${WIDEST_BEAM}.`);
    }
    if (maxTokens !== undefined && !(Number.isInteger(maxTokens) && maxTokens >= 1)) {
      throw new EngineError(`A translation of at most ${maxTokens} tokens cannot be written; give 1 or more.`);
    }
    const most = maxTokens ?? (this.decoder ? boundLength(ids.length) : CONTINUATION);
    const { startId, endIds: ends } = this.data.rules;
    const hypothesis = this.decoder ? this.beginTranslation(this.decoder, ids, controls, most) : this.beginContinuation(ids, controls, most);
    const bounds = { start: this.decoder ? startId : ids.at(-1)!, ends, most };
    const written = beam === 1 ? searchGreedily(hypothesis, bounds) : searchBeam(hypothesis, beam, bounds);
    return { ...this.describe(written), milliseconds: performance.now() - started };
  }

  forward({ ids, controls, targetIds }: TraceRequest): Trace {
    if (!this.decoder) return this.readText(ids, controls);
    const whole = targetIds ?? this.translate({ ids, controls }).tokens;
    const read = [this.data.rules.startId, ...whole.slice(0, -1)];
    this.checkIds(read, this.target.tokens.length);
    const { states, trace: encoder } = this.readSource(ids, controls, true);
    const side = this.control("decoder", controls.targetControls ?? {});
    const positions = placeTokens(side.controls, read.length);
    const { state, trace } = this.readTokens(this.decoder, read, positions, side, states);
    const rows = read.length;
    const logits = { rows, columns: this.output.columns, values: this.computeLogits(state, rows) };
    const outputs = read.map((_, row) => ({ top: this.rank(logits.values, row * this.output.columns) }));
    return { encoder: encoder!, decoder: trace, targetIds: read, outputs, logits };
  }

  positionTable(controls: Controls, rows: number): Matrix | null {
    const { controls: own, scheme } = this.control("encoder", { ...controls, positions: undefined });
    return scheme.encode(placeTokens(own, rows));
  }

  similarity(controls: Controls, rows: number): Matrix | null {
    const table = this.positionTable(controls, rows);
    return table && compareRows(table);
  }

  frequencies(controls: Controls): number[] {
    return this.control("encoder", controls).scheme.frequencies;
  }

  kernel(layer: number, head: number, controls: Controls): Kernel | null {
    return measureKernel(this, layer, head, controls);
  }

  /** Check the controls of a side, and make its scheme under them. Throws an EngineError. */
  control(side: Side, given: SideControls): ControlledSide {
    const { targetControls: _, ...own } = given as Controls;
    const rules = this.data.schemes[side];
    checkControls(own, this.data.applicable[side], rules.frequencies.length);
    const tokenScale = this.data.rules.tokenScale[side];
    const scale = own.scaleTokens === undefined ? tokenScale : own.scaleTokens ? Math.sqrt(this.config.dModel) : 1;
    return { controls: own, scheme: makeScheme(rules, this.tables[side], own), scale };
  }

  /** Run the encoder. Throws an EngineError for an empty source and for ids that are not in the vocabulary. */
  readSource(ids: readonly number[], controls: Controls, traced: boolean): ReadSource {
    if (!ids.length) throw new EngineError("There is no text to translate.");
    this.checkIds(ids, this.vocabulary.length);
    const side = this.control("encoder", controls);
    const positions = placeTokens(side.controls, ids.length);
    if (traced) {
      const { state, trace } = this.readTokens(this.encoder, ids, positions, side, null);
      return { states: state, trace };
    }
    const input = this.encoder.embed(ids, positions, side.scheme, side.scale);
    const state = this.encoder.begin(ids.length, null);
    return { states: this.encoder.read(input, positions, side.scheme, state, null), trace: null };
  }

  /** Run a stack over a whole text, and keep everything. */
  private readTokens(
    stack: Stack,
    ids: readonly number[],
    positions: number[],
    side: ControlledSide,
    source: Float32Array | null,
  ): { state: Float32Array; trace: StackTrace } {
    const input = stack.embed(ids, positions, side.scheme, side.scale);
    const { embeddings, positionVectors } = input;
    const trace: StackTrace = {
      positions,
      embeddings,
      positionVectors,
      input: stack.asMatrix(input.input),
      layers: [],
      states: stack.asMatrix(input.input),
    };
    const state = stack.read(input, positions, side.scheme, stack.begin(ids.length, source), trace);
    trace.states = stack.asMatrix(state);
    return { state, trace };
  }

  private beginTranslation(decoder: Stack, ids: readonly number[], controls: Controls, room: number): Hypothesis {
    const { states } = this.readSource(ids, controls, false);
    const side = this.control("decoder", controls.targetControls ?? {});
    return this.makeHypothesis(decoder, side, decoder.begin(room, states), 0, room);
  }

  /** Read a text but for its last token, from which a search begins. */
  private beginContinuation(ids: readonly number[], controls: Controls, most: number): Hypothesis {
    if (!ids.length) throw new EngineError("There is no text to continue.");
    this.checkIds(ids, this.vocabulary.length);
    const side = this.control("encoder", controls);
    const known = ids.slice(0, -1);
    const state = this.encoder.begin(ids.length + most, null);
    if (known.length > 0) {
      const positions = placeTokens(side.controls, ids.length).slice(0, -1);
      this.encoder.read(this.encoder.embed(known, positions, side.scheme, side.scale), positions, side.scheme, state, null);
    }
    return this.makeHypothesis(this.encoder, side, state, known.length, ids.length + most);
  }

  private makeHypothesis(stack: Stack, side: ControlledSide, first: StackState, known: number, room: number): Hypothesis {
    const make = (state: StackState, read: number): Hypothesis => ({
      step: (token) => {
        const position = [placeToken(side.controls, read++, room)];
        const input = stack.embed([token], position, side.scheme, side.scale);
        return this.computeLogits(stack.read(input, position, side.scheme, state, null), 1);
      },
      fork: () => make(copyState(state), read),
    });
    return make(first, known);
  }

  /** Everything of a forward pass of a language model over a text. */
  private readText(ids: readonly number[], controls: Controls): Trace {
    const { states, trace } = this.readSource(ids, controls, true);
    const { columns } = this.output;
    const logits = { rows: ids.length, columns, values: this.computeLogits(states, ids.length) };
    const outputs = ids.map((_, row) => ({ top: this.rank(logits.values, row * columns) }));
    return { encoder: trace!, decoder: trace!, targetIds: [...ids], outputs, logits };
  }

  private computeLogits(states: Float32Array, rows: number): Float32Array {
    const { outputScale } = this.data.rules;
    return applyLinear(this.output, outputScale === 1 ? states : states.map((value) => outputScale * value), rows);
  }

  private checkIds(ids: readonly number[], size: number): void {
    const strange = ids.find((id) => !(Number.isInteger(id) && id >= 0 && id < size));
    if (strange !== undefined) throw new EngineError(`There is no token ${strange}: the vocabulary has 0 to ${size - 1}.`);
  }

  private rank(logits: Float32Array, start: number): { token: TokenInfo; logit: number; probability: number }[] {
    const logProbabilities = logSoftmax(logits, start, this.output.columns);
    return findLargest(logProbabilities, TOP).map((id) => {
      return { token: this.target.tokens[id]!, logit: logits[start + id]!, probability: Math.exp(logProbabilities[id]!) };
    });
  }

  private describe({ tokens, logProbability, steps }: Written): Omit<Translation, "milliseconds"> {
    const perToken = tokens.map((id, place) => {
      const step = steps[place]!;
      const top = findLargest(step, TOP).map((other) => {
        return { token: this.target.tokens[other]!, probability: Math.exp(step[other]!) };
      });
      return { ...this.target.tokens[id]!, probability: Math.exp(step[id]!), top };
    });
    const confidence = Math.exp(logProbability / tokens.length);
    const ended = this.data.rules.endIds.includes(tokens.at(-1)!);
    return { tokens, text: this.decodeIds(tokens), logProbability, confidence, ended, perToken };
  }
}

/** The cosine of the angle between each two rows; 0 where a row is zero. */
export function compareRows({ rows, columns, values }: Matrix): Matrix {
  const unit = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    let squares = 0;
    for (let i = 0; i < columns; i++) squares += values[row * columns + i]! ** 2;
    const inverse = squares > 0 ? 1 / Math.sqrt(squares) : 0;
    for (let i = 0; i < columns; i++) unit[row * columns + i] = inverse * values[row * columns + i]!;
  }
  const layer = { weight: unit, bias: null, inputs: columns, columns: rows };
  return { rows, columns: rows, values: applyLinear(layer, unit, rows) };
}
