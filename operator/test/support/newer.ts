/** Newer input as rows: what `decide_event` makes of a message that joins a turn, or restarts it. */
import type pg from "pg";
import { v7 as uuidv7 } from "uuid";
import type { Database } from "#ledger/database.ts";

type Newer = { readonly text: string; readonly actor?: string };
type Client = pg.PoolClient;

async function inOneTransaction<T>(db: Database, body: (client: Client) => Promise<T>): Promise<T> {
  const client: Client = await db.pool.connect();
  try {
    await client.query("begin");
    const done = await body(client);
    await client.query("commit");
    return done;
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
}

/** The message as a row of this run, under the conversation's lock. */
async function aMessageOf(client: Client, runId: string, into: string, { text, actor = "alice" }: Newer) {
  const locked = await client.query<{ id: string; seq: number }>(
    `update conversations c set head_seq = c.head_seq + 1, mail_version = c.mail_version + 1
     from runs r where r.id = $1 and c.id = r.conversation_id returning c.id, c.head_seq as seq`,
    [runId],
  );
  const { id: conversation, seq } = locked.rows[0] ?? { id: "", seq: 0 };
  const who = await client.query<{ id: string }>(
    `insert into actors (id, connector, ext_id) values ($1, 'kubernetes', $2)
     on conflict (connector, ext_id) do update set display = actors.display returning id`,
    [uuidv7(), actor],
  );
  const eventId = uuidv7();
  await client.query(
    `insert into message_events (id, conversation_id, seq, kind, ext_id, order_key, actor_id, body, state, run_id, received_at)
     values ($1, $2, $3, 'message', $4, $5, $6, $7, 'in_turn', $8, pawl_now())`,
    [eventId, conversation, seq, `newer-${eventId}`, `9${String(seq).padStart(8, "0")}`, who.rows[0]?.id, text, into],
  );
  return { eventId, seq };
}

/** A message that the turn is to take in at its next decision point. */
export function amend(db: Database, runId: string, newer: Newer): Promise<{ eventId: string; seq: number }> {
  return inOneTransaction(db, async (client) => {
    const message = await aMessageOf(client, runId, runId, newer);
    await client.query("insert into run_triggers (run_id, event_id, role) values ($1, $2, 'amend')", [
      runId,
      message.eventId,
    ]);
    await client.query(
      `update runs set amend_seq = $2, trigger_count = trigger_count + 1, due_at = case when due_at is not null then pawl_now() end, version = version + 1,
              changed_at = pawl_now() where id = $1`,
      [runId, message.seq],
    );
    return message;
  });
}

/** A message that restarts the turn: its successor waits to be claimed. */
export function supersede(db: Database, runId: string, newer: Newer): Promise<{ runId: string; eventId: string }> {
  const next = uuidv7();
  return inOneTransaction(db, async (client) => {
    await client.query("set constraints all deferred");
    await client.query("select from runs where id = $1 for no key update", [runId]);
    await client.query(
      `update runs set status = 'cancelled', live = false, reason = 'Superseded', lease_owner = null, lease_until = null,
              leased_at = null, due_at = null, ended_at = pawl_now(), version = version + 1, changed_at = pawl_now(),
              charged_calls = charged_calls + reserved_calls, model_calls = model_calls + reserved_calls,
              cost_micros = case when reserved_calls = 0 then cost_micros end, reserved_calls = 0 where id = $1`,
      [runId],
    );
    await client.query(
      `insert into runs select (jsonb_populate_record(r, jsonb_build_object('id', $2::uuid, 'root_id', $2::uuid, 'status', 'queued',
              'live', true, 'reason', null, 'due_at', pawl_now(), 'ended_at', null, 'started_at', null, 'lease_token', 0,
              'last_nonce', null, 'interruptions', r.interruptions + 1, 'inherits', r.inherits || r.id, 'inherits_run', r.id,
              'inherits_through', r.next_ordinal - 1, 'version', r.version + 1, 'queued_at', pawl_now()))).*
       from runs r where r.id = $1`,
      [runId, next],
    );
    await client.query("update runs set superseded_by = $2 where id = $1", [runId, next]);
    await client.query("update message_events set run_id = $2 where run_id = $1 and state = 'in_turn'", [runId, next]);
    await client.query(
      `insert into run_triggers (run_id, event_id, role, delivered_ordinal)
       select $2, event_id, 'inherited', delivered_ordinal from run_triggers where run_id = $1`,
      [runId, next],
    );
    const { eventId, seq } = await aMessageOf(client, runId, next, newer);
    await client.query("insert into run_triggers (run_id, event_id, role) values ($1, $2, 'trigger')", [next, eventId]);
    await client.query(
      "update runs set amend_seq = greatest(amend_seq, $2), trigger_count = trigger_count + 1 where id = $1",
      [next, seq],
    );
    await client.query(
      `update tool_calls set outcome = case when class = 'reply' then 'withheld' else 'cancelled' end,
              result = 'not run: newer input restarted this turn', closed_at = pawl_now()
       where run_id = $1 and outcome is null and class <> 'pure'`,
      [runId],
    );
    await client.query(
      "update conversations c set live_run = $2 from runs r where r.id = $1 and c.id = r.conversation_id",
      [runId, next],
    );
    return { runId: next, eventId };
  });
}
