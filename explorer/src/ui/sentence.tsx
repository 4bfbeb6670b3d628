/** The sentence: its tokens as chips with their positions, and both translations side by side. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Translation } from "../engine/api";
import { markBoth } from "./changes";
import type { Counted } from "./count";
import { chooseFace, Face } from "./face";
import type { Live } from "./live";
import { moveItem, swapEnds } from "./order";
import { canControl, isOwn, isTouched, MOST_BEAM, OTHERS_ONLY, placePositions, type State } from "./state";
import type { Update } from "./store";
import { UndoAll } from "./undo";
import { cutWords, formatPosition, formatShare, nameSpecial, nameWritten, showToken } from "./words";

interface Props {
  state: State;
  live: Live;
  update: Update;
  say: (text: string) => void;
  /** What was said last about the sentence, while it is new. */
  said: string;
}

/** Everything about the sentence. */
export function Sentence(props: Props & { before: Counted; after: Counted }) {
  const { state, live, update } = props;
  return (
    <section class="card sentence" aria-labelledby="sentence-title">
      <div class="own">
        <h2 id="sentence-title">The sentence</h2>
        <span id="own-title">Type your own, in words that the model knows:</span>
      </div>
      <p class="field">
        <input
          type="text"
          aria-labelledby="own-title"
          value={live.text}
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => update({ text: event.currentTarget.value, order: [], positions: [], follow: null })}
        />
      </p>
      <Examples {...props} />
      <Chips {...props} />
      <Actions {...props} />
      <Comparison live={live} state={state} before={props.before} after={props.after} />
      <Search state={state} update={update} />
    </section>
  );
}

function Examples({ live, update }: Props) {
  const given = live.model.texts;
  const examples = given.length > 0 ? given : live.model.heldOut.slice(0, 3).map((pair) => pair.source);
  return (
    <p class="examples">
      <span>{given.length > 0 ? "Given with this page:" : "Try one that training never had:"}</span>
      {examples.map((text) => (
        <button key={text} type="button" class="plain" onClick={() => update({ text, order: [], positions: [], follow: null })}>
          {text}
        </button>
      ))}
    </p>
  );
}

function Actions({ state, live, update, say }: Props) {
  const swap = swapEnds(live.places.map((token) => token.text), live.places.map((token) => token.special));
  const positioned = canControl(live.model, "encoder", "positions");
  const current = (order: number[]) => order.map((place) => live.order[place]!);
  return (
    <div class="actions">
      {swap ? (
        <button type="button" onClick={() => update({ order: current(swap.order) })}>
          Swap “{swap.first}” and “{swap.last}”
        </button>
      ) : null}
      {swap && positioned ? (
        <button
          type="button"
          onClick={() => update({ positions: takePositions(swap.order, live.positions), frozenAt: null, reversed: false })}
        >
          Swap their positions alone
        </button>
      ) : null}
      {positioned ? (
        <button
          type="button"
          aria-pressed={state.frozenAt !== null}
          onClick={() => update({ frozenAt: state.frozenAt === null ? 0 : null })}
        >
          All at position 0
        </button>
      ) : null}
      {canControl(live.model, "encoder", "reversed") ? (
        <button type="button" aria-pressed={state.reversed} onClick={() => update({ reversed: !state.reversed })}>
          Count backwards
        </button>
      ) : null}
      <UndoAll state={state} update={update} say={say} />
    </div>
  );
}

/** Greedy or beam search, for both translations and for the count. */
function Search({ state, update }: Pick<Props, "state" | "update">) {
  const widths = Array.from({ length: MOST_BEAM - 1 }, (_, index) => index + 2);
  return (
    <label class="search">
      <span>It writes by</span>
      <select value={String(state.beam)} onChange={(event) => update({ beam: Number(event.currentTarget.value) })}>
        <option value="1">greedy search</option>
        {widths.map((width) => (
          <option key={width} value={String(width)}>
            beam search, {width} hypotheses
          </option>
        ))}
      </select>
    </label>
  );
}

/** Give each token the position that it would have, had the words changed places: the words stay. */
function takePositions(order: readonly number[], positions: readonly number[]): number[] {
  const given = [...positions];
  order.forEach((from, to) => (given[from] = positions[to]!));
  return given;
}

