/** The scenes: questions to choose from, and the strip that plays one of them. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { EngineWorker, LiveModel } from "../engine/api";
import { makeClock, tellPosition } from "./clockwork";
import { findMeasured, isWhole, useCount, type Counted } from "./count";
import { compareWeights, pickAttention, tellTerms } from "./grid";
import type { Conclude } from "./conclusions";
import { bringToLife, isControlled, traceAfter, traceBefore, type Live } from "./live";
import { readAnswer } from "./answers";
import { canPlay, FIRST, playStep, SCENES, type Place, type Scene, type Step } from "./scenes";
import { Said } from "./said";
import { Count } from "./sentence";
import { isOwn, OTHERS_ONLY, UNTOUCHED, type State } from "./state";
import type { Update } from "./store";
import { formatNumber, nameNumber, SAME_WEIGHTS, shorten } from "./words";

interface Props {
  models: readonly LiveModel[];
  state: State;
  live: Live;
  update: Update;
  /** Begin a scene, and go back to what was before it. */
  enter: (scene: Scene) => void;
  leave: () => void;
}

/** The scenes that the models of this page can play, and how many they cannot. */
function listPlayable(models: readonly LiveModel[]): { scenes: Scene[]; missing: number } {
  const scenes = SCENES.filter((scene) => canPlay(models, scene));
  return { scenes, missing: SCENES.length - scenes.length };
}

/** The questions: three to begin with, and the others folded away. */
export function Questions({ models, state, enter, said }: Pick<Props, "models" | "state" | "enter"> & { said: string }) {
  const { scenes, missing } = useMemo(() => listPlayable(models), [models]);
  const firsts = scenes.filter((scene) => SCENES.indexOf(scene) < FIRST);
  const others = scenes.filter((scene) => SCENES.indexOf(scene) >= FIRST);
  const [open, setOpen] = useState(firsts.length === 0 || others.some((scene) => scene.study === state.scene));
  useEffect(() => {
    if (others.some((scene) => scene.study === state.scene)) setOpen(true);
  }, [state.scene]);
  const list = (chosen: readonly Scene[], start: number) => (
    <ol style={{ counterReset: `question ${start}` }}>
      {chosen.map((scene) => (
        <li key={scene.study}>
          <button type="button" id={`ask-${scene.study}`} aria-current={state.scene === scene.study ? "true" : undefined} onClick={() => enter(scene)}>
            {scene.title}
          </button>
        </li>
      ))}
    </ol>
  );
  if (scenes.length === 0) return null;
  const left = missing > 0 ? `${nameNumber(missing, true)} more would need models that this page does not hold; their answers are further down.` : "";
  return (
    <section class="questions" aria-labelledby="questions-title">
      <h2 id="questions-title">
        {firsts.length === FIRST ? "Three minutes, three questions: begin here" : "Questions, a few steps each"}
        <Said text={said} />
      </h2>
      {firsts.length > 0 ? list(firsts, 0) : null}
      {others.length > 0 ? (
        <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>{firsts.length > 0 ? `${nameNumber(others.length, true)} more ${others.length === 1 ? "question" : "questions"}` : "The questions"}</summary>
          {list(others, firsts.length)}
        </details>
      ) : null}
      {left ? <p class="hint">{left}</p> : null}
    </section>
  );
}

/** The question after one: the first three end with the third, and the others go on to the last. */
function findFollowing(models: readonly LiveModel[], scene: Scene): Scene | undefined {
  const { scenes } = listPlayable(models);
  const following = scenes[scenes.indexOf(scene) + 1];
  const isFirst = (candidate: Scene) => SCENES.indexOf(candidate) < FIRST;
  return following && isFirst(following) === isFirst(scene) ? following : undefined;
}

/** Whether a reader has changed what the model reads since a step was played. */
function isChanged(state: State, played: State): boolean {
  const keys = [...Object.keys(UNTOUCHED), "model", "text"] as (keyof State)[];
  return keys.some((key) => key !== "follow" && JSON.stringify(state[key]) !== JSON.stringify(played[key]));
}

