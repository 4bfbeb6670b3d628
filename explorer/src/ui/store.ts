/** One state for the page, changed at most once a frame, and written into the address when it rests. */

import { useEffect, useState } from "preact/hooks";
import { writeAddress } from "./address";
import type { State } from "./state";

export type Change = Partial<State> | ((state: State) => Partial<State>);
export type Update = (change: Change) => void;

const REST = 200;

/** Holds the state; changes between two frames are drawn together. */
export class Store {
  private waiting = 0;
  private resting = 0;
  private listeners = new Set<(state: State) => void>();

  constructor(
    public state: State,
    private readonly complete: (state: State) => State,
    read: (fragment: string) => State,
  ) {
    this.state = complete(state);
    window.addEventListener("hashchange", () => {
      if (location.hash.slice(1) !== writeAddress(this.state)) this.update(read(location.hash));
    });
  }

  /** Change the state now and draw it with the next frame. */
  readonly update: Update = (change) => {
    const changed = { ...this.state, ...(typeof change === "function" ? change(this.state) : change) };
    this.state = this.complete(changed);
    this.waiting ||= requestAnimationFrame(() => {
      this.waiting = 0;
      this.listeners.forEach((listener) => listener(this.state));
    });
    clearTimeout(this.resting);
    // Browsers refuse more than some hundred changes of the address a minute: a drag is written when it ends.
    this.resting = window.setTimeout(() => history.replaceState(null, "", this.address), REST);
  };

  /** The address of this page in this state. */
  get address(): string {
    return `${location.href.split("#")[0]}#${writeAddress(this.state)}`;
  }

  listen(listener: (state: State) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** The state of a store, as of the last frame. */
export function useStore(store: Store): State {
  const [state, setState] = useState(store.state);
  useEffect(() => store.listen(setState), [store]);
  return state;
}
