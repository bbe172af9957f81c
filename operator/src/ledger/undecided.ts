/** Messages about which nobody has decided yet: who asks a model what they mean, and what that has to be asked with. */
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

const claimUndecidedStatement = statement({
  name: "claim_undecided",
  guarded: true,
  params: { most: "int4", ask_ms: "int4", except: "uuid[]" },
  columns: {
    verdict: "text",
    event_id: "uuid",
    conversation_id: "uuid",
    seq: "int8",
    kind: "text",
    body: "text?",
    actor: "text",
    run_id: "uuid?",
    agent_id: "uuid",
    namespace: "text",
    spec: "jsonb",
  },
  // Only who asks is written: nobody decides on it, and a message that was decided meanwhile is not found any more. A
  // claim whose reply was lost is one whose asker died: its time runs out.
  text: `
    with locked as (
      select e.id, e.conversation_id, e.seq, e.kind, e.body, e.actor_id from message_events e
      where e.state = 'undecided' and (e.asked_until is null or e.asked_until <= pawl_now()) and e.id <> all (:except)
      order by e.received_at, e.seq limit :most for no key update skip locked),
    verdict as (select *, 'claimed' as verdict from locked),
    claimed as (
      update message_events e set asked_until = pawl_now() + :ask_ms * interval '1 ms' from verdict v where e.id = v.id)
    select v.verdict, v.id as event_id, v.conversation_id, v.seq, v.kind, v.body, coalesce(w.display, w.ext_id) as actor, c.live_run as run_id,
           a.id as agent_id, a.namespace, g.spec
    from verdict v join actors w on w.id = v.actor_id join conversations c on c.id = v.conversation_id
    join agents a on a.id = c.agent_id join agent_generations g on g.agent_id = a.id and g.generation = a.generation
    order by v.seq`,
});

const readUnderWayStatement = statement({
  name: "read_under_way",
  params: { run: "uuid", most: "int4" },
  columns: { actor: "text", body: "text?" },
  text: `
    select actor, body from (
      select coalesce(w.display, w.ext_id) as actor, coalesce(e.shown, e.body) as body, e.order_key, e.seq
      from message_events e join actors w on w.id = e.actor_id
      where e.run_id = :run and e.state = 'in_turn' order by e.seq desc limit :most) newest
    order by order_key, seq`,
});

/** Of what a turn is about, the newest messages are enough. */
const MAX_UNDER_WAY = 10;

export type Undecided = {
  readonly eventId: string;
  readonly conversationId: string;
  readonly seq: number;
  /** edit, delete: of a message of the turn; what that means is known. */
  readonly kind: string;
  readonly text: string;
  readonly actor: string;
  /** Null: its turn is gone. */
  readonly runId: string | null;
  readonly agentId: string;
  readonly namespace: string;
  /** Of the agent as it is now. */
  readonly spec: unknown;
};

/**
 * Messages that nobody is asking about, the oldest first; for `askMs` they are this process's to ask about, then somebody
 * else's. `except`: those that it knows the answer of.
 */
export async function claimUndecided(
  db: Runner,
  claim: { most: number; askMs: number; except: readonly string[] },
): Promise<Undecided[]> {
  const { most, except } = claim;
  return (await db.rows(claimUndecidedStatement, { most, ask_ms: claim.askMs, except })).map((row) => ({
    eventId: row.event_id,
    conversationId: row.conversation_id,
    seq: row.seq,
    kind: row.kind,
    text: row.body ?? "",
    actor: row.actor,
    runId: row.run_id,
    agentId: row.agent_id,
    namespace: row.namespace,
    spec: row.spec,
  }));
}

/** What the people of this turn have said, oldest first. */
export async function readUnderWay(db: Runner, runId: string): Promise<{ actor: string; text: string }[]> {
  const rows = await db.rows(readUnderWayStatement, { run: runId, most: MAX_UNDER_WAY });
  return rows.map(({ actor, body }) => ({ actor, text: body ?? "" }));
}
