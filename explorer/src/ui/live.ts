/** What the models say to a state: both translations of the sentence, with and without the changes. */

import { forEverySentence, type Controls, type LiveModel, type PositionedModel, type RecordedModel, type TokenInfo, type Trace, type Translation } from "../engine/api";
import { tellOutside } from "./outside";
import { makeControls, placePositions, type State } from "./state";

const TOM = "Tom bit a dog";

/** The sentence with which a model begins: Tom and the dog, or the first of its held-out ones. */
export function chooseText(model: LiveModel): string {
  if (model.texts.length > 0) return model.texts[0]!;
  return model.encodeText(TOM).unknown.length === 0 ? TOM : (model.heldOut[0]?.source ?? "");
}

/** Whether a model is shown as it was recorded. */
export function isRecorded(model: PositionedModel): model is RecordedModel {
  return model.config.kind === "recorded";
}

/** The positions of a sentence under a state: all that the hands and the sliders need. */
export interface Placed {
  model: PositionedModel;
  /** The tokens in the order in which they stand. */
  places: TokenInfo[];
  positions: number[];
  controls: Controls;
}

/** A sentence of a live model under a state. */
export interface Live extends Placed {
  model: LiveModel;
  text: string;
  typed: TokenInfo[];
  /** Which typed token stands at each place. */
  order: number[];
  unknown: boolean[];
  before: Translation | null;
  after: Translation | null;
  /** Why there is no translation. */
  problem: string;
  /** Why the sentence is outside of what the model was trained on: as typed, and in the order in which it stands. */
  outside: { typed: string; placed: string };
}

/** Keep the last few answers to a question: a drag asks the same ones many times. */
export function remember<T>(size: number): (key: string, make: () => T) => T {
  const known = new Map<string, T>();
  return (key, make) => {
    if (known.has(key)) return known.get(key)!;
    const value = make();
    if (known.size >= size) known.delete(known.keys().next().value!);
    known.set(key, value);
    return value;
  };
}

const translations = remember<Translation>(60);
const traces = remember<Trace>(6);

function keyOf(model: LiveModel, ids: readonly number[], controls: Controls): string {
  return JSON.stringify([model.id, ids, controls]);
}

/** Translate, or take what was translated before; `beam` 1 is greedy. */
export function translate(model: LiveModel, ids: readonly number[], controls: Controls, beam = 1): Translation {
  return translations(`${beam} ${keyOf(model, ids, controls)}`, () => model.translate({ ids, controls, beam }));
}

/** Trace a sentence and its own translation, or take what was traced before. */
export function trace(model: LiveModel, ids: readonly number[], controls: Controls, targetIds: number[]): Trace {
  const key = keyOf(model, [...ids, -1, ...targetIds], controls);
  return traces(key, () => model.forward({ ids, controls, targetIds }));
}

/** The changed sentence, whose decoder reads the untouched translation, so that it can be compared with the untouched one. */
export function traceAfter(live: Live): Trace {
  return trace(live.model, live.places.map((token) => token.id), live.controls, live.before!.tokens);
}

/** The untouched sentence with its translation. */
export function traceBefore(live: Live): Trace {
  return trace(live.model, live.typed.map((token) => token.id), {}, live.before!.tokens);
}

/** Translate a text as a model was trained, for what stands beside the sentence that is being changed. */
export function translateText(model: LiveModel, text: string, controls: Controls = {}): Translation {
  return translate(model, model.encodeText(text).ids, controls);
}

/** Compute everything that a reader sees of the sentence of a state. */
export function bringToLife(state: State, model: LiveModel): Live {
  const text = state.text ?? chooseText(model);
  const encoded = model.encodeText(text);
  const count = encoded.ids.length;
  const order = completeOrder(state.order, count);
  const places = order.map((index) => encoded.tokens[index]!);
  const unknown = order.map((index) => encoded.unknown.includes(index));
  const controls = makeControls(state, model);
  const positions = placePositions(state, count);
  const live: Live = { model, text, typed: encoded.tokens, order, places, unknown, positions, controls, before: null, after: null, problem: "", outside: { typed: "", placed: "" } };
  if (places.every((token) => token.special)) return { ...live, problem: model.config.kind === "decoder" ? "Type a text, and it is continued." : "Type a sentence, and it is translated." };
  live.outside = {
    typed: tellOutside(model, encoded.tokens, encoded.tokens.map((_, index) => encoded.unknown.includes(index)), text),
    placed: tellOutside(model, places, unknown, text),
  };
  try {
    live.before = translate(model, encoded.ids, {}, state.beam);
    live.after = translate(model, places.map((token) => token.id), controls, state.beam);
  } catch (fault) {
    live.problem = fault instanceof Error ? fault.message : String(fault);
  }
  return live;
}

/** Place the tokens of a recorded sentence: they stay in their order. */
export function place(state: State, model: RecordedModel, sentence: number): Placed {
  const places = model.data.sentences[sentence]?.tokens ?? [];
  return { model, places, positions: placePositions(state, places.length), controls: makeControls(state, model) };
}

/** A permutation of `count` places: the list, and behind it what it does not speak of; as typed where it is none. */
export function completeOrder(order: readonly number[], count: number): number[] {
  const typed = Array.from({ length: count }, (_, index) => index);
  const whole = order.length <= count && new Set(order).size === order.length && order.every((index) => index < order.length);
  return whole ? [...order, ...typed.slice(order.length)] : typed;
}

/** Whether a control changes the trained model, and not the words alone. */
export function isControlled(live: Placed): boolean {
  return Object.keys(live.controls).length > 0;
}

/** What can be counted over other sentences too: the controls without the positions of this one. */
export function generalise(controls: Controls): Controls {
  return forEverySentence(controls);
}

/** The model that knows all words of a text, with or without positions in its encoder. */
export function findModel(models: readonly LiveModel[], text: string, seeing: boolean): LiveModel | undefined {
  return models.find(
    (model) => (model.scheme.name !== "none") === seeing && model.encodeText(text).unknown.length === 0,
  );
}
