/** The scenes: ten questions to choose from, and the strip that plays one of them. */

import { useEffect } from "preact/hooks";
import type { LiveModel } from "../engine/api";
import { makeClock, tellPosition } from "./clockwork";
import type { Counted } from "./count";
import { compareWeights, pickAttention, tellTerms } from "./grid";
import { traceAfter, traceBefore, type Live } from "./live";
import { readAnswer, type StudyAnswer } from "./answers";
import { canPlay, playStep, SCENES, type Place, type Scene } from "./scenes";
import { Count, tellChange } from "./sentence";
import type { State } from "./state";
import type { Update } from "./store";
import { formatNumber } from "./words";

interface Props {
  models: readonly LiveModel[];
  state: State;
  live: Live;
  update: Update;
}

/** The ten questions. */
export function Questions({ models, state, update }: Omit<Props, "live">) {
  return (
    <section class="questions" aria-labelledby="questions-title">
      <h2 id="questions-title">Ten questions, a few steps each</h2>
      <ol>
        {SCENES.map((scene) => (
          <li key={scene.study}>
            <button
              type="button"
              aria-current={state.scene === scene.study ? "true" : undefined}
              disabled={!canPlay(models, scene)}
              title={canPlay(models, scene) ? undefined : "The models of this page cannot play it; its answer is further down."}
              onClick={() => start(models, scene, update)}
            >
              {scene.title}
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}

function start(models: readonly LiveModel[], scene: Scene, update: Update): void {
  update(playStep(models, scene, 0));
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("scene-next")?.focus()));
}

const IDS: Record<Place, string> = { sentence: "sentence-title", sliders: "sliders-title", hands: "hands-title", attention: "attention-title" };

/** The strip at the foot of the window: a step, what the model makes of it, and on. */
export function Strip(props: Props & { count: Counted }) {
  const { models, state, live, update, count } = props;
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
    if (next > scene.steps.length) return update({ scene: "", step: 0 });
    update(next === scene.steps.length ? { step: next } : playStep(models, scene, next));
  };
  useEffect(() => {
    if (!scene) return;
    const hear = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.key === "Escape") return update({ scene: "", step: 0 });
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
          <p>
            {step.say} <span class="told">{tellStep(state, live, step.look)}</span>
            {step.count ? (
              <span class="told counted">
                {" "}
                <Count count={count} kind={live.model.config.kind} />.
              </span>
            ) : null}
          </p>
        ) : (
          <Measured scene={scene} answer={readAnswer(scene.study)} />
        )}
      </div>
      <div class="strip-keys">
        <button type="button" onClick={() => go(-1)} disabled={state.step === 0} aria-label="Back">
          ←
        </button>
        <button type="button" id="scene-next" class="next" onClick={() => go(1)}>
          {state.step < scene.steps.length ? "Next →" : "Done"}
        </button>
        <button type="button" class="plain" onClick={() => update({ scene: "", step: 0 })}>
          Leave
        </button>
      </div>
    </aside>
  );
}

/** What the live model makes of the step. */
function tellStep(state: State, live: Live, place: Place): string {
  if (!live.before || !live.after) return live.problem;
  if (place === "hands") return tellPosition(makeClock(state, live), Math.min(state.clock, state.length - 1));
  if (place === "attention") return tellAttention(state, live);
  const text = live.after.text || "(nothing)";
  return live.before === live.after ? `It writes “${text}”.` : `It writes “${text}”. ${tellChange(live.before, live.after)}`;
}

function tellAttention(state: State, live: Live): string {
  const after = pickAttention(traceAfter(live), state.stack, state.layer);
  if (state.view !== "difference") return tellTerms(after, state.head) ?? "";
  const change = compareWeights(pickAttention(traceBefore(live), state.stack, state.layer), after);
  return `Its weights change by ${formatNumber(change, 2)} on average.`;
}

/** The end of a scene: what the study measured over many models, in its own words. */
function Measured({ scene, answer }: { scene: Scene; answer: StudyAnswer | null }) {
  if (!answer) return <p>The study that measures this: <code>clockhands study {scene.study}</code></p>;
  return (
    <>
      <p class="measured">
        <b>Measured, over many models:</b> {splitNumbers(answer.answer).map((part, index) => (index % 2 ? <b key={index}>{part}</b> : part))}
      </p>
      <p>
        <a href={`#study-${answer.name}`} onClick={(event) => showAnswer(event, answer.name)}>
          Its place among the answers
        </a>{" "}
        · again with <code>{answer.command}</code>
      </p>
    </>
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
