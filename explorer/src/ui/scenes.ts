/**
 * The scenes: the three questions with which a reader begins, and the others of the answers page. A step says what is
 * set, never what comes of it: that is said by the live model (`tellChange`, the count), and at the end by the answer.
 */

import type { LiveModel } from "../engine/api";
import { concludeBase, concludeOrder, concludeRights, concludeScale, type Conclude } from "./conclusions";
import { readAddress, writeAddress } from "./address";
import { tellSlowest } from "./clockwork";
import { tellLengths, tellStep } from "./loudness";
import { findModel, type Live } from "./live";
import { DEFAULTS, type State } from "./state";

/**
 * `reader`: the model that reads "Tom bit a dog" with positions, or else any that has them. `unscaled`: one that was
 * trained without √d. Any other name is the key of a model, which only a page that holds it can play.
 */
export type Cast = "numbers" | "roles" | "reader" | "blind" | "unscaled" | `=${string}`;
/** The part of the page that a step is about. */
export type Place = "sentence" | "sliders" | "hands" | "attention";

export interface Step {
  say: string;
  set: Partial<State> | ((model: LiveModel) => Partial<State>);
  look: Place;
  /** What the live model tells at this step, where it is more than what it writes. */
  tell?: (live: Live) => string;
  /** The model of this step, where it is another one than the scene's. */
  cast?: Cast;
  /** Whether the count over the held-out sentences belongs to it. */
  count?: boolean;
}

export interface Scene {
  /** Its name in addresses, which is that of the question, and its short title. */
  study: string;
  title: string;
  /** The name of the question, where the scene has another. */
  question?: string;
  cast: Cast;
  steps: Step[];
  /** What the models of the page make of the question: a plain answer, and a table with the numbers. */
  conclude?: Conclude;
  /** What the names and units in the answer mean, shown with it. */
  explain?: string;
}

const TOM = "Tom bit a dog";
const LONGER = "a small dog in the old house bit Tom";
const BIASES = "ALiBi and KERPLE lower the score of a pair of tokens, the more the further apart they are.";
const ROTARY = "Rotary embedding adds nothing: it turns queries and keys like hands.";
/** How many questions come first. */
export const FIRST = 3;
const LOOK_TERMS: Partial<State> = { stack: "encoder", layer: 0, head: 0, quantity: "scores", view: "after" };

