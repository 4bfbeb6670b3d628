/** Greedy and beam search, as `clockhands translate` does them. */

import { findLargest, logSoftmax } from "./arithmetic";

/** Reads one token after those of a hypothesis; returns the logits of the next. */
export interface Hypothesis {
  step(token: number): Float32Array;
  /** A copy that goes on by itself. */
  fork(): Hypothesis;
}

/** What a search may write: at most `most` tokens, from `start` on, until one of `ends`. */
export interface Bounds {
  start: number;
  ends: readonly number[];
  most: number;
}

/** A written text with the log-probabilities of all tokens at each of its places. */
export interface Written {
  tokens: number[];
  logProbability: number;
  steps: Float32Array[];
}

/** So many tokens may a translation have: twice its source's, rounded up to a multiple of 16, and 50. */
export function boundLength(sourceTokens: number): number {
  return 2 * 16 * Math.ceil(sourceTokens / 16) + 50;
}

/** Add the likeliest token, the first among equals, until the text ends. */
export function searchGreedily(hypothesis: Hypothesis, bounds: Bounds): Written {
  const written: Written = { tokens: [], logProbability: 0, steps: [] };
  let token = bounds.start;
  while (written.tokens.length < bounds.most) {
    const logits = hypothesis.step(token);
    const logProbabilities = logSoftmax(logits, 0, logits.length);
    token = findLargest(logProbabilities, 1)[0]!;
    written.tokens.push(token);
    written.logProbability += logProbabilities[token]!;
    written.steps.push(logProbabilities);
    if (bounds.ends.includes(token)) break;
  }
  return written;
}

interface Continued extends Written {
  hypothesis: Hypothesis;
}

interface Candidate {
  parent: Continued;
  token: number;
  logProbability: number;
  step: Float32Array;
}

/**
 * Search with `width` hypotheses as transformers does with `early_stopping=False` and the length penalty 1: of the
 * first `width` candidates those that end are finished texts, ranked by mean log-probability, and the first `width` that
 * do not end go on; it is over once `width` texts are finished and the likeliest hypothesis scores no better than the
 * worst of them.
 */
export function searchBeam(first: Hypothesis, width: number, bounds: Bounds): Written {
  let beam: Continued[] = [{ hypothesis: first, tokens: [], logProbability: 0, steps: [] }];
  const finished: { score: number; text: Written }[] = [];
  const count = Math.max(2, 1 + bounds.ends.length) * width;
  for (let length = 1; length <= bounds.most; length++) {
    const candidates = findCandidates(beam, count, bounds);
    const isEnding = (candidate: Candidate) => length === bounds.most || bounds.ends.includes(candidate.token);
    for (const candidate of candidates.slice(0, width).filter(isEnding)) {
      finished.push({ score: candidate.logProbability / length, text: extend(candidate) });
    }
    finished.sort((a, b) => b.score - a.score);
    finished.length = Math.min(finished.length, width);
    beam = goOn(candidates.filter((candidate) => !isEnding(candidate)).slice(0, width));
    const best = beam[0];
    if (!best) break;
    if (finished.length === width && best.logProbability / length <= finished[width - 1]!.score) break;
  }
  return finished[0]!.text;
}

/** The likeliest continuations of all hypotheses by one token, by the log-probability of the whole text. */
function findCandidates(beam: Continued[], count: number, bounds: Bounds): Candidate[] {
  const candidates = beam.flatMap((parent) => {
    const logits = parent.hypothesis.step(parent.tokens.at(-1) ?? bounds.start);
    const step = logSoftmax(logits, 0, logits.length);
    return findLargest(step, count).map((token) => {
      return { parent, token, logProbability: parent.logProbability + step[token]!, step };
    });
  });
  // Sorting is stable, so that of equals the earlier hypothesis, and in it the smaller id, comes first.
  return candidates.sort((a, b) => b.logProbability - a.logProbability).slice(0, count);
}

function extend(candidate: Candidate): Written {
  const { parent, token, step, logProbability } = candidate;
  return { tokens: [...parent.tokens, token], logProbability, steps: [...parent.steps, step] };
}

/** The next hypotheses. The first that continues a parent takes its state over, and the others copy it. */
function goOn(candidates: Candidate[]): Continued[] {
  const heirs = new Map<Continued, number>();
  for (const { parent } of candidates) heirs.set(parent, (heirs.get(parent) ?? 0) + 1);
  return candidates.map((candidate) => {
    const left = heirs.get(candidate.parent)! - 1;
    heirs.set(candidate.parent, left);
    const hypothesis = left > 0 ? candidate.parent.hypothesis.fork() : candidate.parent.hypothesis;
    return { ...extend(candidate), hypothesis };
  });
}
