/** The hands: dials, the encoding, the similarity of positions and the kernel of a head, moved by one drag. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Matrix } from "../engine/api";
import { Canvas, composePicture, copyPicture, readColours, useDark, type Draw } from "./canvas";
import { chooseHands, compareToTable, shortAngle, turnHand } from "./clock";
import { findRow, makeClock, ownWidth, tellDials, trainedBase, type Clock } from "./clockwork";
import { isRecorded, type Placed } from "./live";
import { drawAxes, drawDial, drawLine, makeScale, paintMatrix } from "./plots";
import { canControl, MOST_SIZE, placePositions, type State } from "./state";
import { Said } from "./said";
import { Slider } from "./sliders";
import type { Update } from "./store";
import { formatNumber, formatPosition, nameSpecial, showToken } from "./words";

interface Props {
  state: State;
  live: Placed;
  update: Update;
  say: (text: string) => void;
  said: string;
}

function useClock(state: State, live: Placed): Clock {
  const { positions: _, ...shape } = live.controls;
  const key = [state.width, state.base, state.length, state.stoppedHand, state.sineOnly, state.loudness, JSON.stringify(shape)].join();
  return useMemo(() => makeClock(state, live), [live.model, key]);
}

/** Everything about the hands. */
export function Hands(props: Props) {
  const { state, live, update, say, said } = props;
  const clock = useClock(state, live);
  const section = useRef<HTMLElement>(null);
  const most = state.length - 1;
  const place = Math.min(most, state.clock);
  const hold = (now: State, position: number) => takePosition(now, live, Math.min(now.length - 1, Math.max(0, position)));
  const set = (position: number) => update((now) => hold(now, position));
  // Two keys may be pressed within one frame: each starts from where the last one went.
  const step = (by: number) => update((now) => hold(now, now.clock + by));
  const picture = () => {
    const canvases = [...section.current!.querySelectorAll("canvas")];
    const words = ["The hands of a positional encoding", `position ${formatPosition(place)}, base ${formatNumber(state.base ?? trainedBase(live))}, width ${clock.table.columns}`];
    void copyPicture(composePicture(canvases, words), "clockhands").then(say);
  };
  return (
    <section class="card hands" ref={section} aria-labelledby="hands-title">
      <div class="head">
        <h2 id="hands-title">The hands</h2>
        <Said text={said} />
        <button type="button" onClick={picture}>
          Copy picture
        </button>
      </div>
      <p class="lead">
        {tellDials(clock, live.model.scheme)}
      </p>
      <Time {...props} place={place} most={most} set={set} step={step} />
      <Dials {...props} clock={clock} place={place} most={most} set={set} step={step} />
      <div class="figures">
        <Heatmap clock={clock} place={place} set={set} />
        <Curves state={state} live={live} clock={clock} place={place} set={set} />
      </div>
      <Sizes {...props} clock={clock} />
    </section>
  );
}

/** The hands take a position, and so does the token that follows them. */
function takePosition(now: State, live: Placed, position: number): Partial<State> {
  const rounded = Math.round(position * 100) / 100;
  if (now.follow === null) return { clock: rounded };
  const positions = placePositions(now, live.places.length);
  positions[now.follow] = rounded;
  return { clock: rounded, positions, frozenAt: null, reversed: false };
}

/** Play, scrub, and the token that follows. */
function Time({ state, live, update, place, most, set, step }: Props & { place: number; most: number; set: (position: number) => void; step: (by: number) => void }) {
  const [playing, setPlaying] = useState(false);
  const now = useRef(place);
  now.current = place;
  useEffect(() => {
    if (!playing) return;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    let last = performance.now();
    let frame = requestAnimationFrame(function turn(time) {
      // Without motion, the clock ticks once a second; with it, it turns four positions a second.
      const passed = (time - last) / 1000;
      if (!still || passed >= 1) {
        set(still ? (Math.floor(now.current) + 1) % (most + 1) : (now.current + 4 * Math.min(passed, 0.1)) % most);
        last = time;
      }
      frame = requestAnimationFrame(turn);
    });
    return () => cancelAnimationFrame(frame);
  }, [playing, most]);
  const positioned = canControl(live.model, "encoder", "positions");
  return (
    <div class="time">
      <button type="button" class="play" aria-pressed={playing} onClick={() => setPlaying(!playing)}>
        {playing ? "❚❚ Pause" : "▶ Play"}
      </button>
      <label class="scrub">
        <span>
          Position <output>{formatPosition(place)}</output>
        </span>
        <input type="range" min={0} max={most} step={0.01} value={place} onInput={(event) => set(Number(event.currentTarget.value))} onKeyDown={stepWhole(step)} />
      </label>
      {positioned ? (
        <label>
          <span>and with it</span>
          <select
            value={state.follow === null ? "" : String(state.follow)}
            onChange={(event) => {
              const follow = event.currentTarget.value === "" ? null : Number(event.currentTarget.value);
              update(follow === null ? { follow } : { follow, clock: Math.max(0, live.positions[follow] ?? 0) });
            }}
          >
            <option value="">no word</option>
            {live.places.map((token, index) => (
              <option key={index} value={String(index)}>
                {token.special ? `the ${nameSpecial(index)} token` : `“${showToken(token.text)}”`}
              </option>
            ))}
          </select>
        </label>
      ) : null}
    </div>
  );
}

