/** Who holds a run hears that something was said to it. A hint only: whoever is not told looks by himself. */
export class Signals {
  readonly #holders = new Map<string, Set<() => void>>();

  /** Calls `look` when something was said to this run, until the function that comes back is called. */
  on(runId: string, look: () => void): () => void {
    const looks = this.#holders.get(runId) ?? new Set();
    this.#holders.set(runId, looks.add(look));
    return () => {
      looks.delete(look);
      if (looks.size === 0) this.#holders.delete(runId);
    };
  }

  /** Null: nobody knows to which run; some may have been missed. */
  tell(runId: string | null): void {
    const told = runId === null ? [...this.#holders.values()] : [this.#holders.get(runId) ?? []];
    for (const looks of told) for (const look of looks) look();
  }
}
