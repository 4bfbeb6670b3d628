/** The weights of a model by the names of its state dict. */

import type { Linear, Norm } from "./arithmetic";
import type { Matrix } from "./api";
import { EngineError } from "./errors";
import type { ModelData } from "./page";

/** Finds matrices in one array of numbers. */
export class Weights {
  constructor(
    private readonly data: ModelData,
    private readonly numbers: Float32Array,
  ) {}

  has(name: string): boolean {
    return name in this.data.tensors;
  }

  /** A tensor of one or two axes; a vector is a row. */
  matrix(name: string): Matrix {
    const place = this.data.tensors[name];
    if (!place) throw new EngineError(`The model ${this.data.id} has no weights ${name}.`);
    const [rows, columns] = place.shape.length === 1 ? [1, place.shape[0]!] : [place.shape[0]!, place.shape[1]!];
    return { rows, columns, values: this.numbers.subarray(place.offset, place.offset + rows * columns) };
  }

  /** A linear layer, with its bias where it has one. */
  linear(name: string): Linear {
    const weight = this.matrix(`${name}.weight`);
    const bias = this.has(`${name}.bias`) ? this.matrix(`${name}.bias`).values : null;
    return { weight: weight.values, bias, inputs: weight.columns, columns: weight.rows };
  }

  /** Rows `start` to `end` of a linear layer: one of the projections that were stored as one. */
  part(name: string, start: number, end: number): Linear {
    const whole = this.linear(name);
    return {
      weight: whole.weight.subarray(start * whole.inputs, end * whole.inputs),
      bias: whole.bias?.subarray(start, end) ?? null,
      inputs: whole.inputs,
      columns: end - start,
    };
  }

  norm(name: string): Norm {
    const { eps, normKind } = this.data.rules;
    const bias = this.has(`${name}.bias`) ? this.matrix(`${name}.bias`).values : null;
    return { weight: this.matrix(`${name}.weight`).values, bias, kind: normKind, eps };
  }
}