/** Arrow keys go from one whole position to the next; with shift, by a tenth. */
function stepWhole(step: (by: number) => void) {
  return (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    step(event.shiftKey ? by / 10 : by);
  };
}

interface DialProps extends Props {
  clock: Clock;
  place: number;
  most: number;
  set: (position: number) => void;
  step: (by: number) => void;
}

function Dials({ state, live, update, clock, place, most, set, step }: DialProps) {
  const { frequencies } = clock.settings;
  const [room, setRoom] = useState(32);
  const list = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => {
      const across = Math.max(3, Math.floor(entry!.contentRect.width / 74));
      setRoom(across >= 12 ? 2 * across : Math.min(32, 3 * across));
    });
    watch.observe(list.current!);
    return () => watch.disconnect();
  }, []);
  const shown = chooseHands(frequencies.length, Math.min(32, room));
  const tokens = live.positions.map((position) => position + state.offset);
  const focus = (index: number) => {
    const next = Math.max(0, Math.min(shown.length - 1, index));
    setActive(next);
    (list.current!.children[next] as HTMLElement).focus();
  };
  const drag = (frequency: number) => (event: PointerEvent) => {
    const dial = event.currentTarget as HTMLElement;
    const box = dial.querySelector("canvas")!.getBoundingClientRect();
    const angleAt = (pointer: PointerEvent) => Math.atan2(pointer.clientX - box.left - box.width / 2, box.top + box.height / 2 - pointer.clientY);
    let angle = angleAt(event);
    let position = place;
    dial.setPointerCapture(event.pointerId);
    const go = (next: PointerEvent) => {
      const now = angleAt(next);
      position = turnHand(position, shortAngle(angle, now), frequency, most);
      angle = now;
      set(position);
    };
    const end = () => {
      dial.removeEventListener("pointermove", go);
      dial.removeEventListener("pointerup", end);
      dial.removeEventListener("pointercancel", end);
    };
    dial.addEventListener("pointermove", go);
    dial.addEventListener("pointerup", end);
    dial.addEventListener("pointercancel", end);
  };
  const keys = (index: number) => (event: KeyboardEvent) => {
    if (event.key === "PageDown" || event.key === "PageUp") {
      event.preventDefault();
      return focus(index + (event.key === "PageDown" ? 1 : -1));
    }
    if (event.key === "Home" || event.key === "End") {
      event.preventDefault();
      return set(event.key === "Home" ? 0 : most);
    }
    stepWhole(step)(event);
  };
  return (
    <>
      <div class="dials" ref={list} role="group" aria-label="Hands, from the fastest to the slowest">
        {shown.map((hand, index) => {
          const frequency = frequencies[hand]!;
          const turn = frequency > 0 ? formatNumber((2 * Math.PI) / frequency) : "∞";
          return (
            <div
              key={index}
              class="dial"
              role="slider"
              tabIndex={index === Math.min(active, shown.length - 1) ? 0 : -1}
              aria-label={`Hand ${hand + 1}, one turn in ${turn} positions`}
              aria-valuemin={0}
              aria-valuemax={most}
              aria-valuenow={place}
              aria-valuetext={`position ${formatPosition(place)}, ${Math.round((((place * frequency * 180) / Math.PI) % 360) * 10) / 10} degrees`}
              onPointerDown={drag(frequency)}
              onFocus={() => setActive(index)}
              onKeyDown={keys(index)}
            >
              <Dial frequency={frequency} place={place} tokens={tokens} chosen={state.follow} stopped={frequency === 0} />
              <small aria-hidden="true">{turn}</small>
            </div>
          );
        })}
      </div>
      <p class="hint">
        {shown.length < frequencies.length ? `${shown.length} of ${frequencies.length} hands are shown. ` : ""}
        Below each dial: in how many positions it goes round. Filled: what it has passed since position 0. Dots on the rim: the tokens of the sentence. Drag, or use the arrow keys (with shift: tenths); page up
        and down go from hand to hand.
        {state.stoppedHand !== null ? (
          <button type="button" class="plain" onClick={() => update({ stoppedHand: null })}>
            Let the stopped hand turn
          </button>
        ) : null}
      </p>
    </>
  );
}

