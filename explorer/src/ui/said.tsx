/** What the page says when something was done, beside what did it, where it covers nothing. */

import { useEffect, useState } from "preact/hooks";

/** The parts of the page beside which something is said. */
type Spot = "questions" | "link" | "sentence" | "hands" | "attention";
/** What a part of the page says with, and what was said there, while it is new. */
export type Tell = (spot: Spot) => { say: (text: string) => void; said: string };

const SAID_FOR = 4000;

/** What was just said, and where: one thing at a time, for a few seconds. */
export function useSaid(): { said: { text: string; spot: Spot | "" }; tell: Tell; clear: () => void } {
  const [said, set] = useState<{ text: string; spot: Spot | "" }>({ text: "", spot: "" });
  const clear = () => set({ text: "", spot: "" });
  useEffect(() => {
    if (said.text === "") return;
    const timer = setTimeout(clear, SAID_FOR);
    return () => clearTimeout(timer);
  }, [said]);
  return { said, clear, tell: (spot) => ({ say: (text) => set({ text, spot }), said: said.spot === spot ? said.text : "" }) };
}

/** What just happened, beside the button that did it; it is read out by the one status line of the page. */
export function Said({ text }: { text: string }) {
  return text ? (
    <small class="saying" aria-hidden="true">
      {text}
    </small>
  ) : null;
}