/** The part of the page that a step is about; in a narrow window the dials, which stand below the words about them. */
function findPlace(place: Place): Element | null {
  const narrow = matchMedia("(max-width: 40rem)").matches;
  return document.querySelector(narrow && place === "hands" ? ".dials" : `.card.${place}`);
}

/** The strip at the foot of the window: a step, what the model makes of it, and on. */
export function Strip(props: Props & { count: Counted; worker: EngineWorker }) {
  const { models, state, live, update, count, worker, enter, leave } = props;
  const scene = SCENES.find((candidate) => candidate.study === state.scene);
  const place = scene?.steps[state.step]?.look;
  const changed = useMemo(() => scene !== undefined && place !== undefined && isChanged(state, playStep(models, scene, state.step)), [scene, state]);
  useEffect(() => {
    if (!place || state.embedded) return;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    findPlace(place)?.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "start" });
  }, [scene, state.step]);
  const play = (step: number) => scene && update({ ...playStep(models, scene, step), embedded: state.embedded });
  const go = (by: number) => {
    if (!scene) return;
    const next = state.step + by;
    if (next < 0) return;
    if (next > scene.steps.length) return state.embedded ? play(0) : leave();
    if (next === scene.steps.length) return update({ step: next });
    play(next);
  };
  useEffect(() => {
    if (!scene) return;
    const hear = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.key === "Escape") return state.embedded ? undefined : leave();
      if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
      if (event.defaultPrevented || event.altKey || event.metaKey || event.ctrlKey) return;
      if (target.closest("input, select, textarea, [role=slider], [role=radio], canvas, .chips")) return;
      event.preventDefault();
      go(event.key === "ArrowRight" ? 1 : -1);
    };
    document.addEventListener("keydown", hear);
    return () => document.removeEventListener("keydown", hear);
  });
  if (!scene) return null;
  const step = scene.steps[state.step];
  const following = step ? undefined : findFollowing(models, scene);
  return (
    <aside class="strip" aria-label="Scene">
      <div class="strip-text" aria-live="polite" tabIndex={0}>
        <p class="where">
          {scene.title}{" "}
          <span>
            {state.step + 1} of {scene.steps.length + 1}
          </span>
          <progress max={scene.steps.length + 1} value={state.step + 1} aria-hidden="true" />
        </p>
        {step ? (
          <>
            <p>
              {changed ? "You changed something else than this step does, and so:" : step.say} <span class="told">{tellStep(state, live, step)}</span>
              {step.count ? (
                <span class="told">
                  {" "}
                  <Count count={count} kind={live.model.config.kind} />.{tellMisleading(live, count)}
                  {isOwn(state) ? ` ${OTHERS_ONLY}` : ""}
                </span>
              ) : null}
            </p>
            {isControlled(live) ? <p class="soft">{SAME_WEIGHTS}</p> : null}
          </>
        ) : (
          <Ended key={scene.study} scene={scene} models={models} worker={worker} />
        )}
      </div>
      <div class="strip-keys">
        <button type="button" onClick={() => go(-1)} disabled={state.step === 0} aria-label="Back">
          ←
        </button>
        <button type="button" id="scene-next" class="next" onClick={() => go(1)}>
          {step ? "Next →" : state.embedded ? "Again" : "Done"}
        </button>
        {changed ? (
          <button type="button" class="plain" onClick={() => play(state.step)}>
            Back to the step
          </button>
        ) : null}
        {following && !state.embedded ? (
          <button type="button" onClick={() => enter(following)}>
            Next question →
          </button>
        ) : null}
        {step && !state.embedded ? (
          <button type="button" class="plain" onClick={leave}>
            Leave
          </button>
        ) : null}
      </div>
    </aside>
  );
}

