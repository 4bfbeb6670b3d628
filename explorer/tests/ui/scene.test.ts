import { describe, expect, it } from "vitest";
import type { HeldOutProgress } from "../../src/engine/api";
import type { Counted } from "../../src/ui/count";
import { tellMisleading } from "../../src/ui/scene";

describe("a sentence that comes out as before", () => {
  const count = (right: number, done = 200): Counted => ({ progress: { right, confidence: 1, done, of: 200 } as HeldOutProgress, problem: "" });
  const pair = (before: string, after: string) => ({ before: { text: before }, after: { text: after } }) as Parameters<typeof tellMisleading>[0];

  it("misleads where most others go wrong, and only there", () => {
    expect(tellMisleading(pair("a", "a"), count(9))).toContain("misleads");
    expect(tellMisleading(pair("a", "a"), count(100))).toBe("");
    expect(tellMisleading(pair("a", "b"), count(9))).toBe("");
    expect(tellMisleading(pair("a", "a"), count(9, 12))).toBe("");
    const same = pair("a", "a");
    expect(tellMisleading({ ...same, after: same.before }, count(9))).toBe("");
  });
});
