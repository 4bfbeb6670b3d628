/** A model that does not run in the page: its positions are computed here, its attention stands as it was recorded. */

import type { AttentionTrace, Controls, Kernel, Matrix, PositionedModel, SchemeInfo, TokenInfo } from "./api";
import { checkControls, placeTokens } from "./controls";
import { DescribedModel, type Description } from "./described";
import { EngineError } from "./errors";
import type { TensorPlace } from "./page";
import { type LiveScheme, makeScheme } from "./schemes";

/** A recorded model as Python wrote it; its task says how position enters it, in one sentence. */
export interface RecordedData extends Description {
  /** Why it does not run here, in one sentence. */
  reason: string;
  scheme: SchemeInfo;
  sentences: { text: string; tokens: TokenInfo[] }[];
  tensors: Record<string, TensorPlace>;
  weights: { element: string; type: "float16" | "float32" };
}

/** So many distances to either side a kernel of rotation reaches. */
const REACH = 32;

/** The implementation of `PositionedModel` for what was recorded. */
export class RecordedModel extends DescribedModel<RecordedData> implements PositionedModel {
  readonly targetScheme: SchemeInfo = { name: "none", options: {}, combine: "add", frequencies: [] };

  constructor(
    data: RecordedData,
    private readonly numbers: Float32Array,
  ) {
    super(data);
  }

  get scheme(): SchemeInfo {
    return this.data.scheme;
  }

  positionTable(controls: Controls, rows: number): Matrix | null {
    const { scheme, own, most } = this.control({ ...controls, positions: undefined });
    return scheme.encode(placeTokens(own, rows).map((place) => Math.min(most, place)));
  }

  frequencies(controls: Controls): number[] {
    return this.control(controls).scheme.frequencies;
  }

  kernel(layer: number, head: number, controls: Controls): Kernel | null {
    const { scheme } = this.control({ ...controls, positions: undefined });
    const place = this.data.tensors["kernels"];
    if (place) {
      const [layers, heads, distances] = place.shape as [number, number, number];
      if (!(layer >= 0 && layer < layers && head >= 0 && head < heads)) throw new EngineError(`It has ${layers} layers of ${heads} heads, counted from 0.`);
      const start = place.offset + (layer * heads + head) * distances;
      const loudness = controls.loudness ?? 1;
      const values = this.numbers.slice(start, start + distances).map((value) => loudness * value);
      const reach = (distances - 1) / 2;
      const how = `What the layer added to the score at each distance, less what it added at distance 0, as far as the longest recorded sentence reaches${loudness === 1 ? "" : `, times ${loudness}`}.`;
      return { distances: Array.from({ length: distances }, (_, index) => index - reach), values, how };
    }
    if (this.scheme.name !== "rope") return null;
    const { frequencies } = scheme;
    const distances = Array.from({ length: 2 * REACH + 1 }, (_, index) => index - REACH);
    const mean = (distance: number) => frequencies.reduce((sum, omega) => sum + Math.cos(omega * distance), 0) / frequencies.length;
    const how = "What rotation alone does: the score, as a share of that at distance 0, of a query with a key that agrees with it equally in every pair of channels.";
    return { distances, values: Float32Array.from(distances, mean), how, title: "What rotation gives to a key there (share)" };
  }

  /** The attention of a recorded sentence, layer by layer. */
  readAttention(sentence: number): AttentionTrace[] {
    const place = this.data.tensors[`sentence.${sentence}`];
    if (!place) throw new EngineError(`${this.label} has no recorded sentence ${sentence + 1}.`);
    const [layers, heads, queries, keys] = place.shape as [number, number, number, number];
    const size = heads * queries * keys;
    return Array.from({ length: layers }, (_, layer) => {
      const weights = this.numbers.subarray(place.offset + layer * size, place.offset + (layer + 1) * size);
      // Only weights are recorded: a logarithm of them is a score but for a constant of its row.
      return { heads, queries, keys, weights, logits: weights.map((weight) => (weight > 0 ? Math.log(weight) : -Infinity)), terms: null };
    });
  }

  private control(controls: Controls): { scheme: LiveScheme; own: Controls; most: number } {
    const { targetControls: _, ...own } = controls;
    const { name, options, frequencies } = this.scheme;
    checkControls(own, this.applicable.encoder, frequencies.length);
    const place = this.data.tensors["table"];
    const [rows, columns] = (place?.shape ?? [0, 0]) as [number, number];
    const most = name === "learned" ? rows - 1 : Infinity;
    if (name === "none" || name === "bias") return { scheme: { frequencies: [], encode: () => null, rotate: null, bias: null }, own, most };
    const table = place ? { rows, columns, values: this.numbers.subarray(place.offset, place.offset + rows * columns) } : null;
    const told = { layout: "half", waves: "both", beyond: "clamp", offset: 0, max_length: rows, ...options };
    const amplitude = typeof options["amplitude"] === "number" ? options["amplitude"] : 1;
    const rules = { ...this.scheme, options: told, amplitude, everyLayer: false, skipEvery: 0 };
    return { scheme: makeScheme(rules, table, own), own, most };
  }
}