/** Where the sentence comes out as before while most others go wrong, it is not to be taken for all. */
export function tellMisleading(live: Pick<Live, "before" | "after">, { progress }: Counted): string {
  if (live.before === live.after || live.before?.text !== live.after?.text) return "";
  return isWhole(progress) && progress.of > 0 && 2 * progress.right < progress.of ? " This one sentence misleads: most others go wrong." : "";
}

/** What the live model makes of the step. */
function tellStep(state: State, live: Live, { look, tell }: Step): string {
  if (!live.before || !live.after) return live.problem;
  const text = shorten(live.after.text || "(nothing)");
  if (tell) return look === "hands" ? tell(live) : `${tell(live)} It writes “${text}”.`;
  if (look === "hands") return tellPosition(makeClock(state, live), Math.min(state.clock, state.length - 1));
  if (look === "attention") return tellAttention(state, live);
  if (live.before.text === live.after.text) return `It ${live.before === live.after ? "" : "still "}writes “${text}”.`;
  return `It writes “${text}”; untouched it wrote “${shorten(live.before.text || "(nothing)")}”.`;
}

function tellAttention(state: State, live: Live): string {
  const after = pickAttention(traceAfter(live), state.stack, state.layer);
  if (state.view !== "difference") return tellTerms(after, state.head) ?? "";
  const change = compareWeights(pickAttention(traceBefore(live), state.stack, state.layer), after);
  return `Its weights change by ${formatNumber(change, 2)} on average.`;
}

interface EndedProps {
  scene: Scene;
  models: readonly LiveModel[];
  worker: EngineWorker;
}

/** The end of a scene: what the models of this page made of it, and the answer in one plain sentence, with its link. */
function Ended(props: EndedProps) {
  const { scene } = props;
  const answer = useMemo(() => readAnswer(scene.question ?? scene.study), [scene]);
  return (
    <div class="ended">
      {scene.conclude ? <Concluded {...props} conclude={scene.conclude} /> : null}
      {answer ? (
        <p class={scene.conclude ? "number" : "plainly"}>
          {answer.short}{" "}
          {answer.address ? (
            <a href={answer.address} target="_top">
              The answer, with its evidence
            </a>
          ) : null}
        </p>
      ) : null}
      {scene.explain ? <p class="number soft">{scene.explain}</p> : null}
    </div>
  );
}

/** What the models of this page make of a question, over all of its steps. */
function Concluded({ scene, models, worker, conclude }: EndedProps & { conclude: Conclude }) {
  const lives = useMemo(
    () =>
      scene.steps.map((_, step) => {
        const played = playStep(models, scene, step);
        return bringToLife(played, models.find((model) => model.id === played.model)!);
      }),
    [scene, models],
  );
  // A scene has as many steps as long as it is shown, and so there are always as many hooks.
  const counts = lives.map((live) => useCount(worker, live.model, live.controls, 1));
  // Where no worker counts, the same count stands there from when the page was made, where it was made.
  const outcomes = lives.map((live, step) => ({ live, count: isWhole(counts[step]!.progress) ? counts[step]!.progress : findMeasured(live.model, live.controls) }));
  const { answer, columns, rows } = conclude(outcomes);
  const problem = outcomes.every(({ count }) => count) ? "" : counts.find((count) => count.problem)?.problem;
  return (
    <div class="concluded">
      <p class="plainly">
        {answer} {lives.some(isControlled) ? <span class="soft">{SAME_WEIGHTS}</span> : null}
      </p>
      <table>
        <thead>
          <tr>{columns.map((column) => (column === "" ? <td key={column} /> : <th key={column} scope="col">{column}</th>))}</tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row[0]}>{row.map((cell, index) => (index === 0 ? <th key={index} scope="row">{cell}</th> : <td key={index}>{cell}</td>))}</tr>
          ))}
        </tbody>
      </table>
      {problem ? <p class="problem">The held-out sentences are not counted: {problem}</p> : null}
    </div>
  );
}
