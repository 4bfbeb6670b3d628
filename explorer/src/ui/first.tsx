/** The first screen: one pair of sentences, read with positions and without. */

import type { LiveModel } from "../engine/api";
import { markChanges } from "./changes";
import { chooseFace, Face, hasHands } from "./face";
import { findModel, translateText } from "./live";
import { shorten } from "./words";

const SENTENCES = ["Tom bit a dog", "a dog bit Tom"] as const;

/** Two readers, two sentences with the same words, and what each reader writes for each. */
export function First({ models }: { models: readonly LiveModel[] }) {
  const seeing = findModel(models, SENTENCES[0], true);
  const blind = findModel(models, SENTENCES[0], false);
  const bag = seeing && blind && tellsApart(seeing) && !tellsApart(blind);
  const clocks = seeing !== undefined && hasHands(seeing.scheme);
  return (
    <section class="first" aria-labelledby="first-title">
      <div>
        <h1 id="first-title">
          {bag ? "Without positions, this translator cannot tell who bit whom." : "Change the positions of a live Transformer, and read what it writes."}
        </h1>
        <p class="lead">
          A Transformer reads all words at once; where each one stands, it has to be told{clocks ? ", here by a clock that every word carries" : ""}. The small models on
          this page run in your browser: change their positions, and read what they write.
          {seeing && blind ? " These two translate into Esperanto, where -n marks the one who is bitten; held-out sentences are those that training never had." : ""}
        </p>
      </div>
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

/** A model, what it writes for both sentences, and how often it is right. */
function Reader({ name, model }: { name: string; model: LiveModel }) {
  const count = model.measured.find(({ controls }) => Object.keys(controls).length === 0);
  return (
    <div class={model.scheme.name === "none" ? "reader blind" : "reader"}>
      <h2>{name}</h2>
      {SENTENCES.map((text, index) => (
        <div key={text} class="reading">
          <Clocked text={text} model={model} />
          <p class="writes">
            <span aria-hidden="true">→ </span>
            <span lang="eo">
              <Written model={model} index={index} />
            </span>
            <Judgement model={model} index={index} />
          </p>
        </div>
      ))}
      {count ? (
        <p class="rights">
          <span class="track">
            <span class="fill" style={{ width: `${(100 * count.right) / count.of}%` }} />
          </span>
          <span>
            <b>{count.right}</b> of {count.of} held-out sentences right
            {count.right > 0 && !tellsApart(model) ? ", where its one translation fits" : ""}
          </span>
        </p>
      ) : null}
    </div>
  );
}

/** The words of a sentence, each below the clock of its position; a blind model's clocks have no hands. */
function Clocked({ text, model }: { text: string; model: LiveModel }) {
  const hands = chooseFace(model.scheme);
  return (
    <p class="clocked">
      {text.split(" ").map((word, position) => (
        <span key={position}>
          <Face hands={hands} position={position} />{" "}
          {word}{" "}
        </span>
      ))}
    </p>
  );
}

/** The right translations of both sentences. */
const RIGHT = ["Tomo mordis hundon", "hundo mordis Tomon"] as const;

/** What a translation means, where it is the right one of either sentence; and whether it is wrong, or the same for both. */
function Judgement({ model, index }: { model: LiveModel; index: number }) {
  const texts = SENTENCES.map((text) => translateText(model, text).text.trim());
  const means = SENTENCES[RIGHT.findIndex((right) => right === texts[index])];
  const told = [index === 1 && texts[0] === texts[1] ? "the same" : "", texts[index] === RIGHT[index] ? "" : "wrong"].filter(Boolean).join(", ");
  return (
    <small>
      {means ? <span>({means})</span> : null} {told ? <span>{told}</span> : null}
    </small>
  );
}

/** A translation; of the second sentence, the words that differ from those of the first are marked. */
function Written({ model, index }: { model: LiveModel; index: number }) {
  const [one, two] = SENTENCES.map((text) => shorten(translateText(model, text).text).split(" "));
  const apart = markChanges(one!, two!);
  return (
    <>
      {(index === 0 ? one! : two!).map((word, place) => (
        <span key={place}>{index === 1 && apart[place] ? <mark>{word}</mark> : word} </span>
      ))}
    </>
  );
}
