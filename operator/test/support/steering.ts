/** Messages that wait for a decision, and turns at every position, straight as rows: hundreds of them in seconds. */
import { v7 as uuidv7 } from "uuid";
import type { Runner } from "#ledger/database.ts";
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
  db: Runner,
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

export type AtCell = Waits & { readonly runId: string | null };

/**
 * Conversations of their own whose turns stand at these cells, each with one undecided message; all in one statement.
 * Alice asked; Bob is another person.
 */
export async function atCells(
  place: Place,
  agentId: string,
  actors: { alice: string; bob: string },
  cells: readonly Cell[],
): Promise<AtCell[]> {
  const rows = cells.map((cell) => ({
    ...cell,
    conversation: uuidv7(),
    request: uuidv7(),
    run: cell.position === "free" ? null : uuidv7(),
    event: uuidv7(),
    author: cell.entitled ? actors.alice : actors.bob,
    replied: cell.position === "replied",
    committed: ["committed", "waiting_committed", "replied"].includes(cell.position),
    status:
      { window: "queued", waiting: "awaiting_input", waiting_committed: "awaiting_input" }[cell.position as string] ??
      "running",
    grants: cell.sameGrants ? "" : "more",
  }));
  await sql(
    place,
    `with x as materialized (
       select * from jsonb_to_recordset($1) as x (conversation uuid, request uuid, run uuid, event uuid, author uuid, replied bool,
         committed bool, status text, grants text, stopping bool, room bool, bound text)),
     c as (
       insert into conversations (id, agent_id, connector, ext_key, head_seq, max_count, live_run, created_at)
       select conversation, $2::uuid, 'kubernetes/demo', conversation::text, 2, 20, run, pawl_now() from x),
     q as (
       insert into logical_requests (id, conversation_id, requester, opened_at)
       select request, conversation, $3::uuid, pawl_now() from x),
     r as (
       insert into runs (id, root_id, conversation_id, request_id, journal_scope, agent_id, agent_generation, status, live,
                         due_at, lease_owner, lease_until, committed_at, committed_by, reply_at, stop_requested_at,
                         requester, addressed, trigger_count, interruptions, closed_to_interrupts, deadline_at,
                         hold_seq, hold_until, version, queued_at, changed_at)
       select run, run, conversation, request, run, $2, 1, status, true,
              case when status <> 'running' then pawl_now() + interval '1 day' end, case when status = 'running' then 'worker' end,
              case when status = 'running' then pawl_now() + interval '1 day' end,
              case when committed then pawl_now() end, case when committed then run end, case when replied then pawl_now() end,
              case when stopping then pawl_now() end, $3, $3, case when room then 1 else 20 end,
              case when bound = 'interruptions' then 3 else 2 end, bound = 'closed',
              pawl_now() + case when bound = 'deadline' then interval '-1 second' else interval '1 hour' end,
              2, pawl_now() + interval '1 minute', 1, pawl_now(), pawl_now() from x where run is not null)
     insert into message_events (id, conversation_id, seq, kind, ext_id, order_key, actor_id, state, grants, received_at)
     select event, conversation, 2, 'message', event::text, '2', author, 'undecided', grants, pawl_now() from x`,
    [JSON.stringify(rows), agentId, actors.alice],
  );
  return rows.map(({ conversation, event, run }) => ({
    conversationId: conversation,
    eventId: event,
    seq: 2,
    runId: run,
  }));
}

export { anAgent };
