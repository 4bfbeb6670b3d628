/** A position as a small clock face: a few hands of the encoding, each where it stands. */

import type { SchemeInfo } from "../engine/api";

/** How long the hands are drawn: the fastest is the longest, as on a watch. */
const LENGTHS = [-9, -7, -4.5];

/** Whether the positions of a scheme are angles of hands. */
export function hasHands({ name }: SchemeInfo): boolean {
  return name === "sinusoidal" || name === "rope";
}

/**
 * The frequencies of the hands of a face: of the fastest and of two about 3 and 10 times as slow, because they move
 * within a few words. `now`: the frequencies under controls, which change no choice of hands.
 */
export function chooseFace(scheme: SchemeInfo, now: readonly number[] = scheme.frequencies): number[] {
  if (!hasHands(scheme)) return [];
  const { frequencies } = scheme;
  const hands = [1, 3, 10].map((slower) => frequencies.findIndex((frequency) => frequency > 0 && frequency * slower <= frequencies[0]! * 1.001));
  return hands.filter((hand) => hand >= 0).map((hand) => now[hand]!);
}

/** The face of a position; without hands it is dashed and empty. */
export function Face({ hands, position }: { hands: readonly number[]; position: number }) {
  return (
    <svg class={hands.length > 0 ? "face" : "face blank"} viewBox="-12 -12 24 24" aria-hidden="true">
      <circle r="10.5" />
      {hands.map((frequency, hand) => (
        <line key={hand} y2={LENGTHS[hand]} transform={`rotate(${((position * frequency * 180) / Math.PI).toFixed(1)})`} />
      ))}
    </svg>
  );
}