/** The tokens: drag a chip to move the word, drag or press the number below it to give its position away. */
function Chips({ state, live, update, say, said }: Props) {
  const list = useRef<HTMLOListElement>(null);
  const [picked, setTaken] = useState<number | null>(null);
  // A sentence that was made shorter meanwhile may have lost the token.
  const taken = picked !== null && picked < live.places.length ? picked : null;
  const [dragged, setDragged] = useState<{ place: number; over: number; kind: "word" | "position" } | null>(null);
  const positioned = canControl(live.model, "encoder", "positions");
  // As below the words: what the model counts from is added.
  const tell = (position: number) => formatPosition(position + state.offset);
  const face = chooseFace(live.model.scheme, live.model.frequencies(live.controls));

  const move = (from: number, to: number) => {
    const last = live.places.length - 1;
    if (to < 0 || to > last || live.places[to]!.special || live.places[from]!.special) return;
    update({ order: moveItem(live.order, from, to) });
    const word = `“${showToken(live.places[from]!.text)}”`;
    say(positioned ? `${word} now stands at position ${tell(live.positions[to]!)}.` : `${word} was moved.`);
    requestAnimationFrame(() => requestAnimationFrame(() => chip(to, ".word")?.focus()));
  };
  const give = (from: number, to: number) => {
    if (from === to) return;
    const positions = [...live.positions];
    positions[to] = live.positions[from]!;
    update({ positions, frozenAt: null, reversed: false });
    say(`${showToken(live.places[to]!.text)} stands at position ${tell(positions[to]!)} too.`);
  };
  const shift = (place: number, by: number) => {
    update((now) => {
      const positions = placePositions(now, live.places.length);
      positions[place] = Math.round(100 * Math.max(0, positions[place]! + by)) / 100;
      say(`${showToken(live.places[place]!.text)} stands at position ${tell(positions[place]!)}.`);
      return { positions, frozenAt: null, reversed: false };
    });
  };
  const chip = (place: number, kind: string) => list.current?.children[place]?.querySelector<HTMLElement>(kind);
  const findPlace = (x: number, y: number) => {
    const item = document.elementsFromPoint(x, y).find((element) => element.closest(".chips > li"))?.closest("li");
    return item && list.current?.contains(item) ? [...list.current.children].indexOf(item) : -1;
  };

  const startDrag = (place: number, kind: "word" | "position") => (event: PointerEvent) => {
    if (event.button !== 0) return;
    const [startX, startY] = [event.clientX, event.clientY];
    const target = event.currentTarget as HTMLElement;
    let over = place;
    let moved = false;
    target.setPointerCapture(event.pointerId);
    const go = (next: PointerEvent) => {
      moved ||= Math.hypot(next.clientX - startX, next.clientY - startY) > 6;
      if (!moved) return;
      const found = findPlace(next.clientX, next.clientY);
      if (found >= 0) over = found;
      setDragged({ place, over, kind });
    };
    const end = (next: PointerEvent) => {
      target.removeEventListener("pointermove", go);
      target.removeEventListener("pointerup", end);
      target.removeEventListener("pointercancel", end);
      setDragged(null);
      if (!moved || next.type === "pointercancel") return;
      // A drag ends in a click too, which would take the position up again.
      target.addEventListener("click", (click) => click.stopImmediatePropagation(), { once: true, capture: true });
      if (kind === "word") move(place, over);
      else give(place, over);
    };
    target.addEventListener("pointermove", go);
    target.addEventListener("pointerup", end);
    target.addEventListener("pointercancel", end);
  };
  const wordKeys = (place: number) => (event: KeyboardEvent) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    move(place, place + by);
  };
  const positionKeys = (place: number) => (event: KeyboardEvent) => {
    const by = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    shift(place, event.shiftKey ? by / 10 : by);
  };
  useLayoutEffect(() => setTaken(null), [state.text, state.model, state.order, state.positions]);
  useLayoutEffect(() => {
    if (taken === null) return;
    // Before the strip hears it, which would leave the question.
    const hear = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      setTaken(null);
    };
    document.addEventListener("keydown", hear, { capture: true });
    return () => document.removeEventListener("keydown", hear, { capture: true });
  }, [taken]);
  const press = (place: number) => {
    if (taken === null) return setTaken(place);
    give(taken, place);
    setTaken(null);
  };

  return (
    <>
      <ol class="chips" ref={list} aria-label="Tokens, in the order in which they stand">
        {live.places.map((token, place) => {
          const moved = live.order[place] !== place;
          const replaced = live.positions[place] !== place;
          const aim = dragged && dragged.over === place && dragged.place !== place;
          return (
            <li key={live.order[place]} class={[aim ? "aim" : "", dragged?.place === place ? "held" : "", token.special ? "special" : ""].join(" ")}>
              <button
                type="button"
                class={`word${moved ? " moved" : ""}${live.unknown[place] ? " unknown" : ""}`}
                disabled={token.special}
                aria-label={
                  token.special
                    ? `${nameSpecial(place)} of the text`
                    : `${showToken(token.text)}${live.unknown[place] ? "?, a word that the model does not know" : ""}, word ${place + 1} of the sentence. Arrow keys move it.`
                }
                onPointerDown={startDrag(place, "word")}
                onClick={() => (taken === null ? undefined : press(place))}
                onKeyDown={wordKeys(place)}
              >
                {token.special ? nameSpecial(place) : showToken(token.text)}
                {live.unknown[place] ? <sup>?</sup> : null}
              </button>
              {positioned ? (
                <button
                  type="button"
                  class={`position${replaced ? " moved" : ""}`}
                  aria-pressed={taken === place}
                  aria-label={
                    taken === null
                      ? `Position ${tell(live.positions[place]!)} of ${showToken(token.text)}. Press to take it; arrow keys change it.`
                      : `Give position ${tell(live.positions[taken]!)} to ${showToken(token.text)}`
                  }
                  onPointerDown={startDrag(place, "position")}
                  onKeyDown={positionKeys(place)}
                  onClick={() => press(place)}
                >
                  {face.length > 0 ? <Face hands={face} position={live.positions[place]! + state.offset} /> : null}
                  {tell(live.positions[place]!)}
                </button>
              ) : (
                <span class="position none" title="This model has no positions">
                  –
                </span>
              )}
            </li>
          );
        })}
      </ol>
      <p class="hint">
        {taken !== null
          ? `Position ${tell(live.positions[taken]!)} picked up: click another word to give it this position; Esc cancels.`
          : said
            ? said
            : positioned
            ? "Click a number, then another word's number: that word gets it too. Or drag; arrow keys work too."
            : "This model was trained without positions: there are none to take. Drag the words, and see what that changes."}
      </p>
    </>
  );
}

