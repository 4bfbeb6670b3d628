/** The data that stands in the page: models in `explorer-data`, their weights in `explorer-weights-N`. */

import type { ControlName, HeldOutPair, MeasuredCount, ModelConfig, SchemeInfo, Side } from "./api";
import { EngineError } from "./errors";
import type { TrainedOrder } from "./familiar";
import { decodeBase64, readNumbers } from "./numbers";
import type { RecordedData } from "./recorded";

/** One matrix of a model inside its weights: `offset` and the product of `shape` count numbers, not bytes. */
export interface TensorPlace {
  offset: number;
  shape: number[];
}

/** How a text becomes tokens: normal forms, a pattern that cuts, and the words themselves, or pairs of bytes. */
export interface TokenizerRules {
  nfc: boolean;
  nfkc: boolean;
  lowercase: boolean;
  prefix: string;
  /** A JavaScript pattern (flags `gu`): each match is a token, and so is what stands between two matches. */
  pattern: string;
  /** null: there is nothing that the tokenizer does not know. */
  unknownId: number | null;
  endId: number | null;
  /** What stands in front of every text; absent: nothing. */
  startIds?: number[];
  /** Whether one leading space is taken off a decoded text. */
  stripsSpace: boolean;
  /** What byte pairs are merged, in this order; absent where tokens are whole pieces. */
  merges?: [string, string][];
}

/** What the arithmetic of a model depends on besides its weights; the names are those of TransformerConfig. */
export interface ModelRules {
  eps: number;
  normKind: "layer" | "rms";
  preNorm: boolean;
  finalNorm: boolean;
  causalEncoder: boolean;
  keyHeads: number;
  embeddingNorm: boolean;
  tokenScale: Record<Side, number>;
  outputScale: number;
  activation: "relu" | "gelu" | "gelu-tanh" | "silu";
  gated: boolean;
  residual: boolean;
  attentionScale: Record<"encoder" | "decoder" | "cross", number>;
  startId: number;
  endIds: number[];
}

/** A scheme with what its computation needs: options by name, and whether it is added before every layer. */
export interface SchemeRules extends SchemeInfo {
  everyLayer: boolean;
  skipEvery: number;
  /** Factor of sinusoids, learned or not. */
  amplitude?: number;
  /** What training multiplied RoPE's frequencies by, where they are learned. */
  factors?: number[];
  /** ALiBi's slopes, [1 or 2 sides, heads]. */
  slopes?: number[][];
  /** The vector of place 1 of the index; over the length, that of the last place. */
  step?: number[];
  /** The smallest distance of each of T5's buckets but the first. */
  starts?: number[];
}

/** A model as Python wrote it. */
export interface ModelData {
  id: string;
  label: string;
  task: string;
  config: ModelConfig;
  rules: ModelRules;
  schemes: Record<Side, SchemeRules>;
  applicable: Record<Side, ControlName[]>;
  tokens: { text: string; special: boolean }[];
  targetTokens: { text: string; special: boolean }[] | null;
  tokenizer: TokenizerRules;
  targetTokenizer: TokenizerRules;
  heldOut: HeldOutPair[];
  measured: MeasuredCount[];
  texts?: string[];
  lengths?: { word: number; position: number };
  /** What its training showed of the order of tokens; absent where its list of tokens is long or open. */
  trained?: TrainedOrder;
  tensors: Record<string, TensorPlace>;
  /** The id of the element with the weights, and the type of its numbers, little-endian. */
  weights: { element: string; type: "float16" | "float32" };
}

/** A finding as the page tells it: a question, a sentence, and the command that measures it. */
export interface StoryFinding {
  name: string;
  question: string;
  verdict: string;
  command: string;
}

/** Everything in `explorer-data`. */
export interface PageData {
  version: string;
  command: string;
  models: ModelData[];
  recorded?: RecordedData[];
  findings: StoryFinding[];
}

/** The numbers of a model's weights, from the element that holds them. Throws an EngineError where it is missing. */
export function readWeights({ weights }: Pick<ModelData, "weights">, root: Document = document): Float32Array {
  const text = root.getElementById(weights.element)?.textContent;
  if (!text) throw new EngineError(`This page holds no weights ${weights.element}; write it with \`clockhands explore\`.`);
  return readNumbers(decodeBase64(text), weights.type);
}

/** Read the data of the page. Throws an EngineError where the page has none. */
export function readPage(root: Document = document): PageData {
  const element = root.getElementById("explorer-data");
  if (!element?.textContent) throw new EngineError("This page holds no models; write it with `clockhands explore`.");
  const page = JSON.parse(element.textContent) as PageData;
  // Where models have a list in common, all but the first have the first one's id in its place.
  for (const model of page.models) {
    for (const name of ["heldOut", "trained", "tokens"] as const) {
      const owner = page.models.find(({ id }) => id === (model[name] as unknown));
      if (owner) Object.assign(model, { [name]: owner[name] });
    }
  }
  return page;
}
