/** The answers to the questions: they stand in the page for readers without script, and are read from there. */

export interface Answer {
  question: string;
  /** The answer in one sentence. */
  short: string;
  /** Where it stands whole, with its evidence; empty where this page is not part of the site. */
  address: string;
}

/** The answer to a question; null where the page does not hold it. */
export function readAnswer(name: string, root: Document = document): Answer | null {
  const section = root.getElementById(`answer-${name}`);
  const read = (selector: string) => section?.querySelector(selector)?.textContent?.trim() ?? "";
  const answer = { question: read("h3"), short: read(".short"), address: section?.querySelector("a")?.getAttribute("href") ?? "" };
  return answer.short ? answer : null;
}
