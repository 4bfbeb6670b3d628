/** What is drawn on canvases: dials, heatmaps, curves. */

import type { Matrix } from "../engine/api";
import type { Colours } from "./canvas";

type Context = CanvasRenderingContext2D;

/** Red, green and blue of a colour as the style sheet writes it: #rrggbb, which the bundler shortens to #rgb. */
export function readHex(colour: string): [number, number, number] {
  const digits = colour.length === 4 ? colour.replace(/[0-9a-f]/gi, "$&$&") : colour;
  const value = Number.parseInt(digits.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/** 256 steps from one colour over the middle to another, as little-endian pixels. */
export function makeScale(low: string, middle: string, high: string): Uint32Array {
  const [from, through, to] = [readHex(low), readHex(middle), readHex(high)];
  return Uint32Array.from({ length: 256 }, (_, step) => {
    const share = (step - 127.5) / 127.5;
    const end = share < 0 ? from : to;
    const mix = through.map((value, channel) => Math.round(value + (end[channel]! - value) * Math.abs(share)));
    return (255 << 24) | (mix[2]! << 16) | (mix[1]! << 8) | mix[0]!;
  });
}

/** Colour a matrix: values from -most to most over the scale. */
export function paintMatrix(matrix: Matrix, most: number, scale: Uint32Array): OffscreenCanvas {
  const picture = new OffscreenCanvas(matrix.columns, matrix.rows);
  const image = new ImageData(matrix.columns, matrix.rows);
  const pixels = new Uint32Array(image.data.buffer);
  const factor = 127.5 / (most || 1);
  for (let cell = 0; cell < pixels.length; cell++) {
    const step = matrix.values[cell]! * factor + 127.5;
    pixels[cell] = scale[step < 0 ? 0 : step > 255 ? 255 : step | 0]!;
  }
  picture.getContext("2d")!.putImageData(image, 0, 0);
  return picture;
}

/** One dial: the rim, the places of the tokens on it, and the hand. */
export function drawDial(
  context: Context,
  size: number,
  colours: Colours,
  dial: { angle: number; tokens: number[]; chosen: number | null; stopped: boolean; moves: boolean },
): void {
  const centre = size / 2;
  const radius = centre - 5;
  const point = (angle: number, distance: number): [number, number] => [
    centre + Math.sin(angle) * distance,
    centre - Math.cos(angle) * distance,
  ];
  // Filled is what the hand has passed since position 0: all of its dial once it has come round.
  context.fillStyle = colours.glow;
  context.beginPath();
  context.moveTo(centre, centre);
  context.arc(centre, centre, radius, -Math.PI / 2, Math.min(dial.angle, 2 * Math.PI) - Math.PI / 2);
  context.fill();
  context.lineWidth = 1;
  context.strokeStyle = colours.edge;
  context.setLineDash(dial.stopped ? [3, 3] : []);
  context.beginPath();
  context.arc(centre, centre, radius, 0, 2 * Math.PI);
  context.stroke();
  context.setLineDash([]);
  dial.tokens.forEach((angle, index) => {
    const [x, y] = point(angle, radius);
    context.beginPath();
    context.arc(x, y, index === dial.chosen ? 4 : 2.5, 0, 2 * Math.PI);
    context.fillStyle = index === dial.chosen ? colours.warm : colours.ink;
    context.fill();
  });
  context.strokeStyle = dial.moves ? colours.accent : colours.soft;
  context.lineWidth = 2.5;
  context.lineCap = "round";
  context.beginPath();
  context.moveTo(...point(dial.angle, -radius * 0.15));
  context.lineTo(...point(dial.angle, radius * 0.82));
  context.stroke();
  context.fillStyle = colours.ink;
  context.beginPath();
  context.arc(centre, centre, 2, 0, 2 * Math.PI);
  context.fill();
}

export interface Frame {
  left: number;
  right: number;
  top: number;
  bottom: number;
  least: number;
  most: number;
  low: number;
  high: number;
}

/** Axes with a few ticks and words; returns how values become places. */
export function drawAxes(context: Context, frame: Frame, colours: Colours, words: { x: string; y: string; digits?: number }) {
  const x = (value: number) => frame.left + ((value - frame.least) / (frame.most - frame.least || 1)) * (frame.right - frame.left);
  const y = (value: number) => frame.bottom - ((value - frame.low) / (frame.high - frame.low || 1)) * (frame.bottom - frame.top);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = colours.soft;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of chooseTicks(frame.low, frame.high, 3)) {
    context.beginPath();
    context.moveTo(frame.left, y(value));
    context.lineTo(frame.right, y(value));
    context.stroke();
    context.fillText(formatTick(value), frame.left - 6, y(value));
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const value of chooseTicks(frame.least, frame.most, frame.right - frame.left > 420 ? 8 : 4)) {
    context.fillText(formatTick(value), x(value), frame.bottom + 5);
  }
  context.textAlign = "right";
  context.fillText(words.x, frame.right, frame.bottom + 20);
  context.textAlign = "left";
  context.textBaseline = "bottom";
  context.fillStyle = colours.ink;
  context.fillText(words.y, 0, frame.top - 6);
  return { x, y };
}

function formatTick(value: number): string {
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

/** Round values inside a range, about `count` of them. */
export function chooseTicks(low: number, high: number, count: number): number[] {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw)!;
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => Number(((first + index) * step).toPrecision(12)));
}

/** A line through points; several values may fall on one pixel. */
export function drawLine(context: Context, points: Iterable<[number, number]>, colour: string, width = 2): void {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.lineJoin = "round";
  context.beginPath();
  let first = true;
  for (const [x, y] of points) {
    if (first) context.moveTo(x, y);
    else context.lineTo(x, y);
    first = false;
  }
  context.stroke();
}
