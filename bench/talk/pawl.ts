/**
 * Pawl as it is: every message through the mailbox's own statement, two real workers on a real ledger, woken by its
 * notifications. The model is a port that thinks for a while and lets itself be stopped.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { ModelRequest } from "../../operator/src/engine/ports.ts";
import { Database } from "../../operator/src/ledger/database.ts";
import { ingest } from "../../operator/src/ledger/mailbox.ts";
import { migrate } from "../../operator/src/ledger/migrate.ts";
import { says } from "../../operator/test/support/engine.ts";
import { aMessage } from "../../operator/test/support/world.ts";
import { type Crew, startCrew, talkAgent } from "./crew.ts";
import { CONVERSATIONS, deliver, spokenOf, THINK_MS } from "./schedule.ts";
import type { Mode, Outcome, TalkSystem } from "./system.ts";
import { policy } from "./policy.ts";

const WORKERS = 2;

type Row = {
  readonly id: string;
  readonly state: string;
  readonly run_status: string | null;
  /** Answers to it: of turns that it was part of, and whose model had read it. */
  readonly answers: number;
  readonly wait_ms: number | null;
};

/** By what the ledger keeps of every message; that the model had really read it, the model itself says. */
const ROWS = `
  select e.ext_id as id, e.state, r.status as run_status,
         (select count(*)::int from run_triggers t join runs a on a.id = t.run_id
          where t.event_id = e.id and t.delivered_ordinal is not null and a.reply_at is not null) as answers,
         extract(epoch from (select min(a.reply_at) from run_triggers t join runs a on a.id = t.run_id
          where t.event_id = e.id and t.delivered_ordinal is not null and a.reply_at is not null) - e.received_at)::float8 * 1000 as wait_ms
  from message_events e left join runs r on r.id = e.run_id where e.kind = 'message'`;

export function pawl(mode: Mode): TalkSystem {
  let db: Database;
  let crew: Crew;
  let agent: { id: string; generation: number };
  const read = new Set<string>();
  let asked = 0;

  async function complete({ messages }: ModelRequest, signal: AbortSignal) {
    asked += 1;
    for (const { content } of messages) for (const id of spokenOf(content ?? "")) read.add(id);
    const stopped = await sleep(THINK_MS, false, { signal }).catch(() => true);
    if (stopped)
      return { kind: "failed", class: "cancelled", reason: "Cancelled", message: "it was cancelled" } as const;
    return says("All of it is looked into.");
  }

  async function quietAgain(limitMs: number): Promise<void> {
    const until = performance.now() + limitMs;
    for (;;) {
      const { rows } = await db.pool.query("select from runs where live limit 1");
      if (rows.length === 0) return;
      if (performance.now() > until) throw new Error(`turns were still alive ${limitMs} ms after the last message`);
      await sleep(50);
    }
  }

  return {
    async open(url) {
      await migrate({ url });
      db = new Database({ url });
      // Nobody waits for a place: that is another bound than the one that is measured.
      agent = await talkAgent(db, [], { enqueue: "Enqueue", amend: "Amend", preempt: "Preempt" }[mode], CONVERSATIONS);
      crew = startCrew(url, { workers: WORKERS, concurrency: CONVERSATIONS, tools: [], complete });
    },

    async talk({ said, limitMs }): Promise<Outcome> {
      await deliver(said, async (one) => {
        await ingest(
          db,
          aMessage(agent.id, {
            generation: agent.generation,
            conversationKey: one.conversation,
            actor: { connector: "bench", extId: one.actor },
            extId: one.id,
            text: one.text,
            stops: one.stops,
            askable: mode !== "enqueue",
            policy: policy(mode),
          }),
        );
      });
      await quietAgain(limitMs);
      const { rows } = await db.pool.query<Row>(ROWS);
      const { rows: turns } = await db.pool.query<{ n: number }>(
        "select count(*)::int as n from runs where reply_at is not null",
      );
      const known = new Map(rows.map((row) => [row.id, row]));
      const lost = said.filter(({ id, stops }) => {
        const row = known.get(id);
        if (row === undefined) return true;
        if (["applied", "withdrawn"].includes(row.state)) return false;
        // A stop that ended a turn in the middle ended what that turn had read, too.
        if (row.state === "accounted" && row.run_status === "cancelled") return false;
        return row.state !== "accounted" || row.answers === 0 || (!stops && !read.has(id));
      });
      return {
        turns: turns[0]?.n ?? 0,
        asked,
        lost: lost.map(({ id }) => id),
        doubled: rows.filter(({ answers }) => answers > 1).map(({ id }) => id),
        stopped: rows.filter(({ answers }) => answers === 0).length,
        waits: rows.flatMap(({ wait_ms }) => (wait_ms === null ? [] : [wait_ms])),
      };
    },

    async close() {
      await crew.stop();
      await db.close();
    },
  };
}
