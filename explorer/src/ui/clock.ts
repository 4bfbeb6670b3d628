/** The clock in numbers: what a position looks like on every hand, and how alike two positions are. */

import type { Matrix } from "../engine/api";

/** What changes the picture of an encoding; see SideControls. */
export interface ClockSettings {
  frequencies: readonly number[];
  sineOnly: boolean;
  loudness: number;
}

/** The encoding of one real-valued position: sine and cosine of each hand beside each other. */
export function encodePosition(position: number, settings: ClockSettings): Float32Array {
  const row = new Float32Array(2 * settings.frequencies.length);
  settings.frequencies.forEach((frequency, hand) => {
    row[2 * hand] = settings.loudness * Math.sin(position * frequency);
    row[2 * hand + 1] = settings.sineOnly ? 0 : settings.loudness * Math.cos(position * frequency);
  });
  return row;
}

/**
 * The encodings of the positions first, first + 1, …: each hand is turned by its frequency from row to row (the addition
 * theorem), because a sine and a cosine for each cell would take four times as long.
 */
export function turnTable(rows: number, first: number, settings: ClockSettings): Matrix {
  const { frequencies, sineOnly, loudness } = settings;
  const columns = 2 * frequencies.length;
  const values = new Float32Array(rows * columns);
  frequencies.forEach((frequency, hand) => {
    const [turnSine, turnCosine] = [Math.sin(frequency), Math.cos(frequency)];
    let [sine, cosine] = [loudness * Math.sin(first * frequency), loudness * Math.cos(first * frequency)];
    for (let row = 0, cell = 2 * hand; row < rows; row++, cell += columns) {
      values[cell] = sine;
      values[cell + 1] = sineOnly ? 0 : cosine;
      const next = sine * turnCosine + cosine * turnSine;
      cosine = cosine * turnCosine - sine * turnSine;
      sine = next;
    }
  });
  return { rows, columns, values };
}

/** The cosine of the angle between `row` and each row of a table: one row against all, never all pairs. */
export function compareToTable(row: Float32Array, table: Matrix): Float32Array {
  const similarities = new Float32Array(table.rows);
  let own = 0;
  for (const value of row) own += value * value;
  for (let index = 0, cell = 0; index < table.rows; index++) {
    let product = 0;
    let length = 0;
    for (let column = 0; column < table.columns; column++, cell++) {
      const value = table.values[cell]!;
      product += value * row[column]!;
      length += value * value;
    }
    const size = Math.sqrt(own * length);
    similarities[index] = size > 0 ? product / size : 0;
  }
  return similarities;
}

/** A row between two rows of a table, on the straight line between them, for tables that were learned. */
export function interpolateRow(table: Matrix, position: number): Float32Array {
  const place = Math.max(0, Math.min(table.rows - 1, position));
  const low = Math.floor(place);
  const high = Math.min(table.rows - 1, low + 1);
  return Float32Array.from({ length: table.columns }, (_, column) => {
    const [from, to] = [table.values[low * table.columns + column]!, table.values[high * table.columns + column]!];
    return from + (to - from) * (place - low);
  });
}

/** Which of `count` hands are shown as dials where there is room for `room`: evenly spread, the first and last among them. */
export function chooseHands(count: number, room: number): number[] {
  if (count <= room) return Array.from({ length: count }, (_, hand) => hand);
  return Array.from({ length: room }, (_, place) => Math.round((place * (count - 1)) / (room - 1)));
}

/** The position at which a hand has been turned by `angle` radians from where it is at `position`. */
export function turnHand(position: number, angle: number, frequency: number, most: number): number {
  if (frequency === 0) return position;
  return Math.max(0, Math.min(most, position + angle / frequency));
}

/** The angle from `from` to `to` the short way round, in radians. */
export function shortAngle(from: number, to: number): number {
  const turn = 2 * Math.PI;
  return ((((to - from + Math.PI) % turn) + turn) % turn) - Math.PI;
}
