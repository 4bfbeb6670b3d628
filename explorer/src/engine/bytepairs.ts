/** Byte pairs as GPT-2 cuts and joins them, and as `tokenizers` does with its ByteLevel steps. */

/** White space as Unicode has it; JavaScript's `\s` lacks U+0085 and has U+FEFF. */
const SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
/** GPT-2's pattern: contractions, then letters, digits and other signs with a space before them, then white space. */
export const PIECES = `'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`;

/** The character that stands for each byte: itself where it can be printed, else one from U+0100 on. */
const LETTERS = (() => {
  const printable = (byte: number) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  let other = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : other++));
})();
const BYTES = new Map(LETTERS.map((letter, byte) => [letter, byte]));

/** A text as one character for each of its bytes. */
export function spell(text: string): string {
  return Array.from(new TextEncoder().encode(text), (byte) => LETTERS[byte]!).join("");
}

/** The text of such characters; bytes that are no whole character become U+FFFD. */
export function unspell(letters: string): string {
  const bytes = Uint8Array.from(Array.from(letters, (letter) => BYTES.get(letter)).filter((byte) => byte !== undefined));
  return new TextDecoder().decode(bytes);
}

/** Merges pairs in the order in which they were learned (Sennrich et al. 2016, section 3.2). */
export class BytePairs {
  private readonly ranks: Map<string, number>;

  constructor(merges: readonly (readonly [string, string])[]) {
    this.ranks = new Map(merges.map(([left, right], rank) => [`${left} ${right}`, rank]));
  }

  /** The tokens of a piece that is written with one character a byte. */
  merge(piece: string): string[] {
    let parts = Array.from(piece);
    for (;;) {
      let best = Infinity;
      for (let i = 0; i + 1 < parts.length; i++) best = Math.min(best, this.ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity);
      if (best === Infinity) return parts;
      const merged: string[] = [];
      for (let i = 0; i < parts.length; i++) {
        const together = i + 1 < parts.length && this.ranks.get(`${parts[i]} ${parts[i + 1]}`) === best;
        merged.push(together ? parts[i]! + parts[++i]! : parts[i]!);
      }
      parts = merged;
    }
  }
}
