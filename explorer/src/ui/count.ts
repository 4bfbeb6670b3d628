/** The count over the held-out sentences: recomputed in the worker whenever the controls rest. */

import { useEffect, useState } from "preact/hooks";
import type { Controls, EngineWorker, HeldOutProgress, LiveModel } from "../engine/api";
import { generalise, remember } from "./live";

const REST = 250;
const known = remember<{ counted: Counted | null }>(200);

/** How far a count has come, null before its first sentence; and why there will be none, or "". */
export interface Counted {
  progress: HeldOutProgress | null;
  problem: string;
}

const NOTHING: Counted = { progress: null, problem: "" };
const UNCOUNTED: Counted = { progress: { right: 0, confidence: 0, done: 0, of: 0 }, problem: "" };

/** Whether every text is counted. */
export function isWhole(count: HeldOutProgress | null): count is HeldOutProgress {
  return count !== null && count.done === count.of;
}

/** What was counted under these controls, by greedy search, when the page was made; null where nothing was. */
export function findMeasured(model: LiveModel, controls: Controls): HeldOutProgress | null {
  const key = JSON.stringify(generalise(controls));
  const found = model.measured.find((count) => JSON.stringify(count.controls) === key);
  return found ? { right: found.right, confidence: found.confidence, done: found.of, of: found.of } : null;
}

/**
 * Count under these controls, translating with so many hypotheses. Until the worker has counted, what was counted when
 * the page was made stands there, so that no reader waits for a number that is known.
 */
export function useCount(worker: EngineWorker, model: LiveModel, controls: Controls, beam: number): Counted {
  const general = generalise(controls);
  const key = JSON.stringify([model.id, general, beam]);
  const kept = known(key, () => ({ counted: null }));
  const [counted, setCounted] = useState<Counted & { key: string }>({ key, ...NOTHING });
  useEffect(() => {
    if (kept.counted || model.heldOut.length === 0) return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      const onProgress = (progress: HeldOutProgress) => setCounted({ key, progress, problem: "" });
      worker.evaluateHeldOut(model.id, general, { onProgress, signal: stop.signal, beam }).then(
        (progress) => {
          kept.counted = { progress, problem: "" };
          if (!stop.signal.aborted) setCounted({ key, ...kept.counted });
        },
        (fault: unknown) => {
          if (!stop.signal.aborted) setCounted({ key, progress: null, problem: fault instanceof Error ? fault.message : String(fault) });
        },
      );
    }, REST);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key]);
  if (model.heldOut.length === 0) return UNCOUNTED;
  if (kept.counted) return kept.counted;
  const own = counted.key === key ? counted : NOTHING;
  const measured = beam === 1 && !own.problem ? findMeasured(model, controls) : null;
  return measured ? { progress: measured, problem: "" } : own;
}
