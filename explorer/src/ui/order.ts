/** Tokens in another order: moving one, and exchanging the two ends of a sentence. */

/** The list with the item at `from` moved to `to`. */
export function moveItem<T>(items: readonly T[], from: number, to: number): T[] {
  const rest = items.filter((_, index) => index !== from);
  const place = Math.max(0, Math.min(rest.length, to));
  return [...rest.slice(0, place), items[from]!, ...rest.slice(place)];
}

/** What stands first and last in a sentence, and the order in which they have changed places. */
export interface Swap {
  first: string;
  last: string;
  order: number[];
}

const ARTICLES = new Set(["a", "an", "the"]);

/**
 * Exchange the first and the last word, each with the article in front of it: "Tom bit a dog" becomes "a dog bit Tom".
 * `texts` are the tokens as they stand, `fixed` says which may not move (the end token). Null for fewer than two words.
 */
export function swapEnds(texts: readonly string[], fixed: readonly boolean[]): Swap | null {
  const words = texts.map((_, index) => index).filter((index) => !fixed[index]);
  const first = words.slice(0, ARTICLES.has(clean(texts[words[0]!])) ? 2 : 1);
  const last = words.slice(ARTICLES.has(clean(texts[words.at(-2)!])) ? -2 : -1);
  if (words.length === 0 || words.length < first.length + last.length) return null;
  const middle = words.slice(first.length, words.length - last.length);
  const swapped = [...last, ...middle, ...first];
  const order = texts.map((_, index) => (fixed[index] ? index : swapped[words.indexOf(index)]!));
  return { first: join(texts, first), last: join(texts, last), order };
}

function clean(text: string | undefined): string {
  return (text ?? "").trim().toLowerCase();
}

function join(texts: readonly string[], indices: readonly number[]): string {
  return indices.map((index) => texts[index]!.trim()).join(" ");
}
