/** Attention: layers and heads to choose from, and the chosen one in words, positions and their four terms. */

import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import type { AttentionTrace, Matrix, Trace } from "../engine/api";
import { Canvas, composePicture, copyPicture, readColours, useDark, type Draw } from "./canvas";
import { chooseView, findLargest, pickAttention, readHead, reorder, TERMS } from "./grid";
import { traceAfter, traceBefore, type Live } from "./live";
import { makeScale, paintMatrix, readHex } from "./plots";
import { Said } from "./said";
import { ALL_TERMS, type Quantity, type Stack, type State, type View } from "./state";
import type { Update } from "./store";
import { formatNumber, nameSpecial, showToken } from "./words";

interface Props {
  state: State;
  live: Live;
  update: Update;
  say: (text: string) => void;
  said: string;
}

const STACKS: [Stack, string][] = [
  ["encoder", "Encoder: what it reads"],
  ["decoder", "Decoder: what it has written"],
  ["cross", "Cross-attention: from written to read"],
];
const VIEWS: [View, string][] = [
  ["before", "As trained"],
  ["after", "With your changes"],
  ["difference", "Difference"],
];
const QUANTITIES: [Quantity, string][] = [
  ["weights", "Weights"],
  ["scores", "Scores (logits)"],
];

/** Everything about attention. Both traces read the untouched translation, so that they can be compared. */
export function Attention(props: Props) {
  const { live, state, update, say, said } = props;
  const section = useRef<HTMLElement>(null);
  if (!live.before || !live.after) return null;
  const before = traceBefore(live);
  const after = traceAfter(live);
  const picture = () => {
    const canvases = [...section.current!.querySelectorAll<HTMLCanvasElement>("canvas.matrix")];
    const words = [`Attention in layer ${state.layer + 1}, head ${state.head + 1} (${state.stack})`, live.places.map((token) => showToken(token.text)).join(" ")];
    void copyPicture(composePicture(canvases, words), "clockhands-attention").then(say);
  };
  const traces = { ...props, before, after };
  const layers = state.stack === "encoder" ? live.model.config.encoderLayers : live.model.config.decoderLayers;
  const grid: Grid = { layers, heads: live.model.config.heads, share: state.quantity === "weights", compute: (layer, head) => computeView(traces, layer, head) };
  const layer = Math.min(state.layer, layers - 1);
  const typed = state.view === "before";
  const source = (typed ? live.typed : live.places).map((token, place) => (token.special ? nameSpecial(place) : showToken(token.text)));
  const target = ["start", ...live.before.perToken.map((token) => (token.special ? "end" : showToken(token.text)))].slice(0, before.targetIds.length);
  const rows = state.stack === "encoder" ? source : target;
  const columns = state.stack === "decoder" ? target : source;
  const shown = pickAttention(typed ? before : after, state.stack, layer);
  return (
    <section class="card attention" ref={section} aria-labelledby="attention-title">
      <div class="head">
        <h2 id="attention-title">Attention</h2>
        <Said text={said} />
        <button type="button" onClick={picture}>
          Copy picture
        </button>
      </div>
      <p class="lead">
        Each head scores every pair of tokens. A score is a sum of four terms, because a word and its position are added before they are compared: word to word, word
        to position, position to word, and position to position.
      </p>
      <div class="choices">
        {live.model.config.decoderLayers === 0 ? null : <Choice name="stack" label="Where" values={STACKS} value={state.stack} set={(stack) => update({ stack, layer: 0 })} />}
        <Choice name="view" label="When" values={VIEWS} value={state.view} set={(view) => update({ view })} />
        <Choice name="quantity" label="What" values={QUANTITIES} value={state.quantity} set={(quantity) => update({ quantity })} />
      </div>
      {state.view === "difference" && live.before === live.after ? <p class="note">You have changed nothing yet: there is no difference.</p> : null}
      <div class="navigate">
        <Navigator state={state} update={update} grid={grid} />
        <Chosen state={state} grid={grid} rows={rows} columns={columns} difference={state.view === "difference"}>
          {(cell, _, value) => <Terms {...traces} attention={shown} cell={cell} words={[rows[cell[0]]!, columns[cell[1]]!]} value={value} />}
        </Chosen>
      </div>
    </section>
  );
}

