/** Says why a sentence is outside of what a model was trained on; nothing of one that is like its training. */

import type { LiveModel, TokenInfo } from "../engine/api";
import { showToken } from "./words";

/** The reason, as a sentence; empty where nothing speaks against the text. `words` are typed words, unknown ones among them. */
export function tellOutside(model: LiveModel, places: readonly TokenInfo[], unknown: readonly boolean[], text: string): string {
  if (unknown.some(Boolean)) return `It does not know ${joinWords(findUnknown(model, text, places, unknown))}.`;
  const strange = model.findStrange(places.map((token) => token.id));
  if (!strange) return "";
  const [one, two] = strange.places.map((place) => `“${showToken(places[place]!.text)}”`);
  switch (strange.how) {
    case "unread":
      return `None of its training sentences has ${one} in it.`;
    case "next":
      return `In none of its training sentences ${two} comes right after ${one}.`;
    case "before":
      return one === two ? `None of its training sentences has ${one} twice.` : `In none of its training sentences ${two} comes anywhere after ${one}.`;
    case "begins":
      return `None of its training sentences begins with ${one}.`;
    case "ends":
      return `None of its training sentences ends with ${one}.`;
    case "short":
      return `None of its training sentences has fewer than ${strange.bound} tokens.`;
    case "long":
      return `None of its training sentences has more than ${strange.bound} tokens.`;
  }
}

/** The typed words of which the model does not know a part. */
function findUnknown(model: LiveModel, text: string, places: readonly TokenInfo[], unknown: readonly boolean[]): string[] {
  const words = text.trim().split(/\s+/).filter((word) => model.encodeText(word).unknown.length > 0);
  const shown = words.length > 0 ? words : places.filter((_, place) => unknown[place]).map((token) => showToken(token.text));
  return [...new Set(shown)];
}

const MOST_WORDS = 5;

function joinWords(words: readonly string[]): string {
  const shown = words.slice(0, MOST_WORDS).map((word) => `“${word}”`);
  const left = words.length - shown.length;
  if (left > 0) return `${shown.join(", ")} and ${left} more`;
  return shown.length > 1 ? `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}` : shown.join("");
}
