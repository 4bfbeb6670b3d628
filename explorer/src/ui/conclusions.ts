/** The ends of the first three questions: a plain answer, and a sentence with the numbers of this page's models. */

import type { HeldOutProgress } from "../engine/api";
import type { Live } from "./live";
import { measureLengths } from "./lengths";
import { formatNumber, shorten } from "./words";

/** What a step came to: its models' translations, and the count over the held-out sentences once it is whole. */
export interface Outcome {
  live: Live;
  count: HeldOutProgress | null;
}

/** `numbers` is null while sentences are still being counted. */
export interface Conclusion {
  answer: string;
  numbers: string | null;
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
  if (!isWhole(seeing!.count) || !isWhole(blind!.count)) return { answer, numbers: null };
  const tell = (one: string, two: string) => `the model writes ${one === two ? `“${shorten(one)}” for both` : `“${shorten(one)}” and “${shorten(two)}”`}`;
  return {
    answer,
    numbers:
      `Without positions ${tell(third!, fourth!)}, and ${blind!.count.right} of ${blind!.count.of} sentences that it never saw are right; ` +
      `with positions ${tell(first!, second!)}, and ${seeing!.count.right} are right.`,
  };
}

/** How long words and positions are with √d, without it, and with positions that are louder by as much. */
export function concludeScale([trained, without, louder]: readonly Outcome[]): Conclusion {
  const ratio = ({ live }: Outcome) => {
    const sizes = measureLengths(live);
    return sizes && sizes.position > 0 ? sizes.word / sizes.position : null;
  };
  const [usual, bare] = [ratio(trained!), ratio(without!)];
  const longer = usual !== null && bare !== null && usual > 1 && bare < 1;
  const answer = longer
    ? "√d keeps a word louder than the position that is added to it; without √d the position is the louder one."
    : "√d makes a word louder beside the position that is added to it.";
  if (usual === null || bare === null || !isWhole(trained!.count) || !isWhole(without!.count)) return { answer, numbers: null };
  const tell = (times: number) => `a word is ${formatNumber(times, 2)} times as long as its position`;
  const last = isWhole(louder!.count) ? `; with √d, but positions louder by the same factor, ${louder!.count.right} are right` : "";
  return {
    answer,
    numbers:
      `In this model ${tell(usual)}, and ${trained!.count.right} of ${trained!.count.of} held-out sentences are right; ` +
      `without √d ${tell(bare)}, and ${without!.count.right} are right${last}.`,
  };
}

/** How slow the slowest hand is under each base, and what the model, trained with one of them, makes of it. */
export function concludeBase(outcomes: readonly Outcome[]): Conclusion {
  const told = outcomes.map(({ live, count }) => {
    const { base } = live.model.scheme.options;
    const slowest = live.model.frequencies(live.controls).filter((frequency) => frequency > 0).at(-1);
    const name = formatNumber(live.controls.base ?? (typeof base === "number" ? base : 10_000));
    return { name, turn: slowest ? formatNumber((2 * Math.PI) / slowest) : "∞", count };
  });
  const [first, ...others] = told;
  const trained = first!;
  const turns = others.map(({ name, turn }) => `with ${name} once in ${turn}`).join(", ");
  const answer = `The base sets how slow the slow hands are: with ${trained.name} the slowest goes round once in ${trained.turn} positions, ${turns}.`;
  if (!told.every(({ count }) => isWhole(count))) return { answer, numbers: null };
  const rights = others.map(({ name, count }) => `${count!.right} with ${name}`).join(", ");
  return { answer, numbers: `This model was trained with ${trained.name}: ${trained.count!.right} of ${trained.count!.of} held-out sentences are right with it, ${rights}.` };
}

function isWhole(count: HeldOutProgress | null): count is HeldOutProgress {
  return count !== null && count.done === count.of;
}
