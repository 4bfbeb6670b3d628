/** What training showed of the order of tokens: a text that is unlike all of it is outside of what a model learned. */

/**
 * Of all texts that a model read in training: the fewest and the most tokens, and two square tables of bits in
 * hexadecimal digits, row after row, the first bit of each digit being its highest. `next`: whether the token of the
 * column stood right behind that of the row; the last row is the beginning of a text and the last column its end.
 * `before`: whether the token of the row stood anywhere before that of the column.
 */
export interface TrainedOrder {
  shortest: number;
  longest: number;
  next: string;
  before: string;
}

/** Why a text is unlike all that training showed: what it has, and the places of the tokens concerned. */
export interface Strange {
  how: "unread" | "begins" | "ends" | "next" | "before" | "short" | "long";
  places: number[];
  /** The bound that it passes, where it is too short or too long. */
  bound?: number;
}

/** Find the first thing in a text, given without special tokens, that no text of training had; null where there is none. */
export function findStrange(trained: TrainedOrder, ids: readonly number[], vocabulary: number): Strange | null {
  const end = vocabulary;
  const follows = (first: number, second: number) => readBit(trained.next, first * (vocabulary + 1) + second);
  const wasRead = (id: number) => follows(end, id) || Array.from({ length: vocabulary }, (_, other) => other).some((other) => follows(other, id));
  const unread = ids.findIndex((id) => !wasRead(id));
  if (unread >= 0) return { how: "unread", places: [unread] };
  for (let place = 0; place + 1 < ids.length; place++) {
    if (!follows(ids[place]!, ids[place + 1]!)) return { how: "next", places: [place, place + 1] };
  }
  for (let second = 1; second < ids.length; second++) {
    const first = ids.findIndex((id, place) => place < second && !readBit(trained.before, id * vocabulary + ids[second]!));
    if (first >= 0) return { how: "before", places: [first, second] };
  }
  const last = ids.length - 1;
  if (!follows(end, ids[0]!)) return { how: "begins", places: [0] };
  if (!follows(ids[last]!, end)) return { how: "ends", places: [last] };
  if (ids.length < trained.shortest) return { how: "short", places: [], bound: trained.shortest };
  if (ids.length > trained.longest) return { how: "long", places: [], bound: trained.longest };
  return null;
}

function readBit(digits: string, index: number): boolean {
  return ((parseInt(digits[index >> 2] ?? "0", 16) >> (3 - (index & 3))) & 1) === 1;
}
