/** The sentence: its tokens as chips with their positions, and both translations side by side. */

import { useRef, useState } from "preact/hooks";
import type { Translation } from "../engine/api";
import { markChanges } from "./changes";
import type { Counted } from "./count";
import { chooseFace, Face } from "./face";
import { isControlled, type Live } from "./live";
import { moveItem, swapEnds } from "./order";
import { canControl, isTouched, MOST_BEAM, placePositions, type State } from "./state";
import type { Update } from "./store";
import { UndoAll } from "./undo";
import { formatPosition, formatShare, nameSpecial, nameWritten, NOT_RETRAINED, showToken } from "./words";

interface Props {
  state: State;
  live: Live;
  update: Update;
  say: (text: string) => void;
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
      <span>{given.length > 0 ? "Given with this page:" : "Never seen in training:"}</span>
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
function Chips({ state, live, update, say }: Props) {
  const list = useRef<HTMLOListElement>(null);
  const [taken, setTaken] = useState<number | null>(null);
  const [dragged, setDragged] = useState<{ place: number; over: number; kind: "word" | "position" } | null>(null);
  const positioned = canControl(live.model, "encoder", "positions");
  const face = chooseFace(live.model.scheme, live.model.frequencies(live.controls));

  const move = (from: number, to: number) => {
    const last = live.places.length - 1;
    if (to < 0 || to > last || live.places[to]!.special || live.places[from]!.special) return;
    update({ order: moveItem(live.order, from, to) });
    say(`${showToken(live.places[from]!.text)} is now at place ${to + 1}.`);
    requestAnimationFrame(() => requestAnimationFrame(() => chip(to, ".word")?.focus()));
  };
  const give = (from: number, to: number) => {
    if (from === to) return;
    const positions = [...live.positions];
    positions[to] = live.positions[from]!;
    update({ positions, frozenAt: null, reversed: false });
    say(`${showToken(live.places[to]!.text)} stands at position ${formatPosition(positions[to]!)} too.`);
  };
  const shift = (place: number, by: number) => {
    update((now) => {
      const positions = placePositions(now, live.places.length);
      positions[place] = Math.round(100 * Math.max(0, positions[place]! + by)) / 100;
      say(`${showToken(live.places[place]!.text)} stands at position ${formatPosition(positions[place]!)}.`);
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
    if (event.key === "Escape") setTaken(null);
    if (by === undefined) return;
    event.preventDefault();
    shift(place, event.shiftKey ? by / 10 : by);
  };
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
                    : `${showToken(token.text)}${live.unknown[place] ? "?, a word that the model does not know" : ""}, place ${place + 1}. Arrow keys move it.`
                }
                onPointerDown={startDrag(place, "word")}
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
                      ? `Position ${formatPosition(live.positions[place]!)} of ${showToken(token.text)}. Press to take it; arrow keys change it.`
                      : `Give position ${formatPosition(live.positions[taken]!)} to ${showToken(token.text)}`
                  }
                  onPointerDown={startDrag(place, "position")}
                  onKeyDown={positionKeys(place)}
                  onClick={() => press(place)}
                >
                  {face.length > 0 ? <Face hands={face} position={live.positions[place]! + state.offset} /> : null}
                  {formatPosition(live.positions[place]! + state.offset)}
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
          ? `Position ${formatPosition(live.positions[taken]!)} is taken: press the number under another word to give it, Escape to leave it.`
          : positioned
            ? "Drag a word to move it. Drag a position, or press it and then another, to give it away. Arrow keys do both."
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
  return (
    <div class="compare">
      {typed || placed ? (
        <p class="outside" role="note">
          <b>{typed ? "This sentence" : "In this order the sentence"} is outside of what the model was trained on.</b> {typed || placed} What it writes need not mean
          anything.
        </p>
      ) : null}
      <Written outside={typed !== ""} name="As trained, as typed" kind={kind} translation={live.before} count={before} changes={markChanges(to!, from!)} elsewhere="with your changes" />
      <Written outside={placed !== ""} name={isTouched(state) ? "With your changes" : "With your changes (none yet)"} kind={kind} translation={live.after} count={after} changes={markChanges(from!, to!)} elsewhere="as trained" loud />
      <p class="verdict" role="status">
        {tellChange(live.before, live.after, typed || placed ? "" : kind)}
      </p>
      {isControlled(live) && state.scene === "" ? <p class="hint">{NOT_RETRAINED}</p> : null}
      {state.positions.length > 0 || state.order.length > 0 ? (
        <p class="hint">The count is over other sentences: order and positions that you gave to the words of this one are not part of it.</p>
      ) : null}
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
  if (before.text !== after.text) return `The ${name} changes. A token of it has a probability of ${to} on average (untouched: ${from})${counted}.`;
  return from === to
    ? `The same ${name}, and as probable: ${to} for each token on average${counted}.`
    : `The same ${name}, but a token of it has a probability of ${to} on average (untouched: ${from})${counted}.`;
}

function Written(props: { name: string; kind: string; translation: Translation; count: Counted; changes: boolean[]; elsewhere: string; loud?: boolean; outside: boolean }) {
  const { name, translation, count, changes, elsewhere, loud, outside } = props;
  return (
    <div class={`written${loud ? " loud" : ""}${outside ? " outside" : ""}`}>
      <h3>
        {name}
        {outside ? `: no ${nameWritten(props.kind)}` : ""}
      </h3>
      <p class="text">{translation.text || "(nothing)"}</p>
      <ol class="tokens" aria-label="Tokens that the model wrote, with their probabilities">
        {translation.perToken.map((token, place) => (
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
      <p class="count">
        <Count count={count} kind={props.kind} />
      </p>
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
