/** Messages that wait for a decision, and turns at every position, straight as rows: hundreds of them in seconds. */
import { v7 as uuidv7 } from "uuid";
import type { Database } from "#ledger/database.ts";
import { type DecidedEvent, type Decision, decideEvent } from "#ledger/decide.ts";
import { type Policy, policyOf, type Position } from "#rules/interrupt.ts";
import { conversationOf, type Place, sql } from "./positions.ts";
import { anAgent } from "./world.ts";

export const aPolicy = (changes: Partial<Policy> = {}): Policy => ({ ...policyOf({}), ...changes });

export async function anActor(place: Place, name: string): Promise<string> {
  const [row] = await sql<{ id: string }>(
    place,
    `insert into actors (id, connector, ext_id) values ($1, 'kubernetes', $2)
     on conflict (connector, ext_id) do update set display = actors.display returning id`,
    [uuidv7(), name],
  );
  return row?.id ?? "";
}

export type Waits = { readonly conversationId: string; readonly eventId: string; readonly seq: number };

/** A message of somebody that met the live run of this conversation, and about which nobody has decided yet. */
export async function anUndecided(
  place: Place,
  conversationId: string,
  changes: { by?: string; text?: string; grants?: string; state?: "undecided" | "pending" } = {},
): Promise<Waits> {
  const [row] = await sql<{ id: string; seq: string }>(
    place,
    `with c as (
       update conversations set head_seq = head_seq + 1, mail_version = mail_version + 1 where id = $2 returning id, head_seq, live_run),
     held as (
       update runs r set hold_seq = c.head_seq, hold_until = pawl_now() + interval '1 minute', version = r.version + 1
       from c where r.id = c.live_run and $6::text = 'undecided')
     insert into message_events (id, conversation_id, seq, kind, ext_id, order_key, actor_id, body, state, grants, received_at,
                                 quiet_until, wait_until)
     select $1::uuid, c.id, c.head_seq, 'message', $1::uuid::text, lpad(c.head_seq::text, 8, '0'), $3, $4, $6, $5, pawl_now(),
            pawl_now() + interval '2 seconds', pawl_now() + interval '30 seconds' from c returning id, seq`,
    [
      uuidv7(),
      conversationId,
      await anActor(place, changes.by ?? "alice"),
      changes.text ?? "and one more thing",
      changes.grants ?? "",
      changes.state ?? "undecided",
    ],
  );
  if (row === undefined) throw new Error(`no conversation ${conversationId}`);
  return { conversationId, eventId: row.id, seq: Number(row.seq) };
}

export const undecidedOf = async (
  place: Place,
  run: { runId: string },
  changes: Parameters<typeof anUndecided>[2] = {},
) => anUndecided(place, await conversationOf(place, run.runId), changes);

export function decideAs(
  db: Database,
  waits: Waits,
  relation: Decision["relation"],
  policy: Partial<Policy> = {},
  source: Decision["source"] = "model",
): Promise<DecidedEvent> {
  return decideEvent(db, { ...waits, relation, source, policy: aPolicy(policy) });
}

export type Cell = {
  readonly position: Position;
  readonly entitled: boolean;
  readonly sameGrants: boolean;
  readonly room: boolean;
  readonly stopping: boolean;
  readonly bound: "no" | "interruptions" | "deadline" | "closed";
};

/** A conversation of its own whose turn stands at the cell, with one undecided message. Alice asked; Bob is another person. */
export function cells(place: Place, agentId: string, actors: { alice: string; bob: string }) {
  return async (cell: Cell): Promise<Waits & { runId: string | null }> => {
    const [conversation, request, run, event] = [uuidv7(), uuidv7(), uuidv7(), uuidv7()];
    const free = cell.position === "free";
    const committed = cell.position === "committed" || cell.position === "replied";
    const status = { window: "queued", waiting: "awaiting_input" }[cell.position as string] ?? "running";
    const leased = status === "running";
    const { bound, room, stopping } = cell;
    const replied = cell.position === "replied";
    const author = cell.entitled ? actors.alice : actors.bob;
    const turn = [run, request, actors.alice, status, leased, committed, replied, stopping, room, bound];
    const values = [conversation, agentId, free, ...turn, event, author, cell.sameGrants ? "" : "more"];
    await sql(
      place,
      `with c as (
         insert into conversations (id, agent_id, connector, ext_key, head_seq, max_count, live_run, created_at)
         values ($1::uuid, $2::uuid, 'kubernetes/demo', $1::uuid::text, 2, 20, case when $3::bool then null else $4::uuid end, pawl_now())),
       q as (
         insert into logical_requests (id, conversation_id, requester, opened_at) values ($5, $1, $6, pawl_now())),
       r as (
         insert into runs (id, root_id, conversation_id, request_id, journal_scope, agent_id, agent_generation, status, live,
                           due_at, lease_owner, lease_until, committed_at, committed_by, reply_at, stop_requested_at,
                           requester, addressed, trigger_count, interruptions, closed_to_interrupts, deadline_at,
                           hold_seq, hold_until, version, queued_at, changed_at)
         select $4, $4, $1, $5, $4, $2, 1, $7::text, true,
                case when $8::bool then null else pawl_now() + interval '1 day' end, case when $8 then 'worker' end,
                case when $8 then pawl_now() + interval '1 day' end,
                case when $9::bool then pawl_now() end, case when $9 then $4::uuid end, case when $10::bool then pawl_now() end,
                case when $11::bool then pawl_now() end, $6, $6, case when $12::bool then 1 else 20 end,
                case when $13::text = 'interruptions' then 3 else 2 end, $13 = 'closed',
                pawl_now() + case when $13 = 'deadline' then interval '-1 second' else interval '1 hour' end,
                2, pawl_now() + interval '1 minute', 1, pawl_now(), pawl_now() where not $3)
       insert into message_events (id, conversation_id, seq, kind, ext_id, order_key, actor_id, state, grants, received_at)
       values ($14::uuid, $1, 2, 'message', $14::uuid::text, '2', $15, 'undecided', $16, pawl_now())`,
      values,
    );
    return { conversationId: conversation, eventId: event, seq: 2, runId: free ? null : run };
  };
}

export { anAgent };