const DIAL = 64;

function Dial(props: { frequency: number; place: number; tokens: number[]; chosen: number | null; stopped: boolean }) {
  const { frequency, place, tokens, chosen, stopped } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const dark = useDark();
  const angles = tokens.map((token) => token * frequency);
  const key = `${place * frequency}|${angles.join()}|${chosen}|${stopped}|${dark}`;
  useLayoutEffect(() => {
    const element = canvas.current!;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    if (element.width !== DIAL * ratio) [element.width, element.height] = [DIAL * ratio, DIAL * ratio];
    const context = element.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, DIAL, DIAL);
    drawDial(context, DIAL, readColours(), { angle: place * frequency, tokens: angles, chosen, stopped, moves: !stopped });
  }, [key]);
  return <canvas ref={canvas} aria-hidden="true" />;
}

interface FigureProps {
  clock: Clock;
  place: number;
  set: (position: number) => void;
}

const LEFT = 34;
const STRIP = 66;
const TABLE = 218;

/** The vector of this position, and below it the table of all positions with its row marked. */
function Heatmap({ clock, place, set }: FigureProps) {
  const { table } = clock;
  const dark = useDark();
  const most = useMemo(() => largest(table) || 1, [table]);
  const drawTable = useMemo((): Draw => {
    const { card, accent, warm } = readColours();
    const picture = paintMatrix(table, most, makeScale(warm, card, accent));
    return (context, width, height) => {
      context.imageSmoothingEnabled = false;
      context.drawImage(picture, LEFT, 0, width - LEFT, height);
    };
  }, [table, dark]);
  const row = findRow(clock, place);
  const drawStrip: Draw = (context, width, height, colours) => {
    const across = width - LEFT;
    const middle = height - 24;
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = colours.ink;
    context.textBaseline = "top";
    context.fillText(`The vector of position ${formatPosition(place)}`, LEFT, 0);
    context.fillStyle = colours.line;
    context.fillRect(LEFT, middle, across, 1);
    const thick = Math.max(1, across / row.length - (across / row.length > 3 ? 1 : 0));
    for (const sign of [1, -1]) {
      context.fillStyle = sign < 0 ? colours.warm : colours.accent;
      row.forEach((value, column) => {
        if (value * sign > 0) context.fillRect(LEFT + (column * across) / row.length, middle, thick, (-value / most) * 22);
      });
    }
  };
  // The row's frame lies on a canvas of its own: the table below it is not drawn again while the hands turn.
  const drawFrame: Draw = (context, width, height, colours) => {
    const tall = Math.max(4, height / table.rows);
    const y = Math.min(height - tall / 2, Math.max(tall / 2, ((place + 0.5) / table.rows) * height));
    context.strokeStyle = colours.card;
    context.lineWidth = 4;
    context.strokeRect(LEFT - 1, y - tall / 2, width - LEFT, tall);
    context.strokeStyle = colours.ink;
    context.lineWidth = 1.5;
    context.strokeRect(LEFT - 1, y - tall / 2, width - LEFT, tall);
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = colours.ink;
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText(formatPosition(Math.round(place)), LEFT - 5, Math.min(height - 7, Math.max(7, y)));
  };
  const read = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    if (event.buttons === 1) set(((event.clientY - box.top) / box.height) * table.rows - 0.5);
  };
  return (
    <figure>
      <Canvas draw={drawStrip} height={STRIP} label={`The vector of position ${formatPosition(place)}: ${row.length} channels`} />
      <p class="caption">
        All positions (down) × {table.columns} channels (across)
      </p>
      <div class="layers" onPointerDown={read} onPointerMove={read}>
        <Canvas draw={drawTable} height={TABLE} label={`The encoding: ${table.rows} positions by ${table.columns} channels`} />
        <Canvas class="above" draw={drawFrame} height={TABLE} label={`The row of position ${formatPosition(place)}`} />
      </div>
    </figure>
  );
}

function largest(table: Matrix): number {
  let most = 0;
  for (let cell = 0; cell < table.values.length; cell++) most = Math.max(most, Math.abs(table.values[cell]!));
  return most;
}

