import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { HeldOutProgress } from "../../src/engine/api";
import type { Counted } from "../../src/ui/count";
import { QUOTES, quoteStudy } from "../../src/ui/quotes";
import { tellMisleading } from "../../src/ui/scene";
import { SCENES } from "../../src/ui/scenes";

const STORED = new URL("../../../src/clockhands/studies/answers.json", import.meta.url);
const answers = new Map((JSON.parse(readFileSync(STORED, "utf8")) as { name: string; answer: string }[]).map(({ name, answer }) => [name, answer]));
/** The answer that stands beside a scene, as the page writes it. */
const read = (study: string) => answers.get(SCENES.find((scene) => scene.study === study)!.measured?.study ?? study)!;

describe("what is quoted of a study beside a question", () => {
  it.each(Object.keys(QUOTES))("finds every number of %s in the stored answer", (study) => {
    const told = quoteStudy(study, read(study));
    const numbers = told.match(/\d[\d.]* \[[^\]]*\]/g)!;
    expect(numbers.length).toBeGreaterThanOrEqual(1);
    for (const number of numbers) expect(read(study)).toContain(number);
    const parts = QUOTES[study]!.filter(({ find }) => find.test(read(study)));
    // Of the two parts about the base one holds, whichever way the study came out.
    expect(parts).toHaveLength(study === "base" ? 1 : QUOTES[study]!.length);
  });

  it("compares the orders of words with positions and without", () => {
    const [, all, none] = read("order-at-all").match(/sides (\S+ \[.*?\] %).*?none, (\S+ \[.*?\] %)/)!;
    expect(quoteStudy("order-at-all", read("order-at-all"))).toContain(`with positions ${all}, without ${none} are right`);
  });

  it("says that something does as well only where the study found it equivalent", () => {
    const turned = (study: string) => quoteStudy(study, read(study).replaceAll("(equivalent", "(worse"));
    expect(quoteStudy("base", read("base"))).toContain("does as well");
    expect(quoteStudy("why-sine-and-cosine", read("why-sine-and-cosine"))).toContain("random vectors do as well");
    expect(turned("base")).not.toContain("as well");
    expect(turned("base")).toMatch(/^Models trained with a base of 100 get /);
    expect(turned("why-sine-and-cosine")).not.toContain("as well");
  });

  it("says nothing of an answer that states other things", () => {
    for (const study of Object.keys(QUOTES)) expect(quoteStudy(study, "98.6 [97.9, 99.3] % are right.")).toBe("");
    expect(quoteStudy("unheard-of", "")).toBe("");
  });
});

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
