/** Tokenizers: a closed list of words, characters or morphemes, cut out by one pattern, or pairs of bytes. */

import type { EncodedText, TokenInfo } from "./api";
import { BytePairs, PIECES, spell, unspell } from "./bytepairs";
import type { TokenizerRules } from "./page";

/** Reads and writes text with one vocabulary. */
export class Tokenizer {
  private readonly ids: Map<string, number>;
  private readonly pattern: RegExp;
  private readonly pairs: BytePairs | null;
  /** The tokens as a reader sees them. */
  readonly tokens: readonly TokenInfo[];

  constructor(
    private readonly written: readonly TokenInfo[],
    private readonly rules: TokenizerRules,
  ) {
    this.ids = new Map(written.map((token) => [token.text, token.id]));
    this.pairs = rules.merges ? new BytePairs(rules.merges) : null;
    this.pattern = new RegExp(this.pairs ? PIECES : rules.pattern, "gu");
    this.tokens = this.pairs ? written.map((token) => (token.special ? token : { ...token, text: unspell(token.text) })) : written;
  }

  /** Cut a text into tokens, with those that the model reads before and behind it; what is not in the list is unknown. */
  encode(text: string): EncodedText {
    const cut = text.trim() ? this.cut(this.normalise(text)) : [];
    const { pairs } = this;
    const pieces = pairs ? cut.flatMap((piece) => pairs.merge(spell(piece))) : cut;
    const ids = pieces.map((piece) => this.ids.get(piece) ?? this.rules.unknownId ?? 0);
    const tokens = ids.map((id, index) => ({ id, text: pairs ? this.tokens[id]!.text : pieces[index]!, special: false }));
    const unknown = ids.flatMap((id, index) => (!pairs && id === this.rules.unknownId ? [index] : []));
    const starts = pieces.length ? (this.rules.startIds ?? []) : [];
    if (pieces.length && this.rules.endId !== null) {
      ids.push(this.rules.endId);
      tokens.push({ ...this.tokens[this.rules.endId]! });
    }
    return {
      ids: [...starts, ...ids],
      tokens: [...starts.map((id) => ({ ...this.tokens[id]! })), ...tokens],
      unknown: unknown.map((index) => index + starts.length),
    };
  }

  /** Write tokens as text, without special ones. */
  decode(ids: readonly number[]): string {
    const joined = ids.map((id) => (this.written[id]!.special ? "" : this.written[id]!.text)).join("");
    const text = this.pairs ? unspell(joined) : joined;
    return this.rules.stripsSpace && text.startsWith(" ") ? text.slice(1) : text;
  }

  private normalise(text: string): string {
    let normalised = this.rules.nfc ? text.normalize("NFC") : this.rules.nfkc ? text.normalize("NFKC") : text;
    if (this.rules.lowercase) normalised = normalised.toLowerCase();
    // ByteLevel puts a space in front only where there is none.
    return this.pairs && normalised.startsWith(" ") ? normalised : this.rules.prefix + normalised;
  }

  /** The matches of the pattern, and what stands between them. */
  private cut(text: string): string[] {
    const pieces: string[] = [];
    let end = 0;
    for (const match of text.matchAll(this.pattern)) {
      if (match.index > end) pieces.push(text.slice(end, match.index));
      pieces.push(match[0]);
      end = match.index + match[0].length;
    }
    if (end < text.length) pieces.push(text.slice(end));
    return pieces.filter(Boolean);
  }
}
