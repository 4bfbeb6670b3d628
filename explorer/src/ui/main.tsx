/** The page of `clockhands explore`. */

import { type ComponentChildren, render } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { EngineWorker, loadModels, loadRecorded, type LiveModel, type PositionedModel, type RecordedModel } from "../engine/api";
import { Attention } from "./attention";
import { useCount } from "./count";
import { First } from "./first";
import { Glance } from "./glance";
import { Hands } from "./hands";
import { bringToLife, chooseText, isRecorded } from "./live";
import { Recorded } from "./recorded";
import { Said, useSaid, type Tell } from "./said";
import { Questions, Strip } from "./scene";
import { Sentence } from "./sentence";
import { Sliders } from "./sliders";
import { playAddress, playStep, SCENES, type Scene } from "./scenes";
import { DEFAULTS, UNTOUCHED, type State } from "./state";
import { Store, useStore } from "./store";
import "./style.css";

/** Give a state what only the models know: a model, and a sentence to begin with. */
function complete(models: readonly LiveModel[], recorded: readonly RecordedModel[]): (state: State) => State {
  return (state) => {
    const all: PositionedModel[] = [...models, ...recorded];
    const model = all.find((candidate) => candidate.id === state.model) ?? (models.length > 0 ? findFirst(models) : recorded[0]!);
    const { encoderLayers, decoderLayers, heads } = model.config;
    const stack = decoderLayers > 0 ? state.stack : "encoder";
    const layers = stack === "encoder" ? encoderLayers : decoderLayers;
    return {
      ...state,
      model: model.id,
      stack,
      layer: Math.max(0, Math.min(state.layer, layers - 1)),
      head: Math.min(state.head, heads - 1),
    };
  };
}

/** The reader of "Tom bit a dog" with positions comes first. */
function findFirst(models: readonly LiveModel[]): LiveModel {
  const tellsTom = (model: LiveModel) => model.config.kind === "encoder-decoder" && model.scheme.name !== "none" && chooseText(model).startsWith("Tom");
  return models.find(tellsTom) ?? models[0]!;
}

interface Props {
  models: LiveModel[];
  recorded: RecordedModel[];
  worker: EngineWorker | null;
  store: Store;
}

function Page({ models, recorded, worker, store }: Props) {
  const state = useStore(store);
  const still = useStill(state);
  const chosen = recorded.find((candidate) => candidate.id === state.model);
  const translators = useMemo(() => models.filter((candidate) => candidate.config.kind === "encoder-decoder"), [models]);
  const { said, tell, clear } = useSaid();
  const { enter, leave } = useScenes(translators, store, tell("questions").say);
  useEffect(() => {
    if (state.scene !== "") clear();
  }, [state.scene, state.step]);
  // A drag of the hands draws the hands alone, at every frame: the other parts are kept as they are.
  const first = useMemo(() => (models.length > 0 ? <First models={translators} /> : <FirstRecorded />), [models]);
  const questions = useMemo(() => (translators.length > 0 ? <Questions models={translators} enter={enter} state={still} said={tell("questions").said} /> : null), [still.scene, tell("questions").said]);
  const head = (
    <>
      {first}
      {questions}
      <div class="bench-head">
        <Models models={[...models, ...recorded]} state={state} update={store.update} />
        <CopyLink store={store} {...tell("link")} />
      </div>
    </>
  );
  // What stands inside another page shows the part that its step is about, and the strip.
  const look = SCENES.find((scene) => scene.study === state.scene)?.steps[state.step]?.look;
  useEffect(() => {
    document.documentElement.classList.toggle("embedded", state.embedded);
    if (look) document.documentElement.dataset["look"] = look;
  }, [state.embedded, look]);
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
      {chosen ? (
        <main>
          {head}
          <Recorded model={chosen} state={state} still={still} update={store.update} tell={tell} />
        </main>
      ) : (
        <Bench models={models} worker={worker!} store={store} state={state} still={still} tell={tell} head={head} enter={enter} leave={leave} />
      )}
      <p class="said" role="status">
        {said.text}
      </p>
    </>
  );
}

interface BenchProps {
  models: LiveModel[];
  worker: EngineWorker;
  store: Store;
  state: State;
  still: State;
  tell: Tell;
  head: ComponentChildren;
  enter: (scene: Scene) => void;
  leave: () => void;
}

