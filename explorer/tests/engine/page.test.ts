import { describe, expect, it } from "vitest";
import { readPage } from "../../src/engine/page";

describe("a page of several models", () => {
  it("gives each model the lists that it has in common with an earlier one", () => {
    const [texts, order] = [[{ source: "Tom", target: "Tomo" }], { pairs: [] }];
    const models = [
      { id: "roles", heldOut: texts, trained: order, tokens: [] },
      { id: "roles-learned", heldOut: "roles", trained: "roles", tokens: [{ text: "Tom", special: false }] },
    ];
    const root = { getElementById: () => ({ textContent: JSON.stringify({ models }) }) } as unknown as Document;
    const second = readPage(root).models[1]!;
    expect([second.heldOut, second.trained, second.tokens]).toEqual([texts, order, models[1]!.tokens]);
  });
});
