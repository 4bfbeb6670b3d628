/** The ends of the first three questions: a plain answer, and a table with the numbers of this page's models. */

import type { HeldOutProgress } from "../engine/api";
import { countSlower, SHORT } from "./clockwork";
import type { Live } from "./live";
import { measureLoudness } from "./loudness";
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

/** How loud words and positions are with √d, without it, and with positions that are louder by as much. */
export function concludeScale(outcomes: readonly Outcome[]): Conclusion {
  const loud = outcomes.map(({ live }) => measureLoudness(live));
  const ratio = (index: number) => (loud[index] && loud[index].position > 0 ? loud[index].word / loud[index].position : null);
  const [usual, bare] = [ratio(0), ratio(1)];
  const longer = usual !== null && bare !== null && usual > 1 && bare < 1;
  const answer = longer
    ? "√d keeps a word louder than the position that is added to it; without √d the position is the louder one."
    : "√d makes a word louder beside the position that is added to it.";
  const names = ["with √d", "without √d", `positions × ${formatNumber(outcomes[2]!.live.controls.loudness ?? 1)}`];
  return {
    answer,
    columns: ["loudness of", "word", "position", nameRight(outcomes[0]!)],
    rows: outcomes.map((outcome, index) => {
      const sizes = loud[index];
      return [names[index]!, ...(sizes ? [sizes.word, sizes.position].map((size) => formatNumber(size, 2)) : ["–", "–"]), tellRight(outcome)];
    }),
  };
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
