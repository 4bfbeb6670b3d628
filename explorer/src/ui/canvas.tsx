/** Canvases that are drawn with the page, in its colours and at the screen's resolution. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Colours {
  paper: string;
  card: string;
  ink: string;
  soft: string;
  line: string;
  edge: string;
  glow: string;
  accent: string;
  warm: string;
}

/** Inside another page its address says which colours that page has; the address is read once. */
const outer = /\bcolours=(dark|light)\b/.exec(location.hash)?.[1];
if (outer) document.documentElement.dataset["colours"] = outer;
const DARK = matchMedia(outer ? (outer === "dark" ? "all" : "not all") : "(prefers-color-scheme: dark)");
let colours: Colours | null = null;
DARK.addEventListener("change", () => {
  colours = null;
});

/** The colours of the style sheet, as they are now. */
export function readColours(): Colours {
  if (colours) return colours;
  const style = getComputedStyle(document.documentElement);
  const read = (name: string) => style.getPropertyValue(name).trim();
  colours = {
    paper: read("--paper"),
    card: read("--card"),
    ink: read("--ink"),
    soft: read("--soft"),
    line: read("--line"),
    edge: read("--edge"),
    glow: read("--glow"),
    accent: read("--accent"),
    warm: read("--warm"),
  };
  return colours;
}

/** Whether the screen is dark; changes with it. */
export function useDark(): boolean {
  const [dark, setDark] = useState(DARK.matches);
  useEffect(() => {
    const hear = () => setDark(DARK.matches);
    DARK.addEventListener("change", hear);
    return () => DARK.removeEventListener("change", hear);
  }, []);
  return dark;
}

export type Draw = (context: CanvasRenderingContext2D, width: number, height: number, colours: Colours) => void;

interface Props {
  draw: Draw;
  height: number;
  label: string;
  class?: string;
  /** Where the canvas says its width, in pixels of the page. */
  onWidth?: (width: number) => void;
  [attribute: string]: unknown;
}

/** A canvas as wide as its place. */
export function Canvas({ draw, height, label, onWidth, ...rest }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const dark = useDark();
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.round(entry!.contentRect.width)));
    watch.observe(canvas.current!);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (width > 0) onWidth?.(width);
  }, [width]);
  useLayoutEffect(() => {
    if (width > 0) paint(canvas.current!, draw, width, height);
  }, [draw, width, height, dark]);
  return <canvas ref={canvas} role="img" aria-label={label} style={{ height: `${height}px` }} {...rest} />;
}

function paint(canvas: HTMLCanvasElement, draw: Draw, width: number, height: number): void {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  draw(context, width, height, readColours());
}

/** Draw canvases below each other on one, with a line of words, and return it as a PNG. */
export function composePicture(canvases: readonly HTMLCanvasElement[], words: readonly string[]): Promise<Blob> {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  const { paper, ink, soft } = readColours();
  const pad = 24 * ratio;
  const line = 22 * ratio;
  const rows = layOut(canvases);
  const width = Math.max(...rows.map((row) => row.width), 480 * ratio) + 2 * pad;
  const height = 2 * pad + words.length * line + rows.reduce((sum, row) => sum + row.height + pad / 2, 0);
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [Math.ceil(width), Math.ceil(height)];
  const context = picture.getContext("2d")!;
  context.fillStyle = paper;
  context.fillRect(0, 0, width, height);
  words.forEach((text, index) => {
    context.font = `${index === 0 ? 600 : 400} ${(index === 0 ? 16 : 13) * ratio}px system-ui, sans-serif`;
    context.fillStyle = index === 0 ? ink : soft;
    context.fillText(text, pad, pad + (index + 0.7) * line, width - 2 * pad);
  });
  let top = pad + words.length * line;
  for (const row of rows) {
    for (const { canvas, left } of row.items) context.drawImage(canvas, pad + left, top);
    top += row.height + pad / 2;
  }
  return new Promise((resolve, reject) =>
    picture.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The browser made no picture."))), "image/png"),
  );
}

/** Rows of canvases as they stand in the page. */
function layOut(canvases: readonly HTMLCanvasElement[]) {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  const boxes = canvases.map((canvas) => ({ canvas, box: canvas.getBoundingClientRect() }));
  const left = Math.min(...boxes.map(({ box }) => box.left));
  const rows: { top: number; width: number; height: number; items: { canvas: HTMLCanvasElement; left: number }[] }[] = [];
  for (const { canvas, box } of boxes) {
    let row = rows.find((candidate) => Math.abs(candidate.top - box.top) < 8);
    if (!row) rows.push((row = { top: box.top, width: 0, height: 0, items: [] }));
    row.items.push({ canvas, left: (box.left - left) * ratio });
    row.width = Math.max(row.width, (box.left - left) * ratio + canvas.width);
    row.height = Math.max(row.height, canvas.height);
  }
  return rows;
}

/** Put a picture on the clipboard, or, where the browser does not allow that, into a file. Says which. */
export async function copyPicture(blob: Promise<Blob>, name: string): Promise<string> {
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
    return "The picture is copied.";
  } catch {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await blob);
    link.download = `${name}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    return `The picture is saved as ${name}.png.`;
  }
}
