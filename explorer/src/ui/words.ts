/** Numbers and lists as a reader reads them. */

/** What a model writes, in a word. */
export function nameWritten(kind: string): string {
  return kind === "decoder" ? "continuation" : kind === "" ? "text" : "translation";
}

/** A number with few digits: 12,345, 17.8, 0.62, with a true minus sign. */
export function formatNumber(value: number, digits = 3): string {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : value > 0 ? "∞" : "–";
  const size = Math.abs(value);
  const text =
    size >= 1000 || Number.isInteger(value)
      ? Math.round(value).toLocaleString("en-US")
      : value.toLocaleString("en-US", { maximumSignificantDigits: digits });
  return text.replace("-", "−");
}

/** A position: whole, or with at most two digits behind the point. */
export function formatPosition(value: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: 2 }).replace("-", "−");
}

/** No line ends between a number and its sign. */
const PERCENT = "\u00a0%";

/** A share as a percentage that says 100 % and 0 % only where that is so. */
export function formatShare(share: number): string {
  if (share >= 1) return `100${PERCENT}`;
  if (share <= 0) return `0${PERCENT}`;
  if (share > 0.999) return `over 99.9${PERCENT}`;
  if (share < 0.001) return `under 0.1${PERCENT}`;
  const percent = 100 * share;
  return `${percent >= 10 && percent <= 99 ? percent.toFixed(0) : percent.toFixed(1)}${PERCENT}`;
}

/** A text of at most `most` letters, cut behind a word where it is longer. */
export function shorten(text: string, most = 60): string {
  return text.length <= most ? text : `${text.slice(0, most).replace(/\s+\S*$/, "")} …`;
}

const MOST_WORDS = 12;
const KEPT_WORDS = 8;

/** A text of many words cut behind the eighth, with their number. */
export function cutWords(text: string): string {
  const words = text.split(/\s+/);
  return words.length <= MOST_WORDS ? text : `${words.slice(0, KEPT_WORDS).join(" ")} … (${words.length} words)`;
}

/** The name of a special token, which stands at one end of its text. */
export function nameSpecial(place: number): string {
  return place === 0 ? "start" : "end";
}

/** The text of a token as a reader sees it: a visible mark for what would be blank. */
export function showToken(text: string): string {
  const shown = text.trim();
  return shown === "" ? "␣" : shown;
}

/** What a number under changed controls tells, and what it does not. */
export const NOT_RETRAINED =
  "The model is not trained again: the numbers tell what a change does to this trained model, not what a model trained with that change would learn.";

/** The same in few words. */
export const SAME_WEIGHTS = "Same weights, not trained again.";

const NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/** A small number in letters; `capital`: as the first word of a sentence. */
export function nameNumber(count: number, capital = false): string {
  const name = NUMBERS[count] ?? formatNumber(count);
  return capital ? name.charAt(0).toUpperCase() + name.slice(1) : name;
}
