/** The controls of position, each with its unit, a mark where the model was trained, and a way back. */

import type { ComponentChildren } from "preact";
import type { ControlName } from "../engine/api";
import { nameScale, tellHands, tellScale, trainedBase } from "./clockwork";
import { measureLengths, tellLengths } from "./loudness";
import { isRecorded, type Live, type Placed } from "./live";
import { canControl, LEAST_BASE, MOST_BASE, MOST_LOUDNESS, MOST_OFFSET, type State } from "./state";
import type { Update } from "./store";
import { formatNumber, NOT_RETRAINED } from "./words";

interface Props {
  state: State;
  live: Placed;
  update: Update;
}

/** All controls that the model has a use for. */
export function Sliders(props: Props) {
  const { state, live, update } = props;
  const trained = trainedBase(live);
  const can = (name: ControlName) => canControl(live.model, "encoder", name);
  return (
    <section class="card sliders" aria-labelledby="sliders-title">
      <h2 id="sliders-title">Change its positions</h2>
      <p class="hint">{NOT_RETRAINED}</p>
      {isLive(live) ? <Lengths live={live} /> : null}
      <LoudnessSlider {...props} can={can("loudness")} />
      {isLive(live) ? <Toggle label={`Words times ${nameScale(live.model)}`} on={state.scaleTokens} usual can={can("scaleTokens")} set={(scaleTokens) => update({ scaleTokens })}>
        {tellScale(live.model)}
      </Toggle> : null}
      <Slider
        label="Base"
        unit=""
        can={can("base")}
        value={Math.log10(state.base ?? trained)}
        least={Math.log10(LEAST_BASE)}
        most={Math.log10(MOST_BASE)}
        step={0.005}
        usual={Math.log10(trained)}
        shown={formatNumber(state.base ?? trained)}
        set={(power) => update({ base: Math.abs(power - Math.log10(trained)) < 0.01 ? null : roundTo(10 ** power) })}
        reset={() => update({ base: null })}
      >
        {tellHands(live)}
      </Slider>
      <Slider
        label="Counted from"
        unit=""
        can={can("offset")}
        value={state.offset}
        least={0}
        most={MOST_OFFSET}
        step={1}
        usual={0}
        shown={`position ${formatNumber(state.offset)}`}
        set={(offset) => update({ offset })}
        reset={() => update({ offset: 0 })}
      >
        Added to every position: the sentence starts later.
      </Slider>
      <fieldset hidden={!BREAKS.some(can)}>
        <legend>Break the clock</legend>
        <Toggle label="Sine alone" on={state.sineOnly} can={can("sineOnly")} set={(sineOnly) => update({ sineOnly })}>
          Only the left–right part of each hand is kept.
        </Toggle>
        <Toggle
          label="Shuffled rows"
          on={state.shuffledRows !== null}
          can={can("shuffledRows")}
          set={(on) => update({ shuffledRows: on ? 1 : null })}
        >
          {state.shuffledRows === null ? (
            "The first 64 positions trade places at random."
          ) : (
            <button type="button" class="plain" onClick={() => update({ shuffledRows: state.shuffledRows! + 1 })}>
              Shuffle again
            </button>
          )}
        </Toggle>
        <StoppedHand {...props} can={can("stoppedHand")} />
      </fieldset>
      {live.model.config.decoderLayers === 0 ? null : <fieldset class="sides">
        <legend>These act on</legend>
        {[false, true].map((both) => (
          <label key={String(both)}>
            <input type="radio" name="sides" checked={state.bothSides === both} onChange={() => update({ bothSides: both })} />
            {both ? "what it reads and what it writes" : "the sentence that it reads"}
          </label>
        ))}
      </fieldset>}
    </section>
  );
}

function isLive(live: Placed): live is Live {
  return !isRecorded(live.model);
}

/** Three figures after the point at most, so that an address stays short. */
function roundTo(value: number): number {
  return Number(value.toPrecision(4));
}

const BREAKS: readonly ControlName[] = ["sineOnly", "shuffledRows", "stoppedHand"];

const WITHOUT = "This model was trained without positions: nothing is added to its words.";

/** Why no lengths are shown: without a sentence there is none, whatever the scheme. */
function tellUnadded({ model, places, problem }: Live): string {
  const { name, combine } = model.scheme;
  if (name === "none") return WITHOUT;
  if (places.every((token) => token.special)) return "Type a sentence to see how long the vectors of its words and positions are.";
  if (problem) return "";
  if (combine === "concatenate") return "In this model a position is not added to its word: it has channels of its own beside it.";
  if (combine === "project") return "In this model word and position stand side by side and are then mixed by a matrix: there is no sum to show.";
  return "Nothing is added to the words of this model: position enters its attention alone.";
}

