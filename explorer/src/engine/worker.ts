/** The worker: translates, and counts over all held-out sentences, while the page stays quick. */

import type { Controls, HeldOutProgress } from "./api";
import { forEverySentence, judge } from "./evaluate";
import type { Answer, Request } from "./messages";
import { Transformer } from "./model";

/** Between two looks at the mail box, and two reports, so many milliseconds of work. */
const SLICE = 20;

const models = new Map<string, Transformer>();
const stopped = new Set<number>();
const scope = self as unknown as DedicatedWorkerGlobalScope;

const say = (answer: Answer) => scope.postMessage(answer);
const rest = () => new Promise((resolve) => setTimeout(resolve, 0));

async function count(job: number, model: Transformer, controls: Controls, beam: number): Promise<void> {
  const common = forEverySentence(controls);
  const progress: HeldOutProgress = { right: 0, confidence: 0, done: 0, of: model.heldOut.length };
  let since = performance.now();
  for (const pair of model.heldOut) {
    const { right, confidence } = judge(model, pair, common, beam);
    progress.right += Number(right);
    progress.done++;
    progress.confidence += (confidence - progress.confidence) / progress.done;
    if (performance.now() - since < SLICE) continue;
    say({ kind: "progress", job, progress });
    await rest();
    if (stopped.delete(job)) return;
    since = performance.now();
  }
  say({ kind: "evaluated", job, progress });
}

async function answer(request: Request): Promise<void> {
  if (request.kind === "models") {
    for (const { data, numbers } of request.models) models.set(data.id, new Transformer(data, numbers));
  } else if (request.kind === "stop") {
    stopped.add(request.job);
  } else {
    const { job } = request;
    try {
      const model = models.get(request.model)!;
      if (request.kind === "evaluate") await count(job, model, request.controls, request.beam);
      else say({ kind: "translated", job, translation: model.translate(request.request) });
    } catch (fault) {
      say({ kind: "failed", job, message: fault instanceof Error ? fault.message : String(fault) });
    }
  }
}

scope.onmessage = (event: MessageEvent<Request>) => void answer(event.data);