function Choice<T extends string>(props: { name: string; label: string; values: [T, string][]; value: T; set: (value: T) => void }) {
  return (
    <fieldset class="choice">
      <legend>{props.label}</legend>
      {props.values.map(([value, label]) => (
        <label key={value}>
          <input type="radio" name={props.name} checked={props.value === value} onChange={() => props.set(value)} />
          <span>{label}</span>
        </label>
      ))}
    </fieldset>
  );
}

interface Traces extends Props {
  before: Trace;
  after: Trace;
}

/** The matrix of one head as the state asks for it. The tokens of `before` are put into the order of `after`. */
function computeView(props: Traces, layer: number, head: number): Matrix {
  const { state, live } = props;
  const read = (trace: Trace) => readHead(pickAttention(trace, state.stack, layer), head, state.quantity, state.terms);
  if (state.view === "before") return read(props.before);
  if (state.view === "after") return read(props.after);
  const moved = reorder(read(props.before), state.stack === "encoder" ? live.order : null, state.stack === "decoder" ? null : live.order);
  return chooseView("difference", moved, read(props.after));
}

/** What there is to choose from: so many layers of so many heads, and the matrix of each. */
export interface Grid {
  layers: number;
  heads: number;
  /** Whether values are shares, of which 1 is the whole. */
  share: boolean;
  compute: (layer: number, head: number) => Matrix;
}

/** Layers down, heads across: a picture of each, to choose from. */
export function Navigator({ state, update, grid }: { state: State; update: Update; grid: Grid }) {
  const group = useRef<HTMLDivElement>(null);
  const { layers, heads } = grid;
  if (layers * heads < 2) return null;
  const keys = (layer: number, head: number) => (event: KeyboardEvent) => {
    const [down, across] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    const [nextLayer, nextHead] = [layer + down!, head + across!];
    if ((!down && !across) || nextLayer < 0 || nextLayer >= layers || nextHead < 0 || nextHead >= heads) return;
    event.preventDefault();
    update({ layer: nextLayer, head: nextHead });
    group.current!.querySelectorAll<HTMLElement>("button")[nextLayer * heads + nextHead]!.focus();
  };
  return (
    <div class={heads > 6 ? "heads many" : "heads"} ref={group} role="radiogroup" aria-label="Layers and heads; arrow keys move" style={{ gridTemplateColumns: `repeat(${heads}, minmax(0, 1fr))` }}>
      {Array.from({ length: layers * heads }, (_, index) => {
        const [layer, head] = [Math.floor(index / heads), index % heads];
        const chosen = layer === Math.min(state.layer, layers - 1) && head === state.head;
        return (
          <button
            key={index}
            type="button"
            role="radio"
            aria-checked={chosen}
            tabIndex={chosen ? 0 : -1}
            aria-label={`Layer ${layer + 1}, head ${head + 1}`}
            onClick={() => update({ layer, head })}
            onKeyDown={keys(layer, head)}
          >
            <Thumbnail matrix={grid.compute(layer, head)} share={grid.share} height={heads > 6 ? 24 : 56} />
            <small>
              {layer + 1}·{head + 1}
            </small>
          </button>
        );
      })}
    </div>
  );
}

function useScale(): Uint32Array {
  const dark = useDark();
  return useMemo(() => {
    const { card, accent, warm } = readColours();
    return makeScale(warm, card, accent);
  }, [dark]);
}

function Thumbnail({ matrix, share, height: tall }: { matrix: Matrix; share: boolean; height: number }) {
  const scale = useScale();
  const draw: Draw = (context, width, height) => {
    context.imageSmoothingEnabled = false;
    context.drawImage(paintMatrix(matrix, share ? 1 : findLargest(matrix.values), scale), 0, 0, width, height);
  };
  return <Canvas draw={draw} height={tall} label="" aria-hidden="true" />;
}

interface ChosenProps {
  state: State;
  grid: Grid;
  rows: string[];
  columns: string[];
  difference: boolean;
  /** What is said of a pair of tokens: its place, its value as text and as a number. */
  children: (cell: [number, number], told: string, value: number) => ComponentChildren;
}

