/** How many held-out translations are right under controls. */

import type { Controls, HeldOutPair, LiveModel } from "./api";

/** Controls without what belongs to one sentence alone: the positions of its tokens. */
export function forEverySentence(controls: Controls): Controls {
  const { positions: _, targetControls, ...rest } = controls;
  if (!targetControls) return rest;
  const { positions: __, ...target } = targetControls;
  return { ...rest, targetControls: target };
}

/** Whether the translation of a source, or its next token, is the right one, letter by letter, and its confidence. */
export function judge(model: LiveModel, pair: HeldOutPair, controls: Controls, beam: number): { right: boolean; confidence: number } {
  const { ids } = model.encodeText(pair.source);
  const { text, confidence } = model.translate(model.config.kind === "decoder" ? { ids, controls, maxTokens: 1 } : { ids, controls, beam });
  return { right: text === pair.target, confidence };
}
