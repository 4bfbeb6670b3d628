/** What the studies measured: it stands in the page for readers without script, and is read from there. */

export interface StudyAnswer {
  name: string;
  question: string;
  /** The answer in one sentence; empty where the page holds none. */
  short: string;
  answer: string;
  command: string;
}

/** The measured answer of a study; null where the page does not hold it. */
export function readAnswer(study: string, root: Document = document): StudyAnswer | null {
  const section = root.getElementById(`study-${study}`);
  const read = (selector: string) => section?.querySelector(selector)?.textContent?.trim() ?? "";
  const [question, short, answer, command] = [read("h3"), read(".short"), read(".answer"), read("code")] as const;
  return answer && command ? { name: study, question, short, answer, command } : null;
}

/** The first statement of an answer, or the one that begins so: what comes before any aside, comparison or full stop. */
export function cutFirst(answer: string, beginning = ""): string {
  const from = Math.max(0, answer.indexOf(beginning));
  const statement = answer.slice(from).split(/;|\.(?=\s|$)| \(/)[0]!;
  return statement.charAt(0).toUpperCase() + statement.slice(1);
}