/** The chosen head: its matrix, and a pair of tokens in it. */
export function Chosen({ state, grid, rows, columns, difference, children }: ChosenProps) {
  const [cell, setCell] = useState<[number, number]>([0, 0]);
  const layer = Math.min(state.layer, grid.layers - 1);
  const matrix = grid.compute(layer, state.head);
  const row = Math.min(cell[0], matrix.rows - 1);
  const column = Math.min(cell[1], matrix.columns - 1);
  const keys = (event: KeyboardEvent) => {
    const [down, across] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    if (!down && !across) return;
    event.preventDefault();
    setCell([Math.max(0, Math.min(matrix.rows - 1, row + down!)), Math.max(0, Math.min(matrix.columns - 1, column + across!))]);
  };
  const value = matrix.values[row * matrix.columns + column]!;
  return (
    <div class="chosen">
      <h3>
        Layer {layer + 1}, head {state.head + 1}
      </h3>
      <MatrixPicture matrix={matrix} rows={rows} columns={columns} cell={[row, column]} choose={setCell} keys={keys} share={grid.share} difference={difference} />
      {children([row, column], formatNumber(value), value)}
    </div>
  );
}

interface PictureProps {
  matrix: Matrix;
  rows: string[];
  columns: string[];
  cell: [number, number];
  choose: (cell: [number, number]) => void;
  keys: (event: KeyboardEvent) => void;
  share: boolean;
  difference: boolean;
}

/** The matrix, a value in each square that is large enough. */
function MatrixPicture({ matrix, rows, columns, cell, choose, keys, share, difference }: PictureProps) {
  const [width, setWidth] = useState(320);
  const scale = useScale();
  const left = Math.min(92, 16 + 7.2 * Math.max(...rows.map((text) => text.length)));
  const top = 12 + Math.min(84, 7 * Math.max(...columns.map((text) => text.length)));
  const size = Math.max(8, Math.min(76, (width - left - 2) / matrix.columns));
  const down = Math.min(size, 46);
  const height = Math.ceil(top + down * matrix.rows + 4);
  const most = share && !difference ? 1 : findLargest(matrix.values);
  const draw: Draw = (context, _, __, colours) => {
    context.imageSmoothingEnabled = false;
    context.drawImage(paintMatrix(matrix, most, scale), left, top, size * matrix.columns, down * matrix.rows);
    context.strokeStyle = colours.line;
    context.strokeRect(left - 0.5, top - 0.5, size * matrix.columns + 1, down * matrix.rows + 1);
    context.font = "12.5px system-ui, sans-serif";
    context.textBaseline = "middle";
    rows.forEach((text, row) => {
      context.fillStyle = row === cell[0] ? colours.ink : colours.soft;
      context.textAlign = "right";
      context.fillText(text, left - 6, top + (row + 0.5) * down, left - 8);
    });
    columns.forEach((text, column) => {
      context.save();
      context.translate(left + (column + 0.5) * size, top - 6);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillStyle = column === cell[1] ? colours.ink : colours.soft;
      context.fillText(text, 0, 0, top - 6);
      context.restore();
    });
    const card = readHex(colours.card);
    matrix.values.forEach((value, index) => {
      const [row, column] = [Math.floor(index / matrix.columns), index % matrix.columns];
      if (size < 34) return;
      const strong = Number.isFinite(value) && Math.abs(value) / (most || 1) > 0.55;
      context.fillStyle = strong ? `rgb(${card.join()})` : colours.ink;
      context.textAlign = "center";
      context.font = "11px system-ui, sans-serif";
      context.fillText(Number.isFinite(value) ? formatCell(value, share) : "·", left + (column + 0.5) * size, top + (row + 0.5) * down);
    });
    context.strokeStyle = colours.ink;
    context.lineWidth = 2;
    context.strokeRect(left + cell[1] * size + 1, top + cell[0] * down + 1, size - 2, down - 2);
  };
  const read = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - top) / down);
    const column = Math.floor((event.clientX - box.left - left) / size);
    if (row >= 0 && row < matrix.rows && column >= 0 && column < matrix.columns) choose([row, column]);
  };
  const value = matrix.values[cell[0] * matrix.columns + cell[1]]!;
  const label = `Attention matrix, queries down, keys across. From “${rows[cell[0]]}” to “${columns[cell[1]]}”: ${formatNumber(value, 2)}. Arrow keys move.`;
  return <Canvas class="matrix" draw={draw} height={height} onWidth={setWidth} label={label} tabIndex={0} onKeyDown={keys} onPointerMove={read} onPointerDown={read} />;
}

