/** The count over the held-out sentences: recomputed in the worker whenever the controls rest. */

import { useEffect, useState } from "preact/hooks";
import type { Controls, EngineWorker, HeldOutProgress, LiveModel } from "../engine/api";
import { generalise, remember } from "./live";

const REST = 250;
const known = remember<{ progress: HeldOutProgress | null }>(200);

/** How far the count for these controls has come; null before its first sentence. */
export function useCount(worker: EngineWorker, model: LiveModel, controls: Controls): HeldOutProgress | null {
  const general = generalise(controls);
  const key = JSON.stringify([model.id, general]);
  const kept = known(key, () => ({ progress: null }));
  const [counted, setCounted] = useState<{ key: string; progress: HeldOutProgress | null }>({ key, progress: kept.progress });
  useEffect(() => {
    if (kept.progress) return setCounted({ key, progress: kept.progress });
    const stop = new AbortController();
    const timer = setTimeout(() => {
      const onProgress = (progress: HeldOutProgress) => setCounted({ key, progress });
      worker.evaluateHeldOut(model.id, general, { onProgress, signal: stop.signal }).then(
        (progress) => {
          kept.progress = progress;
          if (!stop.signal.aborted) setCounted({ key, progress });
        },
        (fault: unknown) => {
          if (!stop.signal.aborted) throw fault;
        },
      );
    }, REST);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key]);
  return kept.progress ?? (counted.key === key ? counted.progress : null);
}