/** How long the vectors of words and positions are, as bars: what √d is for. */
function Lengths({ live }: { live: Live }) {
  const sizes = measureLengths(live);
  if (!sizes) {
    const told = tellUnadded(live);
    return told ? <p class="note">{told}</p> : null;
  }
  const most = Math.max(sizes.word, sizes.position, 1e-9);
  return (
    <div class="loudness">
      <p>
        What the model reads is <b>word + position</b>. How long the vector of each is, on average:
      </p>
      <Bar name="word" value={sizes.word} most={most} />
      <Bar name="position" value={sizes.position} most={most} accent />
      <p class="soft">{tellLengths(live)}</p>
    </div>
  );
}

function Bar({ name, value, most, accent }: { name: string; value: number; most: number; accent?: boolean }) {
  return (
    <div class="bar">
      <span>{name}</span>
      <span class="track">
        <span class={accent ? "fill accent" : "fill"} style={{ width: `${(100 * value) / most}%` }} />
      </span>
      <b>{formatNumber(value, 2)}</b>
    </div>
  );
}

function LoudnessSlider({ state, update, can }: Props & { can: boolean }) {
  // Half of the slider is below 1, half above: quiet and loud are equally far.
  const toSlider = (loudness: number) => (loudness <= 0 ? -5 : Math.max(-5, Math.log2(loudness)));
  const toLoudness = (place: number) => (place <= -5 ? 0 : Number((2 ** place).toPrecision(3)));
  return (
    <Slider
      label="Loudness of position"
      unit="×"
      can={can}
      value={toSlider(state.loudness)}
      least={-5}
      most={Math.log2(MOST_LOUDNESS)}
      step={0.25}
      usual={0}
      shown={formatNumber(state.loudness)}
      set={(place) => update({ loudness: toLoudness(place) })}
      reset={() => update({ loudness: 1 })}
    >
      At 0 it gets no positions: only a causal mask, where there is one, still tells the order.
    </Slider>
  );
}

function StoppedHand({ state, live, update, can }: Props & { can: boolean }) {
  const hands = live.model.scheme.frequencies.length;
  if (!can || hands === 0) return null;
  return (
    <div class="control">
      <label>
        <span>Stop one hand</span>
        <select
          value={state.stoppedHand === null ? "" : String(state.stoppedHand)}
          onChange={(event) => update({ stoppedHand: event.currentTarget.value === "" ? null : Number(event.currentTarget.value) })}
        >
          <option value="">all turn</option>
          {Array.from({ length: hands }, (_, hand) => (
            <option key={hand} value={String(hand)}>
              hand {hand + 1} of {hands}
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}

interface SliderProps {
  label: string;
  unit: string;
  value: number;
  least: number;
  most: number;
  step: number;
  /** Where the model was trained. */
  usual: number;
  shown: string;
  can?: boolean;
  set: (value: number) => void;
  reset: () => void;
  children?: ComponentChildren;
}

/** One slider, where the model has a use for it; a mark stands where the model was trained. */
export function Slider(props: SliderProps) {
  const { label, unit, value, least, most, step, usual, shown, can = true, set, reset, children } = props;
  const place = (100 * (usual - least)) / (most - least);
  const away = Math.abs(value - usual) > step / 2;
  if (!can) return null;
  return (
    <div class="control">
      <label>
        <span>
          {label} <output>{`${shown}${unit}`}</output>
        </span>
        <span class="rail">
          <input
            type="range"
            min={least}
            max={most}
            step={step}
            value={value}
            aria-valuetext={`${shown}${unit}`}
            onInput={(event) => set(Number(event.currentTarget.value))}
          />
          <span class="usual" style={{ left: `calc(${place}% + ${(0.5 - place / 100) * 16}px)` }} title="as trained" />
        </span>
      </label>
      <button type="button" class="plain back" disabled={!away} aria-label={`${label}: as trained`} title="as trained" onClick={reset}>
        ↺
      </button>
      {children ? <p>{children}</p> : null}
    </div>
  );
}

function Toggle(props: { label: string; on: boolean; usual?: boolean; can: boolean; set: (on: boolean) => void; children?: ComponentChildren }) {
  const { label, on, usual = false, can, set, children } = props;
  if (!can) return null;
  return (
    <div class="control toggle">
      <label>
        <input type="checkbox" role="switch" checked={on} onChange={(event) => set(event.currentTarget.checked)} />
        <span>{label}</span>
        {on !== usual ? <small class="away">changed</small> : null}
      </label>
      <p>{children}</p>
    </div>
  );
}
