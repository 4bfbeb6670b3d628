/** What the models say to a state: both translations of the sentence, with and without the changes. */

import { forEverySentence, type Controls, type LiveModel, type TokenInfo, type Trace, type Translation } from "../engine/api";
import { makeControls, placePositions, type State } from "./state";

/** A sentence under a state. `places` are the tokens in the order in which they stand. */
export interface Live {
  model: LiveModel;
  typed: TokenInfo[];
  /** Which typed token stands at each place. */
  order: number[];
  places: TokenInfo[];
  unknown: boolean[];
  positions: number[];
  controls: Controls;
  before: Translation | null;
  after: Translation | null;
  /** Why there is no translation. */
  problem: string;
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

/** Translate greedily, or take what was translated before. */
export function translate(model: LiveModel, ids: readonly number[], controls: Controls): Translation {
  return translations(keyOf(model, ids, controls), () => model.translate({ ids, controls }));
}

/** Trace a sentence and its own translation, or take what was traced before. */
export function trace(model: LiveModel, ids: readonly number[], controls: Controls, targetIds: number[]): Trace {
  const key = keyOf(model, [...ids, -1, ...targetIds], controls);
  return traces(key, () => model.forward({ ids, controls, targetIds }));
}

/** Translate a text as a model was trained, for what stands beside the sentence that is being changed. */
export function translateText(model: LiveModel, text: string, controls: Controls = {}): Translation {
  return translate(model, model.encodeText(text).ids, controls);
}

/** Compute everything that a reader sees of the sentence of a state. */
export function bringToLife(state: State, model: LiveModel): Live {
  const encoded = model.encodeText(state.text);
  const count = encoded.ids.length;
  const order = isOrder(state.order, count) ? state.order : encoded.ids.map((_, index) => index);
  const places = order.map((index) => encoded.tokens[index]!);
  const unknown = order.map((index) => encoded.unknown.includes(index));
  const controls = makeControls(state, model);
  const positions = placePositions(state, count);
  const live: Live = { model, typed: encoded.tokens, order, places, unknown, positions, controls, before: null, after: null, problem: "" };
  if (places.every((token) => token.special)) return { ...live, problem: "Type a sentence, and it is translated." };
  try {
    live.before = translate(model, encoded.ids, {});
    live.after = translate(model, places.map((token) => token.id), controls);
  } catch (fault) {
    live.problem = fault instanceof Error ? fault.message : String(fault);
  }
  return live;
}

/** Whether a list is a permutation of `count` places. */
export function isOrder(order: readonly number[], count: number): boolean {
  return order.length === count && new Set(order).size === count && order.every((index) => index < count);
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
