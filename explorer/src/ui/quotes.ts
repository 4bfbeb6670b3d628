/**
 * What stands beside a question of a study's answer: its stored numbers, in a sentence that tells what they compare.
 * Each part finds its numbers in the answer, and says nothing where the answer does not state them so.
 */

export interface Quote {
  find: RegExp;
  write: (numbers: string[]) => string;
}

const N = "([−+]?\\d[\\d.,]* \\[[^\\]]*\\] %)";
const quote = (find: string, write: Quote["write"]): Quote => ({ find: new RegExp(find), write });

/** The parts of the sentence beside each question whose answer is not quoted from its beginning. */
export const QUOTES: Readonly<Record<string, readonly Quote[]>> = {
  "order-at-all": [
    quote(`positions on both sides ${N} of sentences are exactly right; with none, ${N}`, ([all, none]) => `In a harder test, sentences with clauses, five models of each kind were trained anew: with positions ${all}, without ${none} are right.`),
  ],
  scale: [
    quote(`a shared matrix ${N} of held-out numbers are exactly right.*?; without the factor ([\\d.]+ %) in the (\\d+ of \\d+) seeds that learned`, ([all, some, seeds]) =>
      `Of models trained anew, those with √d get ${all} right; without it only ${seeds} learned anything, and these get ${some} right.`),
  ],
  base: [
    quote(`together are exactly right on ${N}.*trained with a base of 100 in place of 10,000, models get ${N} right \\(equivalent`, ([usual, other]) =>
      `A model that was trained with another base does as well on such short texts: base 100: ${other} right, base 10,000: ${usual}.`),
    quote(`together are exactly right on ${N}.*trained with a base of 100 in place of 10,000, models get ${N} right \\((?:worse|better|undecided)`, ([usual, other]) =>
      `Models trained with a base of 100 get ${other} right, with 10,000 ${usual}.`),
  ],
  "why-sine-and-cosine": [
    quote(`together are exactly right on ${N}`, ([usual]) => `Models trained with sine and cosine get ${usual} right.`),
    quote(`Random vectors,.*?reach ${N} \\(equivalent`, ([random]) => `But random vectors do as well (${random}), though no step of theirs is a rotation.`),
    quote("(none of the properties of the sinusoid beyond that could be shown to matter)", () => "So what is needed is that positions can be told apart; nothing else about sine and cosine could be shown to matter."),
  ],
  "why-not-the-index": [
    quote(`The sinusoid is exactly right on ${N}`, ([usual]) => `The sinusoid: ${usual} right.`),
    quote(`The raw index in every channel reaches ${N}`, ([index]) => `The index itself in every channel: ${index}.`),
    quote(`along a fixed direction ${N}`, ([along]) => `The index along one direction: ${along}.`),
  ],
  "how-far": [
    quote("the sinusoid loses (\\S+ \\[[^\\]]*\\]) nats a character, and (\\S+ \\[[^\\]]*\\]) on windows four times as long", ([near, far]) =>
      `The mean loss a character (in nats: less is better) of added sinusoids goes from ${near} on texts as long as in training to ${far} on texts four times as long.`),
    quote("ALiBi (\\S+ \\[[^\\]]*\\]) and (\\S+ \\[[^\\]]*\\])", ([near, far]) => `Of ALiBi: from ${near} to ${far}.`),
  ],
};

/** The sentence beside a question: every part whose numbers the answer states; empty where it states none. */
export function quoteStudy(study: string, answer: string): string {
  const parts = (QUOTES[study] ?? []).map(({ find, write }) => {
    const found = answer.match(find);
    return found ? write(found.slice(1)) : "";
  });
  return parts.filter(Boolean).join(" ");
}
