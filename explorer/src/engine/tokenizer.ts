/** Tokenizers of a closed list: words, characters or morphemes, cut out by one pattern. */

import type { EncodedText, TokenInfo } from "./api";
import type { TokenizerRules } from "./page";

/** Reads and writes text with one vocabulary. */
export class Tokenizer {
  private readonly ids: Map<string, number>;
  private readonly pattern: RegExp;

  constructor(
    readonly tokens: readonly TokenInfo[],
    private readonly rules: TokenizerRules,
  ) {
    this.ids = new Map(tokens.map((token) => [token.text, token.id]));
    this.pattern = new RegExp(rules.pattern, "gu");
  }

  /** Cut a text into tokens, with the end token where the model reads one; what is not in the list is unknown. */
  encode(text: string): EncodedText {
    const pieces = text.trim() ? this.cut(this.normalise(text)) : [];
    const ids = pieces.map((piece) => this.ids.get(piece) ?? this.rules.unknownId);
    const tokens = ids.map((id, index) => ({ id, text: pieces[index]!, special: false }));
    const unknown = ids.flatMap((id, index) => (id === this.rules.unknownId ? [index] : []));
    if (pieces.length && this.rules.endId !== null) {
      ids.push(this.rules.endId);
      tokens.push({ ...this.tokens[this.rules.endId]! });
    }
    return { ids, tokens, unknown };
  }

  /** Write tokens as text, without special ones. */
  decode(ids: readonly number[]): string {
    const text = ids.map((id) => (this.tokens[id]!.special ? "" : this.tokens[id]!.text)).join("");
    return this.rules.stripsSpace && text.startsWith(" ") ? text.slice(1) : text;
  }

  private normalise(text: string): string {
    let normalised = this.rules.nfc ? text.normalize("NFC") : this.rules.nfkc ? text.normalize("NFKC") : text;
    if (this.rules.lowercase) normalised = normalised.toLowerCase();
    return this.rules.prefix + normalised;
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
