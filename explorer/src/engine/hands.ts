/** The hands of the clock: frequencies, sinusoids and rotations, from angles in double precision. */

import type { Matrix } from "./api";

/** Radians per position of each of `count` hands: base^(-2c/width), or base^(-c/(count - 1)) (Tensor2Tensor). */
export function computeFrequencies(
  count: number,
  base: number,
  exponent: "paper" | "tensor2tensor" = "paper",
): Float64Array {
  const power = (c: number) => (exponent === "paper" ? c / count : c / Math.max(count - 1, 1));
  return Float64Array.from({ length: count }, (_, c) => base ** -power(c));
}

/** Where the sine and the cosine of hand c stand: beside each other, or all sines and then all cosines. */
export function findChannels(layout: "interleaved" | "half", hand: number, hands: number): [number, number] {
  return layout === "half" ? [hand, hand + hands] : [2 * hand, 2 * hand + 1];
}

/** Sinusoids of positions (Vaswani et al. 2017, section 3.5): [positions, 2 · hands]. */
export function computeSinusoids(
  positions: readonly number[],
  frequencies: ArrayLike<number>,
  layout: "interleaved" | "half" = "interleaved",
): Matrix {
  const hands = frequencies.length;
  const values = new Float32Array(positions.length * 2 * hands);
  for (let hand = 0; hand < hands; hand++) {
    const [sine, cosine] = findChannels(layout, hand, hands);
    for (let row = 0; row < positions.length; row++) {
      const angle = positions[row]! * frequencies[hand]!;
      values[row * 2 * hands + sine] = Math.sin(angle);
      values[row * 2 * hands + cosine] = Math.cos(angle);
    }
  }
  return { rows: positions.length, columns: 2 * hands, values };
}

/** What `sinusoidTable` is told; `width` is even, `layout` is interleaved where it is left out. */
export interface TableSizes {
  rows: number;
  width: number;
  base: number;
  offset?: number;
  layout?: "interleaved" | "half";
}

/**
 * Sinusoids of the positions offset, offset + 1, …: each hand is turned by its frequency from row to row (the addition
 * theorem), so that a sine and a cosine are computed for each hand and not for each number. Sums are double precision.
 */
export function sinusoidTable({ rows, width, base, offset = 0, layout = "interleaved" }: TableSizes): Matrix {
  const frequencies = computeFrequencies(width / 2, base);
  const values = new Float32Array(rows * width);
  for (let hand = 0; hand < frequencies.length; hand++) {
    const [sineChannel, cosineChannel] = findChannels(layout, hand, frequencies.length);
    const turnSine = Math.sin(frequencies[hand]!);
    const turnCosine = Math.cos(frequencies[hand]!);
    let sine = Math.sin(offset * frequencies[hand]!);
    let cosine = Math.cos(offset * frequencies[hand]!);
    for (let row = 0; row < rows; row++) {
      values[row * width + sineChannel] = sine;
      values[row * width + cosineChannel] = cosine;
      const next = sine * turnCosine + cosine * turnSine;
      cosine = cosine * turnCosine - sine * turnSine;
      sine = next;
    }
  }
  return { rows, columns: width, values };
}

/** Mean over the hands of cos(ω · distance), for distances 0 to rows - 1: the cosine between rows so far apart. */
export function similarityCurve(rows: number, frequencies: ArrayLike<number>): Float32Array {
  const curve = new Float32Array(rows);
  const hands = frequencies.length;
  for (let hand = 0; hand < hands; hand++) {
    // Chebyshev's recurrence: cos((n + 1)ω) = 2 cos ω cos nω - cos((n - 1)ω).
    const twice = 2 * Math.cos(frequencies[hand]!);
    let before = Math.cos(-frequencies[hand]!);
    let now = 1;
    for (let distance = 0; distance < rows; distance++) {
      curve[distance]! += now / hands;
      const next = twice * now - before;
      before = now;
      now = next;
    }
  }
  return curve;
}

/** The similarity of all pairs of `rows` consecutive rows, laid out by distance: no pair is multiplied. */
export function similarityOfHands(rows: number, frequencies: ArrayLike<number>): Matrix {
  const curve = similarityCurve(rows, frequencies);
  const mirrored = new Float32Array(2 * rows - 1);
  for (let distance = 0; distance < rows; distance++) {
    mirrored[rows - 1 + distance] = curve[distance]!;
    mirrored[rows - 1 - distance] = curve[distance]!;
  }
  const values = new Float32Array(rows * rows);
  for (let row = 0; row < rows; row++) {
    values.set(mirrored.subarray(rows - 1 - row, 2 * rows - 1 - row), row * rows);
  }
  return { rows, columns: rows, values };
}

/**
 * Rotate the heads of each row in place by position · frequency (Su et al. 2021, section 3.2). Each row of `x` has
 * `heads` heads of `headDim` channels from its start; channels beyond the hands' stay as they are.
 */
export function rotateHeads(
  x: Float32Array,
  rowWidth: number,
  heads: number,
  headDim: number,
  positions: readonly number[],
  frequencies: ArrayLike<number>,
  layout: "interleaved" | "half",
): void {
  const hands = frequencies.length;
  for (let row = 0; row < positions.length; row++) {
    for (let hand = 0; hand < hands; hand++) {
      const angle = positions[row]! * frequencies[hand]!;
      const cosine = Math.cos(angle);
      const sine = Math.sin(angle);
      const [first, second] = findChannels(layout, hand, hands);
      for (let head = 0; head < heads; head++) {
        const start = row * rowWidth + head * headDim;
        const a = x[start + first]!;
        const b = x[start + second]!;
        x[start + first] = a * cosine - b * sine;
        x[start + second] = b * cosine + a * sine;
      }
    }
  }
}
