/** The state as the fragment of an address, and back: only what differs from the defaults stands there. */

import { ALL_TERMS, DEFAULTS, LEAST_BASE, MOST_BASE, MOST_BEAM, MOST_LOUDNESS, MOST_OFFSET, MOST_SIZE, type State } from "./state";

/** How one value of the state is written and read. `read` returns undefined for what makes no sense. */
interface Field<T> {
  key: string;
  write(value: T): string;
  read(text: string): T | undefined;
}

const MOST_POSITION = 1e6;

function number(key: string, least: number, most: number, whole = false): Field<number> {
  return {
    key,
    write: String,
    read: (text) => {
      const value = text.trim() === "" ? NaN : Number(text);
      return value >= least && value <= most && (!whole || Number.isInteger(value)) ? value : undefined;
    },
  };
}

function optional<T>(field: Field<T>): Field<T | null> {
  return { key: field.key, write: (value) => (value === null ? "" : field.write(value)), read: field.read };
}

function list(item: Field<number>): Field<number[]> {
  return {
    key: item.key,
    write: (values) => values.map(item.write).join(","),
    read: (text) => {
      const values = text.split(",").map(item.read);
      return values.length <= MOST_SIZE && values.every((value) => value !== undefined) ? values : undefined;
    },
  };
}

function choice<T extends string>(key: string, values: readonly T[]): Field<T> {
  return { key, write: String, read: (text) => values.find((value) => value === text) };
}

function words(key: string): Field<string> {
  return { key, write: String, read: (text) => (text.length <= 400 ? text : undefined) };
}

/** On and off, of which the address names the one that is not the default. */
function flag(key: string): Field<boolean> {
  return {
    key,
    write: (value) => (value ? "on" : "off"),
    read: (text) => (text === "on" ? true : text === "off" ? false : undefined),
  };
}

const FIELDS: { [Name in keyof State]: Field<State[Name]> } = {
  model: words("model"),
  text: optional(words("text")),
  order: list(number("order", 0, MOST_SIZE, true)),
  positions: list(number("positions", -MOST_POSITION, MOST_POSITION)),
  frozenAt: optional(number("frozen", -MOST_POSITION, MOST_POSITION)),
  reversed: flag("reversed"),
  base: optional(number("base", LEAST_BASE, MOST_BASE)),
  loudness: number("loudness", 0, MOST_LOUDNESS),
  offset: number("offset", 0, MOST_OFFSET),
  scaleTokens: flag("scale"),
  sineOnly: flag("sine"),
  shuffledRows: optional(number("shuffled", 0, 2 ** 31, true)),
  stoppedHand: optional(number("stopped", 0, MOST_SIZE, true)),
  bothSides: flag("both"),
  beam: number("beam", 1, MOST_BEAM, true),
  width: optional(number("width", 2, MOST_SIZE, true)),
  length: number("length", 8, MOST_SIZE, true),
  clock: number("clock", 0, MOST_SIZE),
  follow: optional(number("token", 0, MOST_SIZE, true)),
  stack: choice("stack", ["encoder", "decoder", "cross"]),
  layer: number("layer", 0, 99, true),
  head: number("head", 0, 99, true),
  view: choice("view", ["before", "after", "difference"]),
  quantity: choice("show", ["weights", "scores"]),
  terms: number("terms", 0, ALL_TERMS, true),
  scene: words("scene"),
  step: number("step", 0, 99, true),
  embedded: flag("embedded"),
};

const NAMES = Object.keys(FIELDS) as (keyof State)[];

/** Write a state as the fragment of an address, without its "#". */
export function writeAddress(state: State): string {
  const parameters = new URLSearchParams();
  for (const name of NAMES) {
    const field = FIELDS[name] as Field<State[typeof name]>;
    if (JSON.stringify(state[name]) !== JSON.stringify(DEFAULTS[name])) parameters.set(field.key, field.write(state[name]));
  }
  return parameters.toString();
}

/** Read the fragment of an address, with or without "#"; what is missing or makes no sense keeps its default. */
export function readAddress(fragment: string): State {
  const parameters = new URLSearchParams(fragment.replace(/^#/, ""));
  const state: State = { ...DEFAULTS };
  for (const name of NAMES) {
    const text = parameters.get(FIELDS[name].key);
    const value = text === null ? undefined : FIELDS[name].read(text);
    if (value !== undefined) Object.assign(state, { [name]: value });
  }
  return state;
}
