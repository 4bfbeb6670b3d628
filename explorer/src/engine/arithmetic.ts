/** The layers of a Transformer that know nothing of position: plain loops over rows of `Float32Array`s. */

/** A linear layer: `weight` is [columns, inputs], row by row, as PyTorch has it, so that each dot product is contiguous. */
export interface Linear {
  weight: Float32Array;
  bias: Float32Array | null;
  inputs: number;
  columns: number;
}

/** A norm with its weight; `bias` is null for a root mean square norm, and where the model has none. */
export interface Norm {
  weight: Float32Array;
  bias: Float32Array | null;
  kind: "layer" | "rms";
  eps: number;
}

/** The dot product of `length` numbers; four sums, so that the processor need not wait for each addition. */
export function dot(a: Float32Array, atA: number, b: Float32Array, atB: number, length: number): number {
  let s0 = 0;
  let s1 = 0;
  let s2 = 0;
  let s3 = 0;
  const whole = length - (length % 4);
  for (let i = 0; i < whole; i += 4) {
    s0 += a[atA + i]! * b[atB + i]!;
    s1 += a[atA + i + 1]! * b[atB + i + 1]!;
    s2 += a[atA + i + 2]! * b[atB + i + 2]!;
    s3 += a[atA + i + 3]! * b[atB + i + 3]!;
  }
  for (let i = whole; i < length; i++) s0 += a[atA + i]! * b[atB + i]!;
  return s0 + s1 + s2 + s3;
}

/** Apply a linear layer to `rows` rows: [rows, inputs] to [rows, columns]. */
export function applyLinear(layer: Linear, x: Float32Array, rows: number): Float32Array {
  const { weight, bias, inputs, columns } = layer;
  const out = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const sum = dot(x, row * inputs, weight, column * inputs, inputs);
      out[row * columns + column] = bias ? sum + bias[column]! : sum;
    }
  }
  return out;
}

/** The mean (0 for a root mean square norm) and 1/σ by which a norm treats one row. */
export function measureRow(norm: Norm, x: Float32Array, start: number, width: number): { mean: number; inverse: number } {
  let mean = 0;
  if (norm.kind === "layer") {
    for (let i = 0; i < width; i++) mean += x[start + i]!;
    mean /= width;
  }
  let squares = 0;
  for (let i = 0; i < width; i++) squares += (x[start + i]! - mean) ** 2;
  return { mean, inverse: 1 / Math.sqrt(squares / width + norm.eps) };
}

/** Apply a layer norm (Ba et al. 2016) or a root mean square norm (Zhang & Sennrich 2019) to each row. */
export function applyNorm(norm: Norm, x: Float32Array, rows: number): Float32Array {
  const width = norm.weight.length;
  const out = new Float32Array(rows * width);
  for (let row = 0; row < rows; row++) {
    const start = row * width;
    const { mean, inverse } = measureRow(norm, x, start, width);
    for (let i = 0; i < width; i++) {
      const value = (x[start + i]! - mean) * inverse * norm.weight[i]!;
      out[start + i] = norm.bias ? value + norm.bias[i]! : value;
    }
  }
  return out;
}

/** The error function to 1.2e-7 (Numerical Recipes, erfcc with a rational Chebyshev exponent). */
function erf(x: number): number {
  const t = 1 / (1 + 0.5 * Math.abs(x));
  const coefficients = [
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
    -1.26551223,
  ];
  const polynomial = coefficients.reduce((sum, coefficient) => sum * t + coefficient, 0);
  const tail = t * Math.exp(-x * x + polynomial);
  return x >= 0 ? 1 - tail : tail - 1;
}

/** The activations of the feed-forward layers, by their names in a configuration. */
export const ACTIVATIONS: Record<"relu" | "gelu" | "gelu-tanh" | "silu", (x: number) => number> = {
  relu: (x) => (x > 0 ? x : 0),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  "gelu-tanh": (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  silu: (x) => x / (1 + Math.exp(-x)),
};

/** Log-softmax of `length` logits from `start`. */
export function logSoftmax(logits: Float32Array, start: number, length: number): Float32Array {
  let max = -Infinity;
  for (let i = 0; i < length; i++) max = Math.max(max, logits[start + i]!);
  let sum = 0;
  for (let i = 0; i < length; i++) sum += Math.exp(logits[start + i]! - max);
  const shift = max + Math.log(sum);
  const out = new Float32Array(length);
  for (let i = 0; i < length; i++) out[i] = logits[start + i]! - shift;
  return out;
}

/** The indices of the `count` largest values, the largest first, the first among equals. */
export function findLargest(values: Float32Array, count: number): number[] {
  const best: number[] = [];
  for (let index = 0; index < values.length; index++) {
    const value = values[index]!;
    if (best.length === count && value <= values[best[count - 1]!]!) continue;
    let place = best.length;
    while (place > 0 && value > values[best[place - 1]!]!) place--;
    best.splice(place, 0, index);
    if (best.length > count) best.pop();
  }
  return best;
}
