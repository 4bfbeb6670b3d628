/** The clock of a state and a model: its hands, the table of its positions, and what can be said of a position in it. */

import type { LiveModel, Matrix, PositionedModel } from "../engine/api";
import { EngineError } from "../engine/errors";
import { compareToTable, encodePosition, interpolateRow, turnTable, type ClockSettings } from "./clock";
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

/** How many channels the picture of a model's positions has: those of its hands, which may be fewer than its own. */
export function ownWidth({ scheme, config }: PositionedModel): number {
  return 2 * scheme.frequencies.length || config.dModel;
}

/** The factor on the words of a model, as a reader knows it. */
export function nameScale({ tokenScale, config }: LiveModel): string {
  return Math.abs(tokenScale - Math.sqrt(config.dModel)) < 1e-3 ? "√d" : `${formatNumber(tokenScale)}, as it was trained`;
}

/** Say what becomes of the words without their factor. */
export function tellScale({ tokenScale, scheme }: LiveModel): string {
  const size = tokenScale > 1 ? `${formatNumber(tokenScale)} times quieter` : `${formatNumber(1 / tokenScale)} times louder`;
  return `Off: words are ${size}${ADDED.includes(scheme.name) ? " beside their positions" : ""}.`;
}

/** The schemes that give each position a vector at the input. */
const ADDED = ["sinusoidal", "index", "learned"];
/** A hand that turns less within a sentence is said not to move, in degrees. */
const MOVES = 6;

/** How far the slowest hand gets within the sentence: what the base decides. */
export function tellHands(live: Placed): string {
  const frequencies = turnFrequencies(live);
  const turning = frequencies.filter((frequency) => frequency > 0);
  if (turning.length === 0) return "This model has no hands.";
  const span = live.positions.length > 0 ? Math.max(...live.positions) - Math.min(...live.positions) : 0;
  const moving = turning.filter((frequency) => frequency * span > (MOVES * Math.PI) / 180).length;
  return (
    `Sets how slow the slow hands are: the slowest turns once in ${formatNumber((2 * Math.PI) / Math.min(...turning))} tokens. ` +
    `Within this sentence ${moving} of the ${frequencies.length} hands move by more than ${MOVES}°.`
  );
}

/** The hands of a model under its base and with one stopped; a learned frequency may turn backwards, as far. */
function turnFrequencies(live: Placed): number[] {
  return live.model.frequencies(controlHands(live)).map(Math.abs);
}

function controlHands({ controls: { base, stoppedHand } }: Placed) {
  return { ...(base === undefined ? {} : { base }), ...(stoppedHand === undefined ? {} : { stoppedHand }) };
}

/** Say what the dials and the picture below them are of this model, and what they are not. */
export function tellDials({ settings: { frequencies }, turning }: Clock, { name, options }: PositionedModel["scheme"]): string {
  const turns = frequencies.filter((frequency) => frequency !== 0);
  const ordered = turns.every((frequency, hand) => hand === 0 || Math.abs(frequency) < Math.abs(turns[hand - 1]!));
  const hands = `A position is written as the angles of ${frequencies.length} hands${ordered ? ", each slower than the one before it" : ""}.`;
  const read = "The sine of its angle is how far to the right a hand points, the cosine how far up. Turn any hand: all of them, and the pictures of this card, turn with it.";
  const paper = "the dials are the paper's clock, for comparison.";
  if (name === "learned") return `${hands} ${read} This model learned a vector for each position, drawn below: ${paper}`;
  if (name === "index") return `${hands} ${read} This model adds the index of a position, times one vector, drawn below: ${paper}`;
  if (!turning) return `${hands} ${read} This model has the ${String(options["waves"])}s of its hands alone, drawn below.`;
  return `${hands} ${read}${name === "sinusoidal" || name === "rope" ? "" : " This model has no clock: what is drawn is the paper's."}`;
}

/** Make the clock. A model with a learned table shows that; one without positions the paper's clock. */
export function makeClock(state: State, live: Placed): Clock {
  const { model } = live;
  const { name, options } = model.scheme;
  const hands = (state.width ?? ownWidth(model)) / 2;
  const base = state.base ?? trainedBase(live);
  const own = state.width === null ? model.frequencies(controlHands(live)) : [];
  const frequencies = Array.from({ length: hands }, (_, hand) => own[hand] ?? base ** (-hand / hands));
  if (state.stoppedHand !== null && state.stoppedHand < hands) frequencies[state.stoppedHand] = 0;
  const settings = { frequencies, sineOnly: state.sineOnly, loudness: state.loudness };
  // Rows that are no pairs of sine and cosine are the model's own.
  const paired = name === "rope" || name === "none" || (name === "sinusoidal" && (options["waves"] ?? "both") === "both");
  const rows = paired ? null : readRows(live, state.length);
  return { settings, table: rows ?? turnTable(state.length, 0, settings), turning: !rows };
}

/** The rows of a model at the first positions, as many as its table has; as trained, where it has none for the changed ones. */
function readRows({ model, controls }: Placed, length: number): Matrix | null {
  const { max_length: most, beyond } = model.scheme.options as { max_length?: number; beyond?: string };
  const rows = model.scheme.name === "learned" && beyond !== "clamp" ? Math.min(length, most!) : length;
  try {
    return model.positionTable(controls, rows);
  } catch (fault) {
    if (!(fault instanceof EngineError)) throw fault;
    return model.positionTable({}, rows);
  }
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
  const turn = `At width ${live.model.config.dModel} the slowest hand turns once in ${formatNumber(slowest)} positions`;
  if (slower === 0) return `${turn}: within ${SHORT} positions all ${hands} come round.`;
  return `${turn}; ${slower === hands ? `all ${hands}` : `${slower} of ${hands}`} hands need more than ${SHORT} positions for one turn.`;
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
