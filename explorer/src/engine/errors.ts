/** Thrown for a request that cannot be answered: its message is a sentence for the reader. */
export class EngineError extends Error {}