/** How alike each position is to this one, and what a head gives to a key there. */
function Curves({ state, live, clock, place, set }: FigureProps & { state: State; live: Placed }) {
  const { table } = clock;
  const row = findRow(clock, place);
  const alike = compareToTable(row, table);
  const layer = Math.max(0, Math.min(state.layer, live.model.config.encoderLayers - 1));
  const head = Math.min(state.head, live.model.config.heads - 1);
  const kernel = useMemo(() => {
    try {
      return live.model.kernel(layer, head, live.controls);
    } catch {
      return null;
    }
  }, [live.model, layer, head, JSON.stringify(live.controls)]);
  const rows = table.rows;
  const height = 300;
  const draw: Draw = (context, width, _, colours) => {
    const sides = { left: 46, right: width - 6, least: 0, most: rows - 1 };
    const upper = { ...sides, top: 22, bottom: 118, low: -1, high: 1 };
    const axes = drawAxes(context, upper, colours, { x: "position", y: `How alike to position ${formatPosition(place)} (cosine)` });
    drawLine(context, Array.from(alike, (value, index): [number, number] => [axes.x(index), axes.y(value)]), colours.accent);
    mark(context, axes.x(place), upper, colours.ink);
    if (!kernel) return;
    const near = kernel.distances.map((distance, index) => ({ at: place - distance, value: kernel.values[index]! }));
    const inside = near.filter(({ at }) => at >= 0 && at <= rows - 1).sort((one, other) => one.at - other.at);
    const [low, high] = [Math.min(0, ...kernel.values), Math.max(0, ...kernel.values)];
    const lower = { ...sides, top: 176, bottom: 264, low, high };
    const below = drawAxes(context, lower, colours, { x: "position of the key", y: kernel.title ?? (width > 480 ? `What head ${head + 1} of layer ${layer + 1} gives to a key there (logits)` : `Head ${head + 1}, layer ${layer + 1}: logit of a key there`) });
    drawLine(context, inside.map(({ at, value }): [number, number] => [below.x(at), below.y(value)]), colours.warm);
    mark(context, below.x(place), lower, colours.ink);
  };
  const read = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    if (event.buttons === 1) set(((event.clientX - box.left - 46) / (box.width - 52)) * (rows - 1));
  };
  const label = `Similarity of every position to position ${formatPosition(place)}: ${formatNumber(alike[Math.min(rows - 1, Math.round(place) + 1)] ?? 0, 2)} one position on`;
  return (
    <figure>
      <Canvas class="curves" draw={draw} height={height} label={label} onPointerDown={read} onPointerMove={read} />
      <figcaption>
        {kernel ? (
          <>
            Lower curve: what position alone does in this head to the score of a key at each place.
            <details>
              <summary>How it is computed</summary>
              {kernel.how}
            </details>
          </>
        ) : isRecorded(live.model) ? "What the heads make of these vectors was not recorded: there is no kernel to draw." : "In this head, position does not enter the scores directly: there is no kernel to draw."}
      </figcaption>
    </figure>
  );
}

function mark(context: CanvasRenderingContext2D, x: number, frame: { top: number; bottom: number }, colour: string): void {
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.setLineDash([3, 3]);
  context.beginPath();
  context.moveTo(x, frame.top);
  context.lineTo(x, frame.bottom);
  context.stroke();
  context.setLineDash([]);
}

/** Width and length of the picture: the model keeps its own. */
function Sizes({ state, live, update, clock }: Props & { clock: Clock }) {
  const own = ownWidth(live.model);
  return (
    <div class="sizes">
      <Slider
        label="Width"
        unit=" channels"
        can={clock.turning}
        value={Math.log2(state.width ?? own)}
        least={2}
        most={Math.log2(MOST_SIZE)}
        step={1}
        usual={Math.log2(own)}
        shown={formatNumber(clock.table.columns)}
        set={(power) => update({ width: 2 ** power === own ? null : 2 ** power })}
        reset={() => update({ width: null })}
      >
        {isRecorded(live.model) ? "Of the picture." : `Of the picture: this model keeps its ${own}.`}
      </Slider>
      <Slider
        label="Length"
        unit=" positions"
        value={Math.log2(state.length)}
        least={3}
        most={Math.log2(MOST_SIZE)}
        step={0.5}
        usual={6}
        shown={formatNumber(state.length)}
        set={(power) => update((now) => ({ length: Math.round(2 ** power), clock: Math.min(now.clock, Math.round(2 ** power) - 1) }))}
        reset={() => update({ length: 64 })}
      >
        How far the clock is drawn.
      </Slider>
    </div>
  );
}
