/** The clock of a state and a model: its hands, the table of its positions, and what can be said of a position in it. */

import type { Matrix, PositionedModel } from "../engine/api";
import { compareToTable, encodePosition, interpolateRow, shortAngle, turnTable, type ClockSettings } from "./clock";
import type { Placed } from "./live";
import type { State } from "./state";
import { formatNumber, formatPosition } from "./words";

export interface Clock {
  settings: ClockSettings;
  table: Matrix;
  /** Whether the rows were made by hands, so that places between them exist. */
  turning: boolean;
}

/** The base that the model was trained with, or the paper's. */
export function trainedBase(live: Placed): number {
  const base = live.model.scheme.options["base"] ?? live.model.scheme.options["theta"];
  return typeof base === "number" ? base : 10_000;
}

/** How many channels the picture of a model's positions has: those of a head where queries and keys are rotated. */
export function ownWidth({ scheme, config }: PositionedModel): number {
  return scheme.name === "rope" ? 2 * scheme.frequencies.length : config.dModel;
}

/** Make the clock. A model with a learned table shows that; one without positions the paper's clock. */
export function makeClock(state: State, live: Placed): Clock {
  const { model } = live;
  const { name } = model.scheme;
  const hands = (state.width ?? ownWidth(model)) / 2;
  const base = state.base ?? trainedBase(live);
  const trained = state.width === null && state.base === null && name !== "none" ? model.frequencies({}) : [];
  const frequencies = Array.from({ length: hands }, (_, hand) => trained[hand] ?? base ** (-hand / hands));
  if (state.stoppedHand !== null && state.stoppedHand < hands) frequencies[state.stoppedHand] = 0;
  const settings = { frequencies, sineOnly: state.sineOnly, loudness: state.loudness };
  const own = name !== "sinusoidal" && name !== "rope" && name !== "none";
  const learned = own ? model.positionTable(live.controls, state.length) : null;
  return { settings, table: learned ?? turnTable(state.length, 0, settings), turning: !learned };
}

/** The vector of a position; between two rows of a learned table, on the line between them. */
export function findRow(clock: Clock, position: number): Float32Array {
  return clock.turning ? encodePosition(position, clock.settings) : interpolateRow(clock.table, position);
}

/** A text of so many positions is taken to tell which hands are slow. */
export const SHORT = 64;

/** In how many positions the slowest hand turns once, and how many of the hands need more than `SHORT` for it. */
export function countSlower(live: Placed): { slowest: number; slower: number; hands: number } {
  const turns = live.model.frequencies(live.controls).map((frequency) => (2 * Math.PI) / frequency);
  return { slowest: Math.max(...turns), slower: turns.filter((turn) => turn > SHORT).length, hands: turns.length };
}

/** Say how slow the slowest hand of a model is, and how many hands need more than `SHORT` positions. */
export function tellSlowest(live: Placed): string {
  const { slowest, slower, hands } = countSlower(live);
  const turn = `The slowest hand turns once in ${formatNumber(slowest)} positions`;
  if (slower === 0) return `${turn}: within ${SHORT} positions all ${hands} come round.`;
  return `${turn}; ${slower === hands ? `all ${hands}` : `${slower} of ${hands}`} hands need more than ${SHORT} positions for one turn.`;
}

/** Within so many degrees two hands point almost the same way; from so many on they plainly do not. */
const [ALMOST, PLAINLY] = [15, 45];

/**
 * Name a position that the two fastest hands all but confuse with position 0, and a slow hand that tells the two apart;
 * empty where there is none within `SHORT` positions.
 */
export function tellApart(live: Placed): string {
  const frequencies = live.model.frequencies(live.controls);
  if (frequencies.length < 3) return "";
  const turned = (hand: number, position: number) => (Math.abs(shortAngle(0, position * frequencies[hand]!)) * 180) / Math.PI;
  const fast = (position: number) => Math.max(turned(0, position), turned(1, position));
  const alike = Array.from({ length: SHORT - 1 }, (_, index) => index + 1).reduce((best, position) => (fast(position) < fast(best) ? position : best));
  // Of the hands that have not come round by then, the fastest has turned furthest.
  const slow = frequencies.findIndex((frequency) => frequency > 0 && frequency * alike <= Math.PI);
  if (slow < 2 || fast(alike) > ALMOST || turned(slow, alike) < PLAINLY) return "";
  const turn = formatNumber((2 * Math.PI) / frequencies[slow]!);
  return `At positions 0 and ${alike} the two fastest hands point almost the same way (at most ${Math.ceil(fast(alike))}° apart), but the hand that turns once in ${turn} is ${Math.round(turned(slow, alike))}° on.`;
}

/** So many positions away is no neighbour any more, of whom everybody knows that they look alike. */
const FAR = 5;

/** Say which far position is most like one; empty where none is far. */
export function tellPosition(clock: Clock, position: number): string {
  const row = findRow(clock, position);
  const alike = compareToTable(row, clock.table);
  let most = -1;
  alike.forEach((value, other) => {
    if (Math.abs(other - position) >= FAR && (most < 0 || value > alike[most]!)) most = other;
  });
  if (most < 0) return "";
  return `Among positions ${FAR} or more steps away, ${most} looks most like ${formatPosition(position)} (similarity ${formatNumber(alike[most]!, 2)}).`;
}
