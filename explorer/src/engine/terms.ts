/** The four terms of the scores of a first layer: word and position of the query, word and position of the key. */

import type { FourTerms, Matrix } from "./api";
import { applyLinear, dot, type Linear, measureRow, type Norm } from "./arithmetic";
import type { AttentionSizes } from "./attention";
import type { LiveScheme } from "./schemes";
import type { AttentionWeights, Stack, StackInput } from "./stack";

/** A projection of the input in its two parts, [rows, heads · headDim] each. */
interface Parts {
  word: Float32Array;
  position: Float32Array;
}

/**
 * Split the scores of a first layer. The norm in front is held at the mean and σ of the whole input, between which and
 * the scores everything is linear; biases of the norm and of the projections belong to the word.
 */
export function splitIntoTerms(
  stack: Stack,
  layer: AttentionWeights,
  input: StackInput,
  positions: readonly number[],
  scheme: LiveScheme,
  preNorm: boolean,
): FourTerms {
  const zeros = (matrix: Matrix): Matrix => ({ ...matrix, values: new Float32Array(matrix.values.length) });
  const vectors = input.positionVectors;
  const norm = preNorm ? layer.norm : null;
  const word = holdNorm(norm, stack.join(input.embeddings, vectors && zeros(vectors)), input.input, true);
  const position = vectors && holdNorm(norm, stack.join(zeros(input.embeddings), vectors), input.input, false);
  const project = (projection: Linear): Parts => ({
    word: applyLinear(projection, word, positions.length),
    position: position
      ? applyLinear({ ...projection, bias: null }, position, positions.length)
      : new Float32Array(positions.length * projection.columns),
  });
  return multiplyParts(layer.sizes, project(layer.q), project(layer.k), positions, scheme);
}

/** Apply a norm to one part of the input, with the σ of the whole; only the word's part gets the norm's bias. */
function holdNorm(norm: Norm | null, part: Float32Array, whole: Float32Array, withBias: boolean): Float32Array {
  if (!norm) return part;
  const width = norm.weight.length;
  const out = new Float32Array(part.length);
  for (let start = 0; start < part.length; start += width) {
    const { inverse } = measureRow(norm, whole, start, width);
    const { mean } = measureRow(norm, part, start, width);
    for (let i = 0; i < width; i++) {
      const value = (part[start + i]! - mean) * inverse * norm.weight[i]!;
      out[start + i] = norm.bias && withBias ? value + norm.bias[i]! : value;
    }
  }
  return out;
}

function multiplyParts(
  sizes: AttentionSizes,
  q: Parts,
  k: Parts,
  positions: readonly number[],
  scheme: LiveScheme,
): FourTerms {
  const { heads, keyHeads, headDim, scale } = sizes;
  const rows = positions.length;
  const multiply = (query: Float32Array, key: Float32Array): Float32Array => {
    const out = new Float32Array(heads * rows * rows);
    for (let head = 0; head < heads; head++) {
      const keyHead = Math.floor((head * keyHeads) / heads);
      for (let i = 0; i < rows; i++) {
        for (let j = 0; j < rows; j++) {
          const product = dot(query, (i * heads + head) * headDim, key, (j * keyHeads + keyHead) * headDim, headDim);
          out[(head * rows + i) * rows + j] = scale * product;
        }
      }
    }
    return out;
  };
  const terms = {
    wordWord: multiply(q.word, k.word),
    wordPosition: multiply(q.word, k.position),
    positionWord: multiply(q.position, k.word),
    positionPosition: multiply(q.position, k.position),
  };
  if (scheme.bias) addBias(terms.positionPosition, heads, positions, scheme.bias);
  return terms;
}

function addBias(
  term: Float32Array,
  heads: number,
  positions: readonly number[],
  bias: (head: number, distance: number) => number,
): void {
  const rows = positions.length;
  for (let head = 0; head < heads; head++) {
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < rows; j++) {
        term[(head * rows + i) * rows + j]! += bias(head, positions[i]! - positions[j]!);
      }
    }
  }
}
