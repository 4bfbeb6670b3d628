/** The first screen: one pair of sentences, read with positions and without. */

import type { LiveModel } from "../engine/api";
import { markChanges } from "./changes";
import { findModel, translateText } from "./live";
import { formatShare } from "./words";

const SENTENCES = ["Tom bit a dog", "a dog bit Tom"] as const;

/** Two readers, two sentences with the same words, and what each reader writes for each. */
export function First({ models }: { models: readonly LiveModel[] }) {
  const seeing = findModel(models, SENTENCES[0], true);
  const blind = findModel(models, SENTENCES[0], false);
  const bag = seeing && blind && tellsApart(seeing) && !tellsApart(blind);
  return (
    <section class="first" aria-labelledby="first-title">
      <h1 id="first-title">
        {bag ? "Without positions, this translator cannot tell who bit whom." : "Change the positions of a live Transformer, and read what it writes."}
      </h1>
      <p class="lead">
        A Transformer reads all words at once; where each one stands, it has to be told, often by the hands of many clocks. The small
        models on this page run in your browser. Change their positions and read what they write.
      </p>
      {seeing && blind ? (
        <div class="pairs">
          <Reader name="With positions" model={seeing} />
          <Reader name="Without positions" model={blind} />
        </div>
      ) : null}
    </section>
  );
}

function tellsApart(model: LiveModel): boolean {
  const [one, two] = SENTENCES.map((text) => translateText(model, text).text);
  return one !== two;
}

function Reader({ name, model }: { name: string; model: LiveModel }) {
  const written = SENTENCES.map((text) => translateText(model, text));
  const [one, two] = written.map((translation) => translation.text);
  const untouched = model.measured.find((count) => Object.keys(count.controls).length === 0);
  const apart = markChanges(one!.split(" "), two!.split(" "));
  return (
    <div class={one === two ? "reader same" : "reader"}>
      <h2>{name}</h2>
      <dl>
        {SENTENCES.map((text, index) => (
          <div key={text}>
            <dt>{text}</dt>
            <dd lang="eo">
              {written[index]!.text.split(" ").map((word, place) => (
                <span key={place}>{index === 1 && apart[place] ? <mark>{word}</mark> : word} </span>
              ))}
              <small lang="en">{formatShare(written[index]!.confidence)} for each token, on average</small>
            </dd>
          </div>
        ))}
      </dl>
      <p class="sum">
        {one === two ? "Two sentences, one translation: a bag of words." : "Two sentences, two translations."}
        {untouched ? (
          <span>
            {" "}
            Right on <b>{untouched.right}</b> of {untouched.of} sentences that it never saw.
          </span>
        ) : null}
      </p>
    </div>
  );
}
