/** Base64 and half precision, as Python writes the weights. */

/** Decode base64 without the blanks around it. */
export function decodeBase64(text: string): Uint8Array {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

/** The value of one half-precision number (IEEE 754 binary16) given as its 16 bits. */
export function decodeHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

let halves: Float32Array | null = null;

/** Read little-endian numbers of a type as float32. Half precision goes through a table of all 65,536 values. */
export function readNumbers(bytes: Uint8Array, type: "float16" | "float32"): Float32Array {
  const size = type === "float16" ? 2 : 4;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values = new Float32Array(bytes.byteLength / size);
  if (type === "float32") {
    for (let index = 0; index < values.length; index++) values[index] = view.getFloat32(4 * index, true);
    return values;
  }
  halves ??= Float32Array.from({ length: 1 << 16 }, (_, bits) => decodeHalf(bits));
  for (let index = 0; index < values.length; index++) values[index] = halves[view.getUint16(2 * index, true)]!;
  return values;
}