/** Begin a scene, and give back at its end what the reader had before it. */
function useScenes(models: readonly LiveModel[], store: Store, say: (text: string) => void) {
  const before = useRef<State | null>(null);
  return useMemo(
    () => ({
      enter: (scene: Scene) => {
        if (store.state.scene === "") before.current = store.state;
        store.update(playStep(models, scene, 0));
        afterDrawing(() => document.getElementById("scene-next")?.focus());
      },
      leave: () => {
        const { scene } = store.state;
        store.update({ ...(before.current ?? DEFAULTS), scene: "", step: 0 });
        say(before.current ? "Everything is as it was before the question." : "Everything is as it was trained.");
        before.current = null;
        afterDrawing(() => {
          document.querySelector(".questions")?.scrollIntoView({ block: "start" });
          document.getElementById(`ask-${scene}`)?.focus({ preventScroll: true });
        });
      },
    }),
    [models],
  );
}

function afterDrawing(act: () => void): void {
  requestAnimationFrame(() => requestAnimationFrame(act));
}

/** Everything about a live model. */
function Bench({ models, worker, store, state, still, tell, head, enter, leave }: BenchProps) {
  const model = models.find((candidate) => candidate.id === state.model)!;
  const translators = models.filter((candidate) => candidate.config.kind === "encoder-decoder");
  const live = useMemo(() => bringToLife(still, model), [still, model]);
  const before = useCount(worker, model, {}, still.beam);
  const after = useCount(worker, model, live.controls, still.beam);
  const props = { state: still, live, update: store.update };
  const [ofSentence, ofHands, ofAttention] = [tell("sentence"), tell("hands"), tell("attention")];
  const sentence = useMemo(() => <Sentence {...props} {...ofSentence} before={before} after={after} />, [still, live, before, after, ofSentence.said]);
  const sliders = useMemo(() => <Sliders {...props} />, [still, live]);
  const attention = useMemo(() => <Attention {...props} {...ofAttention} />, [still, live, ofAttention.said]);
  return (
    <>
      <main>
        {head}
        <div class="bench">
          {sentence}
          {sliders}
        </div>
        <Hands {...props} {...ofHands} state={state} />
        {attention}
      </main>
      {state.scene && translators.length > 0 ? <Strip models={translators} {...props} state={state} count={after} worker={worker} enter={enter} leave={leave} /> : <Glance {...props} count={after} />}
    </>
  );
}

function FirstRecorded() {
  return (
    <section class="first" aria-labelledby="first-title">
      <h1 id="first-title">Take the positions of a model in your hands.</h1>
      <p class="lead">
        A Transformer reads all words at once; where each one stands, it has to be told. Below are the numbers by which this model is told: turn them, and see
        where its heads attend.
      </p>
    </section>
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
  const field = document.querySelector<HTMLElement>(".sentence input, .sentence select");
  field?.scrollIntoView();
  field?.focus();
}

function Models({ models, state, update }: { models: PositionedModel[]; state: State; update: Store["update"] }) {
  const model = models.find((candidate) => candidate.id === state.model)!;
  const { parameters, encoderLayers, decoderLayers, dModel } = model.config;
  const about = (
    <small>
      {isRecorded(model)
        ? `${parameters.toLocaleString("en-US")} parameters`
        : `${model.task}; ${parameters.toLocaleString("en-US")} parameters, ${encoderLayers}${decoderLayers > 0 ? ` + ${decoderLayers}` : ""} layers, d_model ${dModel}`}
    </small>
  );
  if (models.length === 1) {
    return (
      <p class="models">
        <span>{model.label}</span>
        {about}
      </p>
    );
  }
  return (
    <label class="models">
      <span>Model</span>
      <select
        value={state.model}
        onChange={(event) => {
          const next = models.find((candidate) => candidate.id === event.currentTarget.value)!;
          const known = !isRecorded(next) && state.text !== null && (next as LiveModel).encodeText(state.text).unknown.length === 0;
          update({ ...UNTOUCHED, model: next.id, text: known ? state.text : null, scene: "", step: 0 });
        }}
      >
        {models.map((candidate) => (
          <option key={candidate.id} value={candidate.id}>
            {candidate.label}
            {isRecorded(candidate) ? " (recorded)" : ""}
          </option>
        ))}
      </select>
      {about}
    </label>
  );
}

function CopyLink({ store, say, said }: { store: Store; say: (text: string) => void; said: string }) {
  const copy = () =>
    navigator.clipboard.writeText(store.address).then(
      () => say("Link copied: it holds the sentence, your changes and the view."),
      () => {
        history.replaceState(null, "", store.address);
        say("Not copied: take the link from the address bar.");
      },
    );
  return (
    <span class="link">
      <Said text={said} />
      <button type="button" onClick={() => void copy()}>
        Copy link
      </button>
    </span>
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
  const recorded = loadRecorded();
  const read = (fragment: string) => playAddress(models, fragment);
  const store = new Store(read(location.hash), complete(models, recorded), read);
  foldTold();
  document.documentElement.classList.add("live");
  const worker = models.length > 0 ? new EngineWorker() : null;
  render(<Page models={models} recorded={recorded} worker={worker} store={store} />, root);
}