export const SCENES: readonly Scene[] = [
  {
    study: "order-at-all",
    title: "What becomes of “Tom bit a dog” without positions?",
    cast: "roles",
    conclude: concludeOrder,
    steps: [
      { say: "This model was trained with positions. It translates into Esperanto, where -n marks the one who is bitten.", set: { text: TOM }, look: "sentence", count: true },
      { say: "The same words in the other order.", set: { text: TOM, order: [2, 3, 1, 0] }, look: "sentence" },
      { say: "Another model, trained without positions, reads “Tom bit a dog”.", set: { text: TOM }, cast: "blind", look: "sentence", count: true },
      { say: "The model without positions reads the other order.", set: { text: TOM, order: [2, 3, 1, 0] }, cast: "blind", look: "sentence" },
    ],
  },
  {
    study: "scale",
    title: "Why are words multiplied by √d?",
    cast: "numbers",
    conclude: concludeScale,
    steps: [
      { say: "This model was trained with √d: it reads the vector of a word, times √d, plus the vector of its position. The bars show how long each of the two is.", set: {}, look: "sliders", count: true, tell: tellLengths },
      { say: "Another model, trained without √d from its first step on, and otherwise the same way.", set: {}, cast: "unscaled", look: "sliders", count: true, tell: tellLengths },
    ],
  },
  {
    study: "why-10000",
    title: "What does the base do?",
    cast: "reader",
    conclude: concludeBase,
    steps: [
      { say: "A fast hand tells neighbours apart, a slow one near from far.", set: { clock: 20 }, look: "hands", count: true, tell: tellSlowest },
      { say: "A base of 10: all hands but the first are faster.", set: { clock: 20, base: 10 }, look: "hands", count: true, tell: tellSlowest },
      { say: "A base of 100,000: all hands but the first are slower.", set: { clock: 20, base: 1e5 }, look: "hands", count: true, tell: tellSlowest },
    ],
  },
  {
    study: "why-sine-and-cosine",
    title: "Why sine and cosine?",
    cast: "numbers",
    steps: [
      { say: "Sine and cosine of each angle: the curve shows how alike every position is to this one.", set: { clock: 20 }, look: "hands", count: true },
      { say: "Only the left–right part of each hand is kept. Turn a hand: the curve is no longer the same around every position.", set: { clock: 20, sineOnly: true }, look: "hands", count: true },
      { say: "Both again, but each position gets the vector of another one.", set: { shuffledRows: 1 }, look: "sentence", count: true },
      { say: "A base of 10: even the slowest hand turns quickly.", set: { base: 10 }, look: "sliders", count: true },
    ],
  },
  {
    study: "four-parts",
    title: "What do the four terms of a score do?",
    cast: "roles",
    steps: [
      { say: "Word and position are added, and yet every score falls into four terms, of which two mix them.", set: { text: TOM, ...LOOK_TERMS }, look: "attention" },
      { say: "The words' term alone.", set: { text: TOM, ...LOOK_TERMS, terms: 1 }, look: "attention" },
      { say: "The positions' term alone.", set: { text: TOM, ...LOOK_TERMS, terms: 8 }, look: "attention" },
      { say: "The two mixed terms: what a word has to say to a place, and a place to a word.", set: { text: TOM, ...LOOK_TERMS, terms: 6 }, look: "attention" },
    ],
  },
  {
    study: "does-adding-destroy-the-word",
    title: "Does adding destroy the word?",
    cast: "numbers",
    steps: [
      { say: "As trained: a word with its position added, read and translated.", set: {}, look: "sliders", count: true },
      { say: "Positions twice as loud as in training.", set: { loudness: 2 }, look: "sliders", count: true },
      { say: "Ten times as loud.", set: { loudness: 10 }, look: "sliders", count: true },
      { say: "A tenth as loud.", set: { loudness: 0.1 }, look: "sliders", count: true },
    ],
  },
  {
    study: "why-not-the-index",
    title: "Why not simply the index?",
    cast: "numbers",
    steps: [
      { say: "An index grows without end. A hand only turns: move the position along, and look at the size of its vector's bars.", set: { length: 512, clock: 3 }, look: "hands" },
      { say: "Position 500: every bar is still between −1 and 1.", set: { length: 512, clock: 500 }, look: "hands" },
      { say: "A clock has no beginning, but a model may have learned one: counted from 5, the same words stand elsewhere on every dial.", set: { offset: 5 }, look: "sentence", count: true },
    ],
  },
  {
    study: "do-positions-survive",
    title: "Do positions survive the layers?",
    cast: "roles",
    steps: [
      { say: "The first layer of the encoder. Its attention is compared with that after all words were put at one position.", set: { text: TOM, frozenAt: 0, view: "difference", layer: 0 }, look: "attention" },
      { say: "The second layer, to which no position is added: what it knows of them came out of the first.", set: { text: TOM, frozenAt: 0, view: "difference", layer: 1 }, look: "attention" },
    ],
  },
  {
    study: "the-schemes",
    title: "Which encoding should I use?",
    cast: "roles",
    explain: ROTARY,
    steps: [
      { say: "Sinusoids, added to the words.", set: { text: TOM }, look: "sentence", count: true },
      { say: "No encoding at all: another model.", set: { text: TOM }, cast: "blind", look: "sentence", count: true },
    ],
  },
  {
    study: "how-far",
    title: "What beyond the trained length?",
    cast: "roles",
    explain: BIASES,
    steps: [
      { say: "A sentence counted from 0, as in training.", set: { text: TOM }, look: "sentence", count: true },
      { say: "Counted from 1.", set: { text: TOM, offset: 1 }, look: "sentence", count: true },
      { say: "Counted from 30, as if thirty words stood before it.", set: { text: TOM, offset: 30 }, look: "sentence", count: true },
    ],
  },
  {
    study: "scale-steps",
    title: "With √d and without, step by step",
    question: "scale",
    cast: "=numbers",
    conclude: concludeRights,
    steps: [
      { say: "After 100 steps of training with √d.", set: {}, cast: "=numbers-100", look: "sliders", count: true, tell: tellLengths },
      { say: "The same 100 steps without √d.", set: {}, cast: "=numbers-no-scale-100", look: "sliders", count: true, tell: tellLengths },
      { say: "After 140 steps of training with √d.", set: {}, cast: "=numbers-140", look: "sliders", count: true, tell: tellLengths },
      { say: "The same 140 steps without √d.", set: {}, cast: "=numbers-no-scale-140", look: "sliders", count: true, tell: tellLengths },
      { say: "After 800 steps of training with √d.", set: {}, cast: "=numbers", look: "sliders", count: true, tell: tellLengths },
      { say: "The same 800 steps without √d.", set: {}, cast: "=numbers-no-scale", look: "sliders", count: true, tell: tellLengths },
    ],
  },
  {
    study: "index-trained",
    title: "Two models that were trained with the index",
    question: "why-not-the-index",
    cast: "=roles-index",
    conclude: concludeRights,
    steps: [
      { say: "Trained with the index itself: the vector of place 5 is five times that of place 1.", set: { text: TOM }, look: "sentence", count: true, tell: tellLengths },
      { say: "The same words counted from 30, where training never was.", set: { text: TOM, offset: 30 }, look: "sentence", count: true, tell: tellLengths },
      { say: "A model of the sinusoid, counted from 30, where training never was either.", set: { text: TOM, offset: 30 }, cast: "=roles", look: "sentence", count: true, tell: tellLengths },
      { say: "Trained with the index over the length, from 0 for the first token to 8 for the last.", set: { text: TOM }, cast: "=roles-index-over-length", look: "sentence", count: true, tell: tellStep },
      { say: "The same model, a longer sentence.", set: { text: LONGER }, cast: "=roles-index-over-length", look: "sentence", tell: tellStep },
    ],
  },
  {
    study: "residuals",
    title: "With residual connections, and without",
    question: "do-positions-survive",
    cast: "=roles",
    conclude: concludeRights,
    steps: [
      { say: "This translator was trained with residual connections: each layer adds to what it got.", set: { text: TOM }, look: "sentence", count: true },
      { say: "The same training without them: each layer hands on only what it computed.", set: { text: TOM }, cast: "=roles-no-residual", look: "sentence", count: true },
      { say: "A third translator never had positions, but has its residual connections.", set: { text: TOM }, cast: "=roles-no-position", look: "sentence", count: true },
      { say: "With residual connections, all words at one place: the second layer, to which no position is added.", set: { text: TOM, frozenAt: 0, view: "difference", layer: 1 }, look: "attention" },
      { say: "Without them, all words at one place: the second layer again.", set: { text: TOM, frozenAt: 0, view: "difference", layer: 1 }, cast: "=roles-no-residual", look: "attention" },
    ],
  },
  {
    study: "sum-or-concatenate",
    title: "Why add, not concatenate?",
    cast: "=roles",
    conclude: concludeRights,
    steps: [
      { say: "This model adds each position to its word: 64 channels hold both.", set: { text: TOM }, look: "sentence", count: true },
      { say: "This one puts them side by side: 48 channels for the word, 16 for its position.", set: { text: TOM }, cast: "=roles-side-by-side", look: "sentence", count: true },
      { say: "The other order, read by the sum.", set: { text: TOM, order: [2, 3, 1, 0] }, look: "sentence" },
      { say: "The other order, read side by side.", set: { text: TOM, order: [2, 3, 1, 0] }, cast: "=roles-side-by-side", look: "sentence" },
    ],
  },
  {
    study: "learned-or-fixed",
    title: "Learned or fixed positions?",
    cast: "=roles",
    conclude: concludeRights,
    steps: [
      { say: "A fixed sinusoid: the numbers below were written down before training. The curve shows how alike each place is to this one.", set: { clock: 5 }, look: "hands", count: true },
      { say: "A learned table began as noise. What it learned is shown for the places that its texts reached; the others stayed as they began.", set: { clock: 5 }, cast: "=roles-learned", look: "hands", count: true },
    ],
  },
];

