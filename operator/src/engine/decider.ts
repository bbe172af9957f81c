/**
 * What messages mean that meet a turn at work: a small model is asked, and the ledger decides by its answer. In every
 * worker, beside its runs and in nobody's way. What is not known in time is decided as what is not known; a process that
 * dies over it leaves a message that another one asks about, or that the end of its turn takes along.
 */
import { type DecidedEvent, type Decision, decideEvent } from "#ledger/decide.ts";
import { claimUndecided, readUnderWay, type Undecided } from "#ledger/undecided.ts";
import { policyOf } from "#rules/interrupt.ts";
import { isStopWord } from "#rules/stop-words.ts";
import { readAgentSpec } from "./agent.ts";
import type { EngineDeps } from "./deps.ts";
import { RELATION_MS } from "./judge.ts";

/** Messages that one process asks about at a time: more wait for a moment, or for another worker. */
export const MAX_ASKED = 16;
/** From when on another process asks: the question has its own end, the rest is two statements. */
export const ASK_MS = RELATION_MS + 1_000;

type Answer = Pick<Decision, "relation" | "source">;
type Answered = Undecided & Answer;
type Deps = Pick<EngineDeps, "db" | "judge" | "clock" | "log" | "settings">;

export class Decider {
  readonly #deps: Deps;
  readonly #asking = new Map<string, Promise<void>>();
  /** Known, and not decided yet: an earlier message of the conversation comes first, or the ledger was away. */
  readonly #answered = new Map<string, Answered>();
  #wake = new AbortController();
  #complained = false;
  #deciding: Promise<void> | undefined;
  /** Something became known since the pass began that is under way. */
  #more = false;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** Something may be undecided. */
  wake(): void {
    this.#wake.abort();
  }

  /** Until the signal fires; questions that are on their way then are finished. Never throws. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.look();
      await this.#deps.clock.sleep(this.#deps.settings.pollMs, AbortSignal.any([signal, this.#wake.signal]));
      if (this.#wake.signal.aborted) this.#wake = new AbortController();
    }
    await this.settled();
  }

  /** Asks about what nobody asks about, and decides what is known. Waits for no model. */
  async look(): Promise<void> {
    try {
      await this.#decideKnown();
      const room = MAX_ASKED - this.#asking.size;
      if (room > 0) {
        const except = [...this.#answered.keys()];
        for (const one of await claimUndecided(this.#deps.db, { most: room, askMs: ASK_MS, except })) this.#ask(one);
      }
      this.#complained = false;
    } catch (error) {
      this.#complain(error);
    }
  }

  /** When every question that is on its way has its answer, and that was acted upon where it could be. */
  async settled(): Promise<void> {
    await Promise.all(this.#asking.values());
  }

  #ask(one: Undecided): void {
    const work = this.#answer(one)
      .then((answer) => {
        this.#answered.set(one.eventId, { ...one, ...answer });
        return this.#decideKnown();
      })
      .catch((error: unknown) => this.#complain(error))
      .finally(() => this.#asking.delete(one.eventId));
    this.#asking.set(one.eventId, work);
  }

  async #answer(one: Undecided): Promise<Answer> {
    if (one.kind === "edit" || one.kind === "delete") return { relation: "refines", source: one.kind };
    if (isStopWord(one.text)) return { relation: "cancels", source: "stop_word" };
    const { judge, settings, db } = this.#deps;
    const { agentId, namespace, runId } = one;
    const { fast } = readAgentSpec(one.spec);
    if (judge === undefined || (fast === null && settings.decisionModel === undefined)) {
      return { relation: "none", source: "policy" };
    }
    // Its turn is gone: whatever it means, it is the next one.
    if (runId === null) return { relation: "none", source: "policy" };
    const about = { work: await readUnderWay(db, runId), message: { actor: one.actor, text: one.text } };
    return { relation: await judge.relation(about, { agentId, namespace, fast, runId }), source: "model" };
  }

  /**
   * In the order of the messages; a stop goes first by itself. One pass at a time, however many answers come at once:
   * what comes while one is under way is seen by the next.
   */
  async #decideKnown(): Promise<void> {
    this.#more = true;
    this.#deciding ??= Promise.resolve().then(() => this.#decideAll());
    await this.#deciding;
  }

  async #decideAll(): Promise<void> {
    try {
      while (this.#more) {
        this.#more = false;
        await this.#pass();
      }
    } finally {
      // In the same breath as the last look at `#more`: whoever comes now begins a pass of his own.
      this.#deciding = undefined;
    }
  }

  async #pass(): Promise<void> {
    const waiting = new Set<string>();
    for (const one of [...this.#answered.values()].toSorted((a, b) => a.seq - b.seq)) {
      // Behind one that waits for somebody else's answer every message but a stop waits, too.
      if (one.relation !== "cancels" && waiting.has(one.conversationId)) continue;
      const decided = await this.#decide(one);
      if (decided.kind === "not_yet") waiting.add(one.conversationId);
      else this.#answered.delete(one.eventId);
    }
  }

  async #decide({ eventId, conversationId, relation, source, spec }: Answered): Promise<DecidedEvent> {
    const policy = policyOf(spec);
    const decided = await decideEvent(this.#deps.db, { conversationId, eventId, relation, source, policy });
    if (decided.kind !== "not_yet")
      this.#deps.log.info({ message: eventId, relation, ...decided }, "decided about a message");
    return decided;
  }

  #complain(error: unknown): void {
    if (!this.#complained)
      this.#deps.log.warn({ error: (error as Error).message }, "a message could not be decided about; trying on");
    this.#complained = true;
  }
}
