/** The scenes: questions to choose from, and the strip that plays one of them. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { EngineWorker, LiveModel } from "../engine/api";
import { makeClock, tellPosition } from "./clockwork";
import { findMeasured, useCount, type Counted } from "./count";
import { compareWeights, pickAttention, tellTerms } from "./grid";
import type { Conclude } from "./conclusions";
import { bringToLife, isControlled, traceAfter, traceBefore, type Live } from "./live";
import { readAnswer, type StudyAnswer } from "./answers";
import { canPlay, FIRST, playStep, SCENES, type Place, type Scene, type Step } from "./scenes";
import { Count, tellChange } from "./sentence";
import type { State } from "./state";
import type { Update } from "./store";
import { formatNumber, nameNumber, NOT_RETRAINED, shorten } from "./words";

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
export function Questions({ models, state, enter }: Pick<Props, "models" | "state" | "enter">) {
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
      <h2 id="questions-title">{firsts.length === FIRST ? "Three minutes, three questions: begin here" : "Questions, a few steps each"}</h2>
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

const IDS: Record<Place, string> = { sentence: "sentence-title", sliders: "sliders-title", hands: "hands-title", attention: "attention-title" };

/** The strip at the foot of the window: a step, what the model makes of it, and on. */
export function Strip(props: Props & { count: Counted; worker: EngineWorker }) {
  const { models, state, live, update, count, worker, enter, leave } = props;
  const scene = SCENES.find((candidate) => candidate.study === state.scene);
  const place = scene?.steps[state.step]?.look;
  useEffect(() => {
    if (!place) return;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    document.getElementById(IDS[place])?.closest("section")?.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "start" });
  }, [scene, state.step]);
  const go = (by: number) => {
    if (!scene) return;
    const next = state.step + by;
    if (next < 0) return;
    if (next > scene.steps.length) return leave();
    update(next === scene.steps.length ? { step: next } : playStep(models, scene, next));
  };
  useEffect(() => {
    if (!scene) return;
    const hear = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.key === "Escape") return leave();
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
  const { scenes } = listPlayable(models);
  const following = step ? undefined : scenes[scenes.indexOf(scene) + 1];
  return (
    <aside class="strip" aria-label="Scene">
      <div class="strip-text" aria-live="polite" tabIndex={0}>
        <p class="where">
          {scene.title}{" "}
          <span>
            {state.step + 1} of {scene.steps.length + 1}
          </span>
        </p>
        {step ? (
          <>
            <p>
              {step.say} <span class="told">{tellStep(state, live, step)}</span>
              {step.count ? (
                <span class="told counted">
                  {" "}
                  <Count count={count} kind={live.model.config.kind} />.
                </span>
              ) : null}
            </p>
            {isControlled(live) ? <p class="soft">{NOT_RETRAINED}</p> : null}
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
          {step ? "Next →" : "Done"}
        </button>
        {following ? (
          <button type="button" onClick={() => enter(following)}>
            Next question →
          </button>
        ) : null}
        {step ? (
          <button type="button" class="plain" onClick={leave}>
            Leave
          </button>
        ) : null}
      </div>
    </aside>
  );
}

/** What the live model makes of the step. */
function tellStep(state: State, live: Live, { look: place, tell }: Step): string {
  if (!live.before || !live.after) return live.problem;
  const text = shorten(live.after.text || "(nothing)");
  if (tell) return `${tell(live)} It writes “${text}”.`;
  if (place === "hands") return tellPosition(makeClock(state, live), Math.min(state.clock, state.length - 1));
  if (place === "attention") return tellAttention(state, live);
  return live.before === live.after ? `It writes “${text}”.` : `It writes “${text}”. ${tellChange(live.before, live.after)}`;
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

/** The end of a scene: the answer in one plain sentence, the numbers of this page, and what was measured, folded. */
function Ended(props: EndedProps) {
  const { scene } = props;
  const measured = useMemo(() => readAnswer(scene.study), [scene]);
  return (
    <>
      {scene.conclude ? <Concluded {...props} conclude={scene.conclude} /> : <p class="plainly">{scene.answer ?? measured?.short}</p>}
      {scene.note ? <p class="soft">{scene.note}</p> : null}
      {scene.conclude && measured?.short ? (
        <p>
          Many models, each trained anew: {measured.question} {measured.short}
        </p>
      ) : null}
      {measured ? <Measured answer={measured} /> : null}
    </>
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
  // Until the worker has counted, the same count stands there from when the page was made, where it was made.
  const isWhole = ({ progress }: Counted) => progress !== null && progress.done === progress.of;
  const { answer, numbers } = conclude(lives.map((live, step) => ({ live, count: isWhole(counts[step]!) ? counts[step]!.progress : findMeasured(live.model, live.controls) })));
  const problem = counts.find((count) => count.problem)?.problem;
  return (
    <>
      <p class="plainly">
        <b>{answer}</b> {numbers ?? (problem ? `The held-out sentences are not counted: ${problem}` : "Counting…")}
      </p>
      {lives.some(isControlled) ? <p class="soft">{NOT_RETRAINED}</p> : null}
    </>
  );
}

/** What the study measured over many models, in its own words. */
function Measured({ answer }: { answer: StudyAnswer }) {
  return (
    <details class="measured">
      <summary>What was measured by training many models, with intervals</summary>
      <p>{splitNumbers(answer.answer).map((part, index) => (index % 2 ? <b key={index}>{part}</b> : part))}</p>
      <p>
        <a href={`#study-${answer.name}`} onClick={(event) => showAnswer(event, answer.name)}>
          Its place among the answers
        </a>{" "}
        · again with <code>{answer.command}</code>
      </p>
    </details>
  );
}

/** The address holds the state of the page, so that a link inside it scrolls and does not change it. */
function showAnswer(event: MouseEvent, name: string): void {
  event.preventDefault();
  const section = document.getElementById(`study-${name}`);
  section?.scrollIntoView();
  section?.focus();
}

/** Text, and numbers with their intervals, by turns. */
export function splitNumbers(text: string): string[] {
  return text.split(/([−+]?\d[\d.,]* \[[^\]]*\](?: %| nats)?)/);
}