/** The model that plays a part; the first one where the page holds none that fits. */
export function castModel(models: readonly LiveModel[], part: Cast): LiveModel {
  if (part.startsWith("=")) return models.find((model) => `=${model.id}` === part) ?? models[0]!;
  const told = findModel(models, TOM, part !== "blind");
  if (part === "reader") return told ?? models.find((model) => model.scheme.name !== "none") ?? models[0]!;
  if (part === "unscaled") return models.find(isUnscaled) ?? models[0]!;
  if (part !== "numbers") return told ?? models[0]!;
  return models.find((model) => model.scheme.name !== "none" && model !== told && !isUnscaled(model)) ?? models[0]!;
}

function isUnscaled({ scheme, tokenScale }: LiveModel): boolean {
  return scheme.name === "sinusoidal" && scheme.combine === "add" && tokenScale === 1;
}

/** Whether the page has the model that a scene needs. */
export function canPlay(models: readonly LiveModel[], scene: Scene): boolean {
  const parts = new Set([scene.cast, ...scene.steps.flatMap((step) => step.cast ?? [])]);
  return [...parts].every((part) => {
    const model = castModel(models, part);
    if (part.startsWith("=")) return `=${model.id}` === part;
    if (part === "blind") return model.scheme.name === "none";
    if (part === "unscaled") return isUnscaled(model);
    return model.scheme.name === "sinusoidal" && (part !== "roles" || model.encodeText(TOM).unknown.length === 0);
  });
}

/** The state of an address. One that names a scene and its step and nothing else means all that this step sets. */
export function playAddress(models: readonly LiveModel[], fragment: string): State {
  const state = readAddress(fragment);
  const scene = SCENES.find((candidate) => candidate.study === state.scene);
  const { embedded } = state;
  const short = writeAddress({ ...DEFAULTS, scene: state.scene, step: state.step, embedded }) === writeAddress(state);
  const translators = models.filter((candidate) => candidate.config.kind === "encoder-decoder");
  return scene && short && canPlay(translators, scene) ? { ...playStep(translators, scene, state.step), embedded } : state;
}

/** The whole state of one step: everything else is as it was trained. */
export function playStep(models: readonly LiveModel[], scene: Scene, step: number): State {
  const played = scene.steps[Math.min(step, scene.steps.length - 1)]!;
  const model = castModel(models, played.cast ?? scene.cast);
  const set = typeof played.set === "function" ? played.set(model) : played.set;
  return { ...DEFAULTS, model: model.id, ...set, scene: scene.study, step };
}
