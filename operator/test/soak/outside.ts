/**
 * The world that the soak's tools write to, in memory: what it really did, by effect. Its answers get lost, it refuses,
 * and the worker that asks it may fall before or after it did what it was asked for.
 */
import type { Tool, ToolContext, ToolOutcome } from "#engine/ports.ts";
import { done, lost } from "../support/engine.ts";
import type { Mortal } from "./mortal.ts";

export const FATES = ["ok", "answer lost", "request lost", "refused", "dies before", "dies after"] as const;
export type Fate = (typeof FATES)[number];

export class Outside {
  /** How often each effect was really applied. */
  readonly applied = new Map<string, number>();
  readonly sends = new Map<string, number>();
  /** Of the next sends, in order; then all goes well. */
  fates: Fate[] = [];

  /** `keyed`: it does the same thing under the same id once, as a receiver that honours keys. */
  take(effectId: string, keyed: boolean): void {
    this.sends.set(effectId, (this.sends.get(effectId) ?? 0) + 1);
    const before = this.applied.get(effectId) ?? 0;
    if (before === 0 || !keyed) this.applied.set(effectId, before + 1);
  }

  async answer(context: ToolContext, keyed: boolean, worker: Mortal): Promise<ToolOutcome> {
    const { effectId } = context;
    if (effectId === undefined) throw new Error("a write came without its effect's id");
    switch (this.fates.shift() ?? "ok") {
      case "refused":
        return { kind: "failed", observation: "HTTP 422" };
      case "request lost":
        return lost();
      case "dies before":
        worker.die();
        return lost();
      case "dies after":
        this.take(effectId, keyed);
        worker.die();
        return done("created");
      case "answer lost":
        this.take(effectId, keyed);
        return lost();
      case "ok":
        this.take(effectId, keyed);
        return done("created");
    }
  }
}

/** Writes to the target `to`. */
export function writing(name: string, keyed: boolean, outside: Outside, worker: Mortal): Tool {
  return {
    name,
    description: "Writes.",
    parameters: { type: "object", properties: { to: { type: "string" } } },
    quick: false,
    timeLimitMs: 200,
    parse: (args) => ({ ok: true, value: args as Record<string, unknown> }),
    effect: () => "tool.effect",
    target: (args) => `${name}/${String(args["to"])}`,
    execute: (_args, context) => outside.answer(context, keyed, worker),
  };
}
