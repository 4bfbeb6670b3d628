/** The translation at the foot of the window, while the sentence itself is out of sight. */

import { useEffect, useState } from "preact/hooks";
import type { Counted } from "./count";
import type { Live } from "./live";
import { Count } from "./sentence";
import { isOwn, isTouched, OTHERS_ONLY, UNTOUCHED, type State } from "./state";
import type { Update } from "./store";
import { cutWords, formatShare, showToken } from "./words";

/** One line: what is read, what is written, how sure the model is, and the count. */
export function Glance({ state, live, update, count }: { state: State; live: Live; update: Update; count: Counted }) {
  const [away, setAway] = useState(false);
  useEffect(() => {
    const compare = document.querySelector(".compare");
    if (!compare) return;
    const watch = new IntersectionObserver(([entry]) => {
      setAway(!entry!.isIntersecting && entry!.boundingClientRect.top < 0);
    });
    watch.observe(compare);
    return () => watch.disconnect();
  }, [live.problem]);
  if (!away || !live.before || !live.after) return null;
  const source = live.places.filter((token) => !token.special).map((token) => showToken(token.text));
  const changed = live.before.text !== live.after.text;
  return (
    <aside class="strip glance" aria-label="The sentence at a glance">
      <p>
        <span class="soft">{source.join(" ")} →</span> {changed ? <mark>{cutWords(live.after.text) || "(nothing)"}</mark> : cutWords(live.after.text)}{" "}
        <span class="soft">
          {live.outside.placed ? "outside of what it was trained on; " : ""}
          {changed ? "≠ as trained, " : ""}
          {formatShare(live.after.confidence)} for each token{live.after.ended ? ", the end token too" : ""}
        </span>
      </p>
      <p>
        <Count count={count} kind={live.model.config.kind} /> {isOwn(state) ? <span class="soft">{OTHERS_ONLY}</span> : null}
      </p>
      {isTouched(state) ? (
        <button type="button" onClick={() => update(UNTOUCHED)}>
          Undo all
        </button>
      ) : null}
    </aside>
  );
}
