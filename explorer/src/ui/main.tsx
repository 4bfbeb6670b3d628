/** The page of `clockhands explore`. */

import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { EngineWorker, loadModels, type LiveModel } from "../engine/api";
import { readAddress } from "./address";
import { Attention } from "./attention";
import { useCount } from "./count";
import { First } from "./first";
import { Glance } from "./glance";
import { Hands } from "./hands";
import { bringToLife, chooseText } from "./live";
import { Questions, Strip } from "./scene";
import { Sentence } from "./sentence";
import { Sliders } from "./sliders";
import { DEFAULTS, UNTOUCHED, type State } from "./state";
import { Store, useStore } from "./store";
import "./style.css";

/** Give a state what only the models know: a model, and a sentence to begin with. */
function complete(models: readonly LiveModel[]): (state: State) => State {
  return (state) => {
    const model = models.find((candidate) => candidate.id === state.model) ?? findFirst(models);
    const { encoderLayers, decoderLayers, heads } = model.config;
    const layers = state.stack === "encoder" ? encoderLayers : decoderLayers;
    return {
      ...state,
      model: model.id,
      layer: Math.min(state.layer, layers - 1),
      head: Math.min(state.head, heads - 1),
    };
  };
}

/** The reader of "Tom bit a dog" with positions comes first. */
function findFirst(models: readonly LiveModel[]): LiveModel {
  const tellsTom = (model: LiveModel) => model.scheme.name !== "none" && chooseText(model).startsWith("Tom");
  return models.find(tellsTom) ?? models[0]!;
}

function Page({ models, worker, store }: { models: LiveModel[]; worker: EngineWorker; store: Store }) {
  const state = useStore(store);
  const model = models.find((candidate) => candidate.id === state.model)!;
  const still = useStill(state);
  const live = useMemo(() => bringToLife(still, model), [still, model]);
  const before = useCount(worker, model, {}, still.beam);
  const after = useCount(worker, model, live.controls, still.beam);
  const [said, say] = useState("");
  const props = { state: still, live, update: store.update, say };
  // A drag of the hands draws the hands alone, at every frame: the other parts are kept as they are.
  const first = useMemo(() => <First models={models} />, [models]);
  const questions = useMemo(() => <Questions models={models} {...props} />, [still.scene]);
  const sentence = useMemo(() => <Sentence {...props} before={before} after={after} />, [still, live, before, after]);
  const sliders = useMemo(() => <Sliders {...props} />, [still, live]);
  const attention = useMemo(() => <Attention {...props} />, [still, live]);
  useEffect(() => {
    if (said === "") return;
    const timer = setTimeout(() => say(""), 4000);
    return () => clearTimeout(timer);
  }, [said]);
  return (
    <>
      <a class="skip" href="#sentence-title" onClick={skip}>
        Skip to the sentence
      </a>
      <header>
        <p class="brand">
          <Mark /> clockhands explore
        </p>
      </header>
      <main>
        {first}
        {questions}
        <div class="bench-head">
          <Models models={models} {...props} />
          <CopyLink store={store} say={say} />
        </div>
        <div class="bench">
          {sentence}
          {sliders}
        </div>
        <Hands {...props} state={state} />
        {attention}
      </main>
      {state.scene ? <Strip models={models} {...props} state={state} count={after} /> : <Glance {...props} count={after} />}
      <p class={said ? "said shown" : "said"} role="status">
        {said}
      </p>
    </>
  );
}

/** The state but for the clock, the same object until something else in it changes. */
function useStill(state: State): State {
  const kept = useRef(state);
  const names = Object.keys(state) as (keyof State)[];
  if (names.some((name) => name !== "clock" && state[name] !== kept.current[name])) kept.current = state;
  return kept.current;
}

function skip(event: MouseEvent): void {
  event.preventDefault();
  const field = document.querySelector<HTMLElement>(".sentence input");
  field?.scrollIntoView();
  field?.focus();
}

function Models({ models, state, update }: { models: LiveModel[]; state: State; update: Store["update"] }) {
  const model = models.find((candidate) => candidate.id === state.model)!;
  return (
    <label class="models">
      <span>Model</span>
      <select
        value={state.model}
        onChange={(event) => {
          const next = models.find((candidate) => candidate.id === event.currentTarget.value)!;
          const known = state.text !== null && next.encodeText(state.text).unknown.length === 0;
          update({ ...UNTOUCHED, model: next.id, text: known ? state.text : null, scene: "", step: 0 });
        }}
      >
        {models.map((candidate) => (
          <option key={candidate.id} value={candidate.id}>
            {candidate.label}
          </option>
        ))}
      </select>
      <small>
        {model.task}; {model.config.parameters.toLocaleString("en-US")} parameters, {model.config.encoderLayers} + {model.config.decoderLayers} layers, d_model{" "}
        {model.config.dModel}
      </small>
    </label>
  );
}

function CopyLink({ store, say }: { store: Store; say: (text: string) => void }) {
  const copy = () =>
    navigator.clipboard.writeText(store.address).then(
      () => say("The link to exactly this is copied."),
      () => {
        history.replaceState(null, "", store.address);
        say("The browser does not let the page copy: the link stands in the address bar.");
      },
    );
  return (
    <button type="button" onClick={() => void copy()}>
      Copy link
    </button>
  );
}

function Mark() {
  return (
    <svg viewBox="0 0 24 24" aria-hidden="true">
      <circle cx="12" cy="12" r="10" fill="none" stroke="currentColor" stroke-width="1.6" />
      <path d="M12 12V4.6M12 12l5 3.2" fill="none" stroke="currentColor" stroke-width="1.9" stroke-linecap="round" />
    </svg>
  );
}

/** What Python wrote for readers without script stays, as a part of the page at its end. */
function foldTold(): void {
  const told = document.getElementById("told");
  if (!told) return;
  const section = document.createElement("section");
  section.id = "told";
  section.setAttribute("aria-label", "The same in words and tables");
  section.append(...told.childNodes);
  section.querySelector(".brand")?.remove();
  told.replaceWith(section);
  const title = section.querySelector("h1");
  if (!title) return;
  const heading = document.createElement("h2");
  heading.textContent = "Counted when this page was made";
  title.replaceWith(heading);
}

const root = document.getElementById("explorer");
if (root) {
  const models = loadModels();
  const store = new Store({ ...DEFAULTS, ...readAddress(location.hash) }, complete(models));
  foldTold();
  document.documentElement.classList.add("live");
  render(<Page models={models} worker={new EngineWorker()} store={store} />, root);
}