function Comparison({ live, state, before, after }: { live: Live; state: State; before: Counted; after: Counted }) {
  if (live.problem || !live.before || !live.after) return <p class="problem">{live.problem}</p>;
  const { kind } = live.model.config;
  const { typed, placed } = live.outside;
  const [from, to] = [live.before, live.after].map((one) => one.perToken.map((token) => showToken(token.text)));
  const changes = markBoth(from!, to!);
  const pressed = state.frozenAt !== null || state.reversed;
  return (
    <div class="compare">
      {typed || placed ? (
        <p class="outside" role="note">
          <b>{typed ? "This sentence" : "In this order the sentence"} is outside of what the model was trained on.</b> {typed || placed} What it writes need not mean
          anything.
        </p>
      ) : null}
      <Written outside={typed !== ""} name="As trained, as typed" kind={kind} translation={live.before} count={before} counted="As it was trained:" changes={changes.before} elsewhere="with your changes" />
      <Written outside={placed !== ""} name={isTouched(state) ? "With your changes" : "With your changes (none yet)"} kind={kind} translation={live.after} count={after} counted={`With the sliders${pressed ? " and pressed buttons" : ""} as they are:`} note={isOwn(state) ? OTHERS_ONLY : ""} changes={changes.after} elsewhere="as trained" loud />
      {isUncounted(before) ? (
        <p class="verdict">
          <Count count={before} kind={kind} />
        </p>
      ) : null}
      <p class="verdict" role="status">
        {tellChange(live.before, live.after, typed || placed ? "" : kind)}
      </p>
    </div>
  );
}

