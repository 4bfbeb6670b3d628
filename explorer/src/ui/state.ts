/** The state of the page: everything that the address brings back, and nothing else. */

import type { ControlName, Controls, PositionedModel, Side, SideControls } from "../engine/api";

export type Stack = "encoder" | "decoder" | "cross";
export type View = "before" | "after" | "difference";
export type Quantity = "weights" | "scores";

/** `null` and empty lists mean: as the model was trained, or as the sentence was typed. */
export interface State {
  model: string;
  /** null: the sentence with which the model begins. */
  text: string | null;
  /** Which typed token stands at each place. */
  order: number[];
  /** The position of each place. */
  positions: number[];
  frozenAt: number | null;
  reversed: boolean;
  base: number | null;
  loudness: number;
  offset: number;
  scaleTokens: boolean;
  sineOnly: boolean;
  shuffledRows: number | null;
  stoppedHand: number | null;
  /** Whether the controls act on the decoder too. */
  bothSides: boolean;
  /** The hypotheses of the search; 1 is greedy. */
  beam: number;
  /** Width and length of the picture of the encoding; null: the model's width. */
  width: number | null;
  length: number;
  /** The position that the hands show, and the token that takes it (null: none). */
  clock: number;
  follow: number | null;
  stack: Stack;
  layer: number;
  head: number;
  view: View;
  quantity: Quantity;
  /** Bits of the four terms that are added up: word-word 1, word-position 2, position-word 4, position-position 8. */
  terms: number;
  scene: string;
  step: number;
  /** Whether the page stands inside another one, which asks for one scene and nothing else. */
  embedded: boolean;
}

export const LEAST_BASE = 1.5;
export const MOST_BASE = 1e9;
export const MOST_LOUDNESS = 32;
export const MOST_OFFSET = 64;
export const MOST_SIZE = 512;
export const ALL_TERMS = 15;
export const MOST_BEAM = 8;

/** What "as trained" takes back: all that changes what the model computes. */
export const UNTOUCHED = {
  order: [],
  positions: [],
  frozenAt: null,
  reversed: false,
  base: null,
  loudness: 1,
  offset: 0,
  scaleTokens: true,
  sineOnly: false,
  shuffledRows: null,
  stoppedHand: null,
  bothSides: false,
  follow: null,
} satisfies Partial<State>;

export const DEFAULTS: Readonly<State> = {
  ...UNTOUCHED,
  model: "",
  text: null,
  beam: 1,
  width: null,
  length: 64,
  clock: 3,
  stack: "encoder",
  layer: 0,
  head: 0,
  view: "after",
  quantity: "weights",
  terms: ALL_TERMS,
  scene: "",
  step: 0,
  embedded: false,
};

/** Whether the state changes anything about what the model computes. */
export function isTouched(state: State): boolean {
  return (Object.keys(UNTOUCHED) as (keyof typeof UNTOUCHED)[]).some(
    (key) => key !== "bothSides" && key !== "follow" && String(state[key] ?? "") !== String(UNTOUCHED[key] ?? ""),
  );
}

/** Whether words or positions of this one sentence were moved by hand, which no count over other sentences can take up. */
export function isOwn({ order, positions }: State): boolean {
  const moved = (items: readonly number[]) => items.some((item, place) => item !== place);
  return moved(order) || moved(positions);
}

/** What is said of a count then. */
export const OTHERS_ONLY = "This count ignores the order and positions you gave this sentence.";

/** Whether a control does anything on a side of a model: without an encoding, only the words can be scaled. */
export function canControl(model: PositionedModel, side: Side, name: ControlName): boolean {
  const { name: scheme } = side === "encoder" ? model.scheme : model.targetScheme;
  return model.applicable[side].includes(name) && (scheme !== "none" || name === "scaleTokens");
}

/** What the state asks of one side, without what its scheme has no use for. */
export function makeSideControls(state: State, model: PositionedModel, side: Side): SideControls {
  const asked: SideControls = {};
  if (side === "encoder" && state.positions.length > 0) asked.positions = state.positions;
  if (side === "encoder" && state.reversed) asked.reversed = true;
  if (side === "encoder" && state.frozenAt !== null) asked.frozenAt = state.frozenAt;
  if (state.base !== null) asked.base = state.base;
  if (state.loudness !== 1) asked.loudness = state.loudness;
  if (state.offset !== 0) asked.offset = state.offset;
  if (!state.scaleTokens) asked.scaleTokens = false;
  if (state.sineOnly) asked.sineOnly = true;
  if (state.shuffledRows !== null) asked.shuffledRows = state.shuffledRows;
  if (state.stoppedHand !== null) asked.stoppedHand = state.stoppedHand;
  const used = Object.entries(asked).filter(([name]) => canControl(model, side, name as ControlName));
  return Object.fromEntries(used) as SideControls;
}

/** The controls of a translation: the source's, and the target's too where the state says so. */
export function makeControls(state: State, model: PositionedModel): Controls {
  const controls: Controls = makeSideControls(state, model, "encoder");
  if (!state.bothSides) return controls;
  const target = makeSideControls(state, model, "decoder");
  return Object.keys(target).length > 0 ? { ...controls, targetControls: target } : controls;
}

/** The position of each of `count` places, before offset and shuffling. */
export function placePositions(state: State, count: number): number[] {
  if (state.frozenAt !== null) return Array.from({ length: count }, () => state.frozenAt!);
  const counted = Array.from({ length: count }, (_, place) => state.positions[place] ?? place);
  return state.reversed ? counted.map((position) => count - 1 - position) : counted;
}
