/** What the page and its worker say to each other. */

import type { Controls, HeldOutProgress, Translation, TranslationRequest } from "./api";
import type { ModelData } from "./page";

/** To the worker. `job` numbers what is asked; `stop` ends a job that nobody waits for any more. */
export type Request =
  | { kind: "models"; models: { data: ModelData; numbers: Float32Array }[] }
  | { kind: "translate"; job: number; model: string; request: TranslationRequest }
  | { kind: "evaluate"; job: number; model: string; controls: Controls; beam: number }
  | { kind: "stop"; job: number };

/** From the worker. */
export type Answer =
  | { kind: "translated"; job: number; translation: Translation }
  | { kind: "progress"; job: number; progress: HeldOutProgress }
  | { kind: "evaluated"; job: number; progress: HeldOutProgress }
  | { kind: "failed"; job: number; message: string };
