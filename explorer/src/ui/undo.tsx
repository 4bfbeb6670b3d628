/** The button that takes back whatever a reader changed about a model. */

import { isTouched, UNTOUCHED, type State } from "./state";
import type { Update } from "./store";

/** Everything as it was trained; off while nothing is changed. */
export function UndoAll({ state, update, say }: { state: State; update: Update; say: (text: string) => void }) {
  const undo = () => {
    update(UNTOUCHED);
    say("All changes undone; view and dial stay.");
  };
  return (
    <button type="button" class="reset" disabled={!isTouched(state)} onClick={undo}>
      Undo all
    </button>
  );
}