/** Say what became of a translation or continuation; true of any two. Without a kind they are texts and no more. */
export function tellChange(before: Translation, after: Translation, kind = "encoder-decoder"): string {
  const name = nameWritten(kind);
  const from = formatShare(before.confidence);
  const to = formatShare(after.confidence);
  const ends = [before, after].filter(({ ended }) => ended).length;
  const counted = ["", ", an end token included where it wrote one", ", the end token included"][ends]!;
  if (before.text !== after.text) return `The ${name} changes. Average confidence per token: ${to} (before: ${from})${counted}.`;
  return from === to
    ? `The same ${name}. Average confidence per token: ${to}, as before${counted}.`
    : `The same ${name}. Average confidence per token: ${to} (before: ${from})${counted}.`;
}

/** So many tokens are shown at first: a model that repeats itself fills no page. */
const MOST_TOKENS = 16;

function Written(props: { name: string; kind: string; translation: Translation; count: Counted; changes: boolean[]; elsewhere: string; counted: string; note?: string; loud?: boolean; outside: boolean }) {
  const { name, translation, count, changes, elsewhere, loud, outside } = props;
  const [whole, setWhole] = useState(false);
  const left = translation.perToken.length - MOST_TOKENS;
  const tokens = whole || left <= 1 ? translation.perToken : translation.perToken.slice(0, MOST_TOKENS);
  return (
    <div class={`written${loud ? " loud" : ""}${outside ? " outside" : ""}`}>
      <h3>
        {name}
        {outside ? `: no ${nameWritten(props.kind)}` : ""}
      </h3>
      <p class="text">{cutWords(translation.text) || "(nothing)"}</p>
      <ol class="tokens" aria-label="Tokens that the model wrote, with their probabilities">
        {tokens.map((token, place) => (
          <li key={place} class={`${changes[place] ? "changed" : ""}${token.special ? " special" : ""}`}>
            {changes[place] ? (
              <span class="sign" title={`not written ${elsewhere}`}>
                ≠
              </span>
            ) : null}
            <span>{token.special ? "end" : showToken(token.text)}</span>
            <Probability value={token.probability} of={token.special ? "the end token" : showToken(token.text)} />
            <small>{formatShare(token.probability)}</small>
          </li>
        ))}
      </ol>
      {left > 1 ? (
        <button type="button" class="plain" onClick={() => setWhole(!whole)}>
          {whole ? "Show fewer tokens" : `Show ${left} more tokens`}
        </button>
      ) : null}
      {isUncounted(count) ? null : (
        <p class="count">
          <span class="soft">{props.counted}</span> <Count count={count} kind={props.kind} />
          {props.note ? <small> {props.note}</small> : null}
        </p>
      )}
    </div>
  );
}

/** A bar as long as a probability. */
function Probability({ value, of }: { value: number; of: string }) {
  return (
    <span class="track" role="meter" aria-label={`probability of ${of}`} aria-valuemin={0} aria-valuemax={1} aria-valuenow={value} aria-valuetext={formatShare(value)}>
      <span class="fill accent" style={{ width: `${100 * value}%` }} />
    </span>
  );
}

/** Whether no text is known that a model's training never saw, so that both of its counts would say the same. */
function isUncounted({ progress }: Counted): boolean {
  return progress?.of === 0;
}

/** The count over the held-out sentences, or how far it has come. */
export function Count({ count: { progress: count, problem }, kind }: { count: Counted; kind: string }) {
  if (problem) return <span class="problem">The held-out sentences are not counted: {problem}</span>;
  if (!count) return <span class="soft">counting…</span>;
  if (count.of === 0) return <span class="soft">Not counted: which texts its training never saw is not known.</span>;
  if (count.done < count.of) {
    return (
      <span>
        <progress max={count.of} value={count.done} aria-label="sentences counted" /> <span class="soft">counting {count.of} held-out {kind === "decoder" ? "texts" : "sentences"}</span>
      </span>
    );
  }
  return (
    <span>
      <b>{count.right}</b> of {count.of} {kind === "decoder" ? "held-out texts: the next token right" : "held-out sentences right"}
    </span>
  );
}
