/** The page's end of the worker. */

import type { Controls, HeldOutProgress, LiveModel, Translation, TranslationRequest } from "./api";
import { EngineError } from "./errors";
import { type ModelData, type PageData, readPage, readWeights } from "./page";
import type { Answer, Request } from "./messages";
import { Transformer } from "./model";
import { RecordedModel } from "./recorded";
import InlineWorker from "./worker?worker&inline";

/** All live models of the page, decoded. Throws an EngineError where the page has no data. */
export function loadModels(root: Document = document): LiveModel[] {
  return readPage(root).models.map((data) => new Transformer(data, readWeights(data, root)));
}

/** The models of the page that are shown as they were recorded. */
export function loadRecorded(root: Document = document): RecordedModel[] {
  return (readPage(root).recorded ?? []).map((data) => new RecordedModel(data, readWeights(data, root)));
}

interface Job {
  resolve: (value: never) => void;
  reject: (fault: Error) => void;
  onProgress?: ((progress: HeldOutProgress) => void) | undefined;
}

/** What `evaluateHeldOut` may be told: whom to tell how far it is, and what stops it. */
export interface EvaluationOptions {
  onProgress?: (progress: HeldOutProgress) => void;
  signal?: AbortSignal;
  /** The hypotheses of the search; 1 (the default) is greedy. */
  beam?: number;
}

/** The models of the page in a worker. One is enough for a page; `close` ends it. */
export class EngineWorker {
  private readonly worker: Worker | null;
  private readonly jobs = new Map<number, Job>();
  private readonly ids: Set<string>;
  private last = 0;
  /** Why nothing can be asked any more. */
  private stopped: EngineError | null = null;

  constructor(page: PageData = readPage(), root: Document = document) {
    this.worker = this.start();
    this.ids = new Set(page.models.map((model) => model.id));
    const models = page.models.map((data: ModelData) => ({ data, numbers: readWeights(data, root) }));
    this.send({ kind: "models", models }, models.map(({ numbers }) => numbers.buffer));
  }

  /** Translate in the worker. Rejects with an EngineError as `LiveModel.translate` throws it. */
  translate(model: string, request: TranslationRequest): Promise<Translation> {
    return this.ask<Translation>(model, (job) => ({ kind: "translate", job, model, request }), {});
  }

  /**
   * Count the held-out sentences whose translation is right under controls; `positions` are left out, as they
   * belong to one sentence. Rejects with the signal's reason when it stops.
   */
  evaluateHeldOut(model: string, controls: Controls, options: EvaluationOptions = {}): Promise<HeldOutProgress> {
    return this.ask<HeldOutProgress>(model, (job) => ({ kind: "evaluate", job, model, controls, beam: options.beam ?? 1 }), options);
  }

  close(): void {
    this.worker?.terminate();
    this.fail(new EngineError("The worker was closed."));
  }

  /** Start the worker; where the browser starts none, everything that is asked is refused with its reason. */
  private start(): Worker | null {
    try {
      const worker: Worker = new InlineWorker();
      worker.onmessage = (event: MessageEvent<Answer>) => this.hear(event.data);
      worker.onerror = (event) => this.fail(new EngineError(event.message || "The worker of this page stopped; load the page again."));
      return worker;
    } catch (fault) {
      this.stopped = new EngineError(`This browser starts no worker: ${fault instanceof Error ? fault.message : String(fault)}`);
      return null;
    }
  }

  private ask<T>(model: string, write: (job: number) => Request, options: EvaluationOptions): Promise<T> {
    if (!this.ids.has(model)) return Promise.reject(new EngineError(`There is no model ${model} on this page.`));
    if (this.stopped) return Promise.reject(this.stopped);
    const { signal, onProgress } = options;
    if (signal?.aborted) return Promise.reject(signal.reason);
    const job = ++this.last;
    return new Promise<T>((resolve, reject) => {
      this.jobs.set(job, { resolve: resolve as (value: never) => void, reject, onProgress });
      signal?.addEventListener("abort", () => {
        if (!this.jobs.delete(job)) return;
        this.send({ kind: "stop", job });
        reject(signal.reason);
      });
      this.send(write(job));
    });
  }

  private send(request: Request, moved: Transferable[] = []): void {
    this.worker?.postMessage(request, moved);
  }

  private hear(answer: Answer): void {
    const job = this.jobs.get(answer.job);
    if (!job) return;
    if (answer.kind === "progress") return job.onProgress?.(answer.progress);
    this.jobs.delete(answer.job);
    if (answer.kind === "failed") job.reject(new EngineError(answer.message));
    else job.resolve((answer.kind === "translated" ? answer.translation : answer.progress) as never);
  }

  private fail(fault: EngineError): void {
    this.stopped = fault;
    for (const job of this.jobs.values()) job.reject(fault);
    this.jobs.clear();
  }
}