function formatCell(value: number, share: boolean): string {
  if (share) return value === 0 ? "0" : value.toFixed(2).replace("-0.00", "0.00").replace("-", "−").replace(/(?<=^|−)0\./, ".");
  return value.toFixed(1).replace("-0.0", "0.0").replace("-", "−");
}

interface TermsProps extends Traces {
  attention: AttentionTrace;
  cell: [number, number];
  words: [string, string];
  value: number;
}

/** The score and the weight of the same two tokens as trained, wherever they stood then. */
function findBefore(state: State, live: Live, before: Trace, [row, column]: [number, number]): { score: number; weight: number } {
  const attention = pickAttention(before, state.stack, state.layer);
  const query = state.stack === "encoder" ? live.order[row]! : row;
  const key = state.stack === "decoder" ? column : live.order[column]!;
  const at = (state.head * attention.queries + query) * attention.keys + key;
  return { score: attention.logits[at]!, weight: attention.weights[at]! };
}

/** Why a score has no four terms. */
const UNSPLIT = {
  cross: "Cross-attention reads the encoder's output, where word and position are no longer apart: there are no four terms to show.",
  later: "Behind the first layer, word and position are no longer apart: there are no four terms to show.",
};

/** The score of one pair of tokens, term by term; each can be taken out of the sum. */
function Terms({ state, live, update, before, attention, cell, words, value }: TermsProps) {
  const at = state.head * attention.queries * attention.keys + cell[0] * attention.keys + cell[1];
  const logit = attention.logits[at]!;
  const { terms } = attention;
  const was = state.view === "difference" ? findBefore(state, live, before, cell) : null;
  const chosen = terms !== null && state.quantity === "scores" && state.terms !== ALL_TERMS;
  const when = state.view === "before" ? "as trained" : "with your changes";
  if (logit === -Infinity) {
    return (
      <p class="readout">
        “{words[0]}” may not look at “{words[1]}”: that comes after it.
      </p>
    );
  }
  const sum = TERMS.reduce((total, term) => total + (terms && state.terms & term.bit ? terms[term.key][at]! : 0), 0);
  const most = terms ? Math.max(...TERMS.map((term) => Math.abs(terms[term.key][at]!)), 1e-6) : 1;
  return (
    <div class="readout">
      <p>
        From “{words[0]}” to “{words[1]}”, {when}: score <b>{formatNumber(logit)}</b>
        {was ? ` (was ${formatNumber(was.score)})` : ""}, weight <b>{formatNumber(attention.weights[at]!)}</b>
        {was ? ` (was ${formatNumber(was.weight)})` : ""}.
      </p>
      {was && chosen ? <p>The chosen terms changed by {formatNumber(value)}.</p> : null}
      {terms ? (
        <>
          <ul class="terms">
            {TERMS.map((term) => {
              const on = (state.terms & term.bit) > 0;
              const part = terms[term.key][at]!;
              return (
                <li key={term.bit}>
                  <label>
                    <input type="checkbox" checked={on} onChange={() => update({ terms: state.terms ^ term.bit, quantity: "scores" })} />
                    <span>{term.name}</span>
                  </label>
                  <span class="track two">
                    <span class={part < 0 ? "fill warm" : "fill accent"} style={{ width: `${(50 * Math.abs(part)) / most}%`, [part < 0 ? "right" : "left"]: "50%" }} />
                  </span>
                  <b class={on ? "" : "out"}>{formatNumber(part)}</b>
                </li>
              );
            })}
          </ul>
          <p>
            {state.terms === ALL_TERMS ? `The four terms add up to ${formatNumber(sum)}: the score.` : `The chosen terms add up to ${formatNumber(sum)}; all four are ${formatNumber(logit)}.`}
          </p>
        </>
      ) : (
        <p class="soft">
          {state.stack === "cross" || state.layer > 0
            ? UNSPLIT[state.stack === "cross" ? "cross" : "later"]
            : "This scheme rotates queries and keys: word and position are multiplied, not added, and there are no four terms."}
        </p>
      )}
    </div>
  );
}
