/** The first screen: one pair of sentences, read with positions and without. */

import type { LiveModel } from "../engine/api";
import { markChanges } from "./changes";
import { findModel, translateText } from "./live";
import { shorten } from "./words";

const SENTENCES = ["Tom bit a dog", "a dog bit Tom"] as const;

/** Two readers, two sentences with the same words, and what each reader writes for each. */
export function First({ models }: { models: readonly LiveModel[] }) {
  const seeing = findModel(models, SENTENCES[0], true);
  const blind = findModel(models, SENTENCES[0], false);
  const bag = seeing && blind && tellsApart(seeing) && !tellsApart(blind);
  return (
    <section class="first" aria-labelledby="first-title">
      <div>
        <h1 id="first-title">
          {bag ? "Without positions, this translator cannot tell who bit whom." : "Change the positions of a live Transformer, and read what it writes."}
        </h1>
        <p class="lead">
          A Transformer reads all words at once; where each one stands, it has to be told. The small models on this page run in your browser: change their positions
          and read what they write.
        </p>
      </div>
      {seeing && blind ? <Pairs seeing={seeing} blind={blind} /> : null}
    </section>
  );
}

function tellsApart(model: LiveModel): boolean {
  const [one, two] = SENTENCES.map((text) => translateText(model, text).text);
  return one !== two;
}

/** Both readers side by side: what they write, and how often they are right. */
function Pairs({ seeing, blind }: { seeing: LiveModel; blind: LiveModel }) {
  const readers = [seeing, blind];
  const rights = readers.map((model) => model.measured.find((count) => Object.keys(count.controls).length === 0));
  return (
    <table class="pairs">
      <thead>
        <tr>
          <td />
          <th scope="col">With positions</th>
          <th scope="col">Without positions</th>
        </tr>
      </thead>
      <tbody>
        {SENTENCES.map((text, index) => (
          <tr key={text}>
            <th scope="row">{text}</th>
            {readers.map((model) => (
              <td key={model.id} lang="eo">
                <Written model={model} index={index} />
              </td>
            ))}
          </tr>
        ))}
        {rights.every(Boolean) ? (
          <tr class="rights">
            <th scope="row">right of {rights[0]!.of} unseen</th>
            {rights.map((count, index) => (
              <td key={index}>
                <b>{count!.right}</b>
              </td>
            ))}
          </tr>
        ) : null}
      </tbody>
    </table>
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
      {index === 1 && one!.join() === two!.join() ? <small lang="en">the same</small> : null}
    </>
  );
}
