/**
 * The ten scenes: one for each question of the answers page. A step says what is set, never what comes of it: that is
 * said by the live model (`tellChange`, the count), and at the end by the study.
 */

import type { LiveModel } from "../engine/api";
import { findModel } from "./live";
import { DEFAULTS, type State } from "./state";

export type Cast = "numbers" | "roles" | "blind";
/** The part of the page that a step is about. */
export type Place = "sentence" | "sliders" | "hands" | "attention";

export interface Step {
  say: string;
  set: Partial<State>;
  look: Place;
  /** The model of this step, where it is another one than the scene's. */
  cast?: Cast;
  /** Whether the count over the held-out sentences belongs to it. */
  count?: boolean;
}

export interface Scene {
  /** The name of the study that measured the answer, and its short question. */
  study: string;
  title: string;
  cast: Cast;
  steps: Step[];
}

const TOM = "Tom bit a dog";
const LOOK_TERMS: Partial<State> = { stack: "encoder", layer: 0, head: 0, quantity: "scores", view: "after" };

export const SCENES: readonly Scene[] = [
  {
    study: "order-at-all",
    title: "Does it need positions at all?",
    cast: "roles",
    steps: [
      { say: "A translator that was trained with positions. Esperanto marks with -n the one to whom it is done.", set: { text: TOM }, look: "sentence", count: true },
      { say: "The same words in the other order.", set: { text: TOM, order: [2, 3, 1, 0] }, look: "sentence" },
      { say: "Tom first again, but all words now stand at position 0.", set: { text: TOM, frozenAt: 0 }, look: "sentence", count: true },
      { say: "Another model, which never had positions: the words change places.", set: { text: TOM, order: [2, 3, 1, 0] }, cast: "blind", look: "sentence", count: true },
    ],
  },
  {
    study: "scale",
    title: "Why times √d?",
    cast: "numbers",
    steps: [
      { say: "The words are multiplied by √d before their positions are added. The two bars are their lengths.", set: {}, look: "sliders", count: true },
      { say: "Without √d, in this model that was trained with it: see the bars, and the count.", set: { scaleTokens: false }, look: "sliders", count: true },
      { say: "Still without √d, but positions quieter as well, by a factor of 8: the proportion of the two is as trained.", set: { scaleTokens: false, loudness: 0.125 }, look: "sliders", count: true },
    ],
  },
  {
    study: "why-sine-and-cosine",
    title: "Why sine and cosine?",
    cast: "numbers",
    steps: [
      { say: "Sine and cosine of each angle: the curve shows how alike every position is to this one.", set: { clock: 20 }, look: "hands", count: true },
      { say: "Every cosine is set to 0. Turn a hand: the curve is no longer the same around every position.", set: { clock: 20, sineOnly: true }, look: "hands", count: true },
      { say: "Both again, but each position gets the vector of another one.", set: { shuffledRows: 1 }, look: "sentence", count: true },
      { say: "A base of 10: even the slowest hand turns quickly. This model was trained with another.", set: { base: 10 }, look: "sliders", count: true },
    ],
  },
  {
    study: "sum-or-concatenate",
    title: "Why add, not concatenate?",
    cast: "roles",
    steps: [
      { say: "Word and position are added, and yet every score falls into four terms, of which two mix them.", set: { text: TOM, ...LOOK_TERMS }, look: "attention" },
      { say: "The words' term alone.", set: { text: TOM, ...LOOK_TERMS, terms: 1 }, look: "attention" },
      { say: "The positions' term alone.", set: { text: TOM, ...LOOK_TERMS, terms: 8 }, look: "attention" },
      { say: "The two mixed terms, which a score of two separate vectors would not have.", set: { text: TOM, ...LOOK_TERMS, terms: 6 }, look: "attention" },
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
    study: "how-wide",
    title: "How wide must a model be?",
    cast: "numbers",
    steps: [
      { say: "A clock with 4 hands: 8 channels. The curve shows which other positions look like this one.", set: { width: 8, clock: 20 }, look: "hands" },
      { say: "32 hands: 64 channels, as in this model.", set: { clock: 20 }, look: "hands" },
      { say: "256 hands: 512 channels, as in the paper's model.", set: { width: 512, clock: 20 }, look: "hands" },
    ],
  },
  {
    study: "why-not-the-index",
    title: "Why not simply the index?",
    cast: "numbers",
    steps: [
      { say: "An index grows without end. A hand only turns: move the position along, and look at the size of its vector's bars.", set: { length: 512, clock: 3 }, look: "hands" },
      { say: "Position 500: every bar is still between −1 and 1.", set: { length: 512, clock: 500 }, look: "hands" },
      { say: "But this model has learned where sentences start: counted from 5, the same words stand elsewhere on every clock.", set: { offset: 5 }, look: "sentence", count: true },
    ],
  },
  {
    study: "do-positions-survive",
    title: "Do positions survive the layers?",
    cast: "roles",
    steps: [
      { say: "The first layer of the encoder. Its attention is compared with that after all words were put at one position.", set: { text: TOM, frozenAt: 0, view: "difference", layer: 0 }, look: "attention" },
      { say: "The last layer, which sees positions only through what the first one left of them.", set: { text: TOM, frozenAt: 0, view: "difference", layer: 1 }, look: "attention" },
    ],
  },
  {
    study: "the-schemes",
    title: "Which encoding should I use?",
    cast: "roles",
    steps: [
      { say: "Sinusoids, added to the words.", set: { text: TOM }, look: "sentence", count: true },
      { say: "No encoding at all: another model, trained in the same way.", set: { text: TOM }, cast: "blind", look: "sentence", count: true },
    ],
  },
  {
    study: "how-far",
    title: "What beyond the trained length?",
    cast: "roles",
    steps: [
      { say: "A sentence counted from 0, as in training.", set: { text: TOM }, look: "sentence", count: true },
      { say: "Counted from 1.", set: { text: TOM, offset: 1 }, look: "sentence", count: true },
      { say: "Counted from 30: positions that no training sentence reached, in the middle of longer texts.", set: { text: TOM, offset: 30 }, look: "sentence", count: true },
    ],
  },
];

/** The model that plays a part; the first one where the page holds none that fits. */
export function castModel(models: readonly LiveModel[], part: Cast): LiveModel {
  const told = findModel(models, TOM, part !== "blind");
  if (part !== "numbers") return told ?? models[0]!;
  return models.find((model) => model.scheme.name !== "none" && model !== told) ?? models[0]!;
}

/** Whether the page has the model that a scene needs. */
export function canPlay(models: readonly LiveModel[], scene: Scene): boolean {
  const parts = new Set([scene.cast, ...scene.steps.flatMap((step) => step.cast ?? [])]);
  return [...parts].every((part) => {
    const model = castModel(models, part);
    if (part === "blind") return model.scheme.name === "none";
    return model.scheme.name === "sinusoidal" && (part === "numbers" || model.encodeText(TOM).unknown.length === 0);
  });
}

/** The whole state of one step: everything else is as it was trained. */
export function playStep(models: readonly LiveModel[], scene: Scene, step: number): State {
  const played = scene.steps[Math.min(step, scene.steps.length - 1)]!;
  const model = castModel(models, played.cast ?? scene.cast);
  return { ...DEFAULTS, model: model.id, text: chooseText(model), ...played.set, scene: scene.study, step };
}

/** The sentence with which a model begins: Tom and the dog, or the first of its held-out ones. */
export function chooseText(model: LiveModel): string {
  return model.encodeText(TOM).unknown.length === 0 ? TOM : (model.heldOut[0]?.source ?? "");
}
