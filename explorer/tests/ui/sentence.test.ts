import { describe, expect, it } from "vitest";
import type { Translation } from "../../src/engine/api";
import { markBoth, markChanges } from "../../src/ui/changes";
import { completeOrder } from "../../src/ui/live";
import { moveItem, swapEnds } from "../../src/ui/order";
import { tellChange } from "../../src/ui/sentence";
import { cutWords, formatNumber, formatShare, nameNumber, shorten, showToken } from "../../src/ui/words";

describe("changes", () => {
  it("marks what is in no longest common part", () => {
    expect(markChanges(["Tomo", "mordis", "hundon"], ["hundo", "mordis", "Tomon"])).toEqual([true, false, true]);
    expect(markChanges(["a", "b", "c"], ["x", "a", "b", "c"])).toEqual([true, false, false, false]);
    expect(markChanges(["a", "b"], ["b", "a"]).filter(Boolean)).toHaveLength(1);
    expect(markChanges([], ["a"])).toEqual([true]);
    expect(markChanges(["a"], [])).toEqual([]);
  });
});

describe("changes of both sides", () => {
  it("leave the same words unmarked on either side", () => {
    const pairs = [["the king bit the dog", "the dog bit the king"], ["a b c a b", "b a c b a"], ["a b", "b a"], ["a", ""]];
    for (const [one, two] of pairs.map((texts) => texts.map((text) => text.split(" "))) as [string[], string[]][]) {
      const { before, after } = markBoth(one, two);
      expect(one.filter((_, place) => !before[place])).toEqual(two.filter((_, place) => !after[place]));
    }
  });
});

describe("order", () => {
  it("moves one item and keeps the rest in order", () => {
    expect(moveItem(["a", "b", "c", "d"], 0, 2)).toEqual(["b", "c", "a", "d"]);
    expect(moveItem(["a", "b", "c"], 2, 0)).toEqual(["c", "a", "b"]);
    expect(moveItem(["a", "b"], 0, 9)).toEqual(["b", "a"]);
  });

  it("swaps the ends of a sentence with their articles, and leaves the end token", () => {
    const texts = ["Tom", "bit", "a", "dog", "</s>"];
    const swap = swapEnds(texts, [false, false, false, false, true])!;
    expect(swap.order.map((index) => texts[index])).toEqual(["a", "dog", "bit", "Tom", "</s>"]);
    expect([swap.first, swap.last]).toEqual(["Tom", "a dog"]);
    const back = swapEnds(["a", "dog", "bit", "Tom"], [false, false, false, false])!;
    expect(back.order).toEqual([3, 2, 0, 1]);
  });

  it("has nothing to swap in a sentence of one word", () => {
    expect(swapEnds(["Tom", "</s>"], [false, true])).toBeNull();
    expect(swapEnds(["a", "dog"], [false, false])).toBeNull();
    expect(swapEnds([], [])).toBeNull();
  });

  it("completes an order, and takes a list that is none for the typed one", () => {
    expect(completeOrder([1, 0, 2], 3)).toEqual([1, 0, 2]);
    expect(completeOrder([1, 0], 4)).toEqual([1, 0, 2, 3]);
    expect(completeOrder([], 2)).toEqual([0, 1]);
    expect(completeOrder([1, 1, 0], 3)).toEqual([0, 1, 2]);
    expect(completeOrder([0, 2], 3)).toEqual([0, 1, 2]);
    expect(completeOrder([2, 1, 0], 2)).toEqual([0, 1]);
  });
});

describe("what is said of a translation", () => {
  const make = (text: string, confidence: number, ended = true) => ({ text, confidence, ended }) as Translation;

  it("tells another text from the same one, and the same one from one that is less probable", () => {
    expect(tellChange(make("a", 0.9), make("b", 0.5))).toBe("The translation changes. Average confidence per token: 50\u00a0% (before: 90\u00a0%), the end token included.");
    expect(tellChange(make("a", 0.9), make("a", 0.5))).toContain("The same translation. Average confidence per token: 50\u00a0% (before: 90\u00a0%)");
    expect(tellChange(make("a", 0.9), make("a", 0.9))).toContain("90\u00a0%, as before");
  });

  it("says whether the end token is counted", () => {
    expect(tellChange(make("a", 0.9, false), make("a", 0.9, false))).toBe("The same translation. Average confidence per token: 90\u00a0%, as before.");
    expect(tellChange(make("a", 0.9), make("a", 0.9, false))).toMatch(/, an end token included where it wrote one\.$/);
  });

  it("calls no text a translation where the sentence is outside of what was trained", () => {
    expect(tellChange(make("a", 0.9), make("b", 0.5), "")).toMatch(/^The text changes\./);
  });
});

describe("words", () => {
  it("writes numbers with a minus and few digits", () => {
    expect(formatNumber(-1234.4)).toBe("−1,234");
    expect(formatNumber(0.12345)).toBe("0.123");
    expect(formatNumber(17.82, 2)).toBe("18");
    expect(formatNumber(-Infinity)).toBe("−∞");
  });

  it("says 100 % and 0 % only where that is so", () => {
    expect(formatShare(1)).toBe("100\u00a0%");
    expect(formatShare(0.9999)).toBe("over 99.9\u00a0%");
    expect(formatShare(0.996)).toBe("99.6\u00a0%");
    expect(formatShare(0.5)).toBe("50\u00a0%");
    expect(formatShare(0.00001)).toBe("under 0.1\u00a0%");
    expect(formatShare(0)).toBe("0\u00a0%");
  });

  it("writes small numbers in letters, and cuts long texts behind a word", () => {
    expect([nameNumber(8, true), nameNumber(3), nameNumber(13)]).toEqual(["Eight", "three", "13"]);
    expect(shorten("one two three", 9)).toBe("one two …");
    expect(shorten("one two", 7)).toBe("one two");
  });

  it("cuts a text of many words, and tells how many there are", () => {
    expect(cutWords(Array(26).fill("maristo").join(" "))).toBe(`${Array(8).fill("maristo").join(" ")} … (26 words)`);
    const short = Array(12).fill("maristo").join(" ");
    expect(cutWords(short)).toBe(short);
  });

  it("shows a blank token as a sign", () => {
    expect(showToken(" ")).toBe("␣");
    expect(showToken(" dog")).toBe("dog");
  });
});
