/** A model that does not run here: its positions in the reader's hands, its attention as it was recorded. */

import { useMemo, useRef } from "preact/hooks";
import type { AttentionTrace, Matrix, RecordedModel } from "../engine/api";
import { Chosen, Navigator } from "./attention";
import { composePicture, copyPicture } from "./canvas";
import { readHead } from "./grid";
import { Hands } from "./hands";
import { place } from "./live";
import { Said, type Tell } from "./said";
import { Sliders } from "./sliders";
import type { State } from "./state";
import type { Update } from "./store";
import { UndoAll } from "./undo";
import { showToken } from "./words";

interface Props {
  model: RecordedModel;
  state: State;
  still: State;
  update: Update;
  tell: Tell;
}

/** The bench of a recorded model. */
export function Recorded({ model, state, still, update, tell }: Props) {
  const { sentences } = model.data;
  const sentence = Math.max(0, sentences.findIndex((candidate) => candidate.text === still.text));
  const placed = useMemo(() => place(still, model, sentence), [still, model, sentence]);
  const attention = useMemo(() => (sentences.length > 0 ? model.readAttention(sentence) : []), [model, sentence]);
  const props = { state: still, live: placed, update };
  const ofSentence = tell("sentence");
  return (
    <>
      <div class="bench">
        <section class="card sentence" aria-labelledby="sentence-title">
          <h2 id="sentence-title">What was recorded</h2>
          <p>{model.task}</p>
          <p class="hint">{model.data.reason}</p>
          {sentences.length === 1 ? (
            <p>
              The sentence whose attention is shown: “{sentences[0]!.text}”
            </p>
          ) : sentences.length > 0 ? (
            <label class="field recorded">
              <span>The sentence whose attention is shown</span>
              <select value={String(sentence)} onChange={(event) => update({ text: sentences[Number(event.currentTarget.value)]!.text })}>
                {sentences.map((candidate, index) => (
                  <option key={index} value={String(index)}>
                    {candidate.text}
                  </option>
                ))}
              </select>
            </label>
          ) : (
            <p class="hint">No sentence was given when this page was written (--text), so there is no attention to show.</p>
          )}
          <div class="actions">
            <UndoAll state={still} update={update} say={ofSentence.say} />
            <Said text={ofSentence.said} />
          </div>
        </section>
        <Sliders {...props} />
      </div>
      <Hands {...props} {...tell("hands")} state={state} />
      {attention.length > 0 ? <Attention {...props} {...tell("attention")} attention={attention} /> : null}
    </>
  );
}

interface AttentionProps {
  state: State;
  live: ReturnType<typeof place>;
  attention: AttentionTrace[];
  update: Update;
  say: (text: string) => void;
  said: string;
}

/** The attention weights as they were recorded: no control changes them. */
function Attention({ state, live, attention, update, say, said }: AttentionProps) {
  const section = useRef<HTMLElement>(null);
  const words = live.places.map((token) => showToken(token.text));
  const compute = (layer: number, head: number): Matrix => readHead(attention[layer]!, head, "weights", 0);
  const grid = { layers: attention.length, heads: live.model.config.heads, share: true, compute };
  const picture = () => {
    const canvases = [...section.current!.querySelectorAll<HTMLCanvasElement>("canvas.matrix")];
    void copyPicture(composePicture(canvases, [`Attention in layer ${state.layer + 1}, head ${state.head + 1}`, words.join(" ")]), "clockhands-attention").then(say);
  };
  return (
    <section class="card attention" ref={section} aria-labelledby="attention-title">
      <div class="head">
        <h2 id="attention-title">Attention, as it was recorded</h2>
        <Said text={said} />
        <button type="button" onClick={picture}>
          Copy picture
        </button>
      </div>
      <p class="lead">How each token shares its attention among the tokens of the sentence, in every layer and head. The sliders and the hands do not change it.</p>
      <div class="navigate">
        <Navigator state={state} update={update} grid={grid} />
        <Chosen state={state} grid={grid} rows={words} columns={words} difference={false}>
          {(cell, value) => (
            <p class="readout">
              From “{words[cell[0]]}” to “{words[cell[1]]}”: weight <b>{value}</b>.
            </p>
          )}
        </Chosen>
      </div>
    </section>
  );
}
