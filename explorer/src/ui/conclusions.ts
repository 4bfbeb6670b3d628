/** The ends of the first three questions: a plain answer, and a table with the numbers of this page's models. */

import type { HeldOutProgress } from "../engine/api";
import { countSlower, SHORT } from "./clockwork";
import type { Live } from "./live";
import { measureLengths } from "./loudness";
import { formatNumber, shorten } from "./words";

/** What a step came to: its models' translations, and the count over the held-out sentences once it is whole. */
export interface Outcome {
  live: Live;
  count: HeldOutProgress | null;
}

/** The answer, and rows of as many cells as there are columns; the last cell is a count, "…" while it is not whole. */
export interface Conclusion {
  answer: string;
  columns: string[];
  rows: string[][];
}

export type Conclude = (outcomes: readonly Outcome[]) => Conclusion;

/** What two orders of the same words become, with positions and without. */
export function concludeOrder([seeing, swapped, blind, blindSwapped]: readonly Outcome[]): Conclusion {
  const [first, second, third, fourth] = [seeing!, swapped!, blind!, blindSwapped!].map(({ live }) => live.after?.text ?? "");
  const answer =
    third === fourth && first !== second
      ? "Without positions both orders are the same bag of words to the model: it cannot tell who bit whom."
      : third === fourth
        ? "Neither model here tells the two orders apart."
        : "The model without positions here still tells the two orders apart.";
  const write = (one: string, two: string) => (one === two ? `${shorten(one)}, for both` : `${shorten(one)} / ${shorten(two)}`);
  return {
    answer,
    columns: ["", "it writes", nameRight(seeing!)],
    rows: [
      ["with positions", write(first!, second!), tellRight(seeing!)],
      ["without", write(third!, fourth!), tellRight(blind!)],
    ],
  };
}

/** How long words and positions are in a model that was trained with √d and in one without, and what both get right. */
export function concludeScale([usual, bare]: readonly Outcome[]): Conclusion {
  const outcomes = [usual!, bare!];
  const lengths = outcomes.map(({ live }) => measureLengths(live));
  const [withScale, without] = lengths.map((sizes) => (sizes && sizes.position > 0 ? formatNumber(sizes.word / sizes.position, 2) : "–"));
  const right = outcomes.map(({ count }) => (count !== null && count.done === count.of ? count.right : null));
  const counted = right[0] === null || right[1] === null ? "" : ` After the same training the model without √d gets ${right[1]} right, the one with it ${right[0]}.`;
  const names = ["trained with √d", "trained without √d"];
  return {
    answer: `With √d a word is ${withScale} times as long as the position that is added to it; without, ${without} times.${counted}`,
    columns: ["length of", "word", "position", nameRight(usual!)],
    rows: outcomes.map((outcome, index) => {
      const sizes = lengths[index];
      return [names[index]!, ...(sizes ? [sizes.word, sizes.position].map((size) => formatNumber(size, 2)) : ["–", "–"]), tellRight(outcome)];
    }),
  };
}

/** What each model of a scene gets right, in the order of its steps; what is done to one model has a row of its own. */
export function concludeRights(outcomes: readonly Outcome[]): Conclusion {
  const rows = new Map(outcomes.map((outcome) => [nameRow(outcome), outcome]));
  return {
    answer: "The same sentences, read by models that were trained alike but for this one thing.",
    columns: ["", nameRight(outcomes[0]!)],
    rows: [...rows].map(([name, outcome]) => [name, tellRight(outcome)]),
  };
}

function nameRow({ live: { model, controls } }: Outcome): string {
  const from = controls.offset ? `, counted from ${controls.offset}` : "";
  return `${model.label}${from}${controls.frozenAt === undefined ? "" : ", all words at one place"}`;
}

/** How slow the slowest hand is under each base, and what the model, trained with one of them, makes of it. */
export function concludeBase(outcomes: readonly Outcome[]): Conclusion {
  return {
    answer: `The base sets how slow the slow hands are: fast hands tell neighbours apart, slow ones far from near.${tellReread(outcomes)}`,
    columns: ["base", "slowest turns in", `hands that need more than ${SHORT} positions for one turn`, nameRight(outcomes[0]!)],
    rows: outcomes.map((outcome, index) => {
      const { model, controls } = outcome.live;
      const { base } = model.scheme.options;
      const { slowest, slower, hands } = countSlower(outcome.live);
      const name = formatNumber(controls.base ?? (typeof base === "number" ? base : 10_000));
      return [index === 0 ? `${name}, as trained` : name, formatNumber(slowest), `${slower} of ${hands}`, tellRight(outcome)];
    }),
  };
}

/** What it costs the trained model to be read with another base; empty until all is counted. */
function tellReread(outcomes: readonly Outcome[]): string {
  const [trained, ...others] = outcomes.map(({ count }) => (count !== null && count.done === count.of ? count.right : null));
  if (trained == null || others.some((right) => right === null)) return "";
  const costly = outcomes.slice(1).flatMap(({ live }, index) => (others[index]! < trained ? `with base ${formatNumber(live.controls.base!)} it gets ${others[index]}` : []));
  if (costly.length === 0) return " Read with these other bases, this trained model does no worse.";
  return ` Read with another base, this trained model may lose: ${costly.join(", ")} right, not ${trained}.`;
}

/** How many texts are counted: as many for every model of a scene. */
function nameRight({ live }: Outcome): string {
  return `right of ${live.model.heldOut.length}`;
}

function tellRight({ count }: Outcome): string {
  return count !== null && count.done === count.of ? String(count.right) : "…";
}
