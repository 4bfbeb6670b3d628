import { describe, expect, it } from "vitest";
import { findStrange, type TrainedOrder } from "../../src/engine/familiar";

/** Of four tokens, training showed the texts 0 1 2 and 0 2: two to three tokens, the fourth token never. */
const trained: TrainedOrder = {
  shortest: 2,
  longest: 3,
  // Rows 0 to 3 and the beginning, columns 0 to 3 and the end: 01100 00100 00001 00000 10000, filled with zeros.
  next: "61020800",
  before: "6200",
};
const find = (...ids: number[]) => findStrange(trained, ids, 4);

describe("a text unlike all that training showed", () => {
  it("is none of those that it showed", () => {
    expect(find(0, 1, 2)).toBeNull();
    expect(find(0, 2)).toBeNull();
  });

  it("has a token that was never read, or two that never met", () => {
    expect(find(0, 3)).toEqual({ how: "unread", places: [1] });
    expect(find(0, 0)).toEqual({ how: "next", places: [0, 1] });
    expect(find(2, 1)).toEqual({ how: "next", places: [0, 1] });
  });

  it("begins or ends where none did", () => {
    expect(find(1, 2)).toEqual({ how: "begins", places: [0] });
    expect(find(0, 1)).toEqual({ how: "ends", places: [1] });
  });

  it("is shorter than all, or has a token before one that it always followed", () => {
    const loose = { ...trained, next: "ffffffff" };
    expect(findStrange(loose, [0], 4)).toEqual({ how: "short", places: [], bound: 2 });
    expect(findStrange(loose, [0, 1, 0], 4)).toEqual({ how: "before", places: [0, 2] });
    expect(findStrange({ ...loose, before: "ffff" }, [0, 1, 2, 2], 4)).toEqual({ how: "long", places: [], bound: 3 });
  });
});
