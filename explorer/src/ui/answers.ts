/** What the studies measured: it stands in the page for readers without script, and is read from there. */

export interface StudyAnswer {
  name: string;
  answer: string;
  command: string;
}

/** The measured answer of a study; null where the page does not hold it. */
export function readAnswer(study: string, root: Document = document): StudyAnswer | null {
  const section = root.getElementById(`study-${study}`);
  const answer = section?.querySelector("p")?.textContent?.trim();
  const command = section?.querySelector("code")?.textContent?.trim();
  return answer && command ? { name: study, answer, command } : null;
}
