/** What is compared after every operation: every turn and every message, as the ledger has them and as the model does. */
import type { Database } from "#ledger/database.ts";
import type * as model from "../support/mailbox-model.ts";
import { sql } from "../support/positions.ts";

type FoundTurn = Pick<
  model.Turn,
  "status" | "committed" | "replied" | "stopping" | "triggers" | "amend" | "hold" | "interruptions" | "closed"
>;
export type Shown = readonly {
  readonly turns: readonly (FoundTurn & { supersededBy: number | null })[];
  readonly messages: readonly { name: string; state: string; seq: number; turn: number | null }[];
}[];

/** The model's side. */
export const shown = (conversations: readonly model.Conversation[]): Shown =>
  conversations.map(({ turns, messages }) => ({
    turns: turns.map(
      ({ status, committed, replied, stopping, triggers, amend, hold, interruptions, closed, supersededBy }) => ({
        status,
        committed,
        replied,
        stopping,
        triggers,
        amend,
        hold,
        interruptions,
        closed,
        supersededBy,
      }),
    ),
    messages: messages.map(({ name, state, seq, turn }) => ({ name, state, seq, turn })),
  }));

/**
 * The ledger's side. `ids`: of the runs of each conversation, in the order of their beginning: what one turn follows upon is
 * over before it is made.
 */
export async function found(
  db: Database,
  agentId: string,
  conversations: number,
): Promise<{ ids: string[][]; shown: Shown }> {
  const runs = await sql<
    FoundTurn & { id: string; conversation: number; superseded_by: string | null; request_id: string }
  >(
    db,
    `select r.id, substr(c.ext_key, 2)::int as conversation, r.status, r.committed_at is not null as committed, r.reply_at is not null as replied,
              r.stop_requested_at is not null as stopping, r.trigger_count as triggers, r.amend_seq as amend, r.hold_seq as hold,
              r.interruptions, r.closed_to_interrupts as closed, r.superseded_by, r.request_id
       from runs r join conversations c on c.id = r.conversation_id where c.agent_id = $1 order by r.queued_at, r.version`,
    [agentId],
  );
  const ids = Array.from({ length: conversations }, (_, index) =>
    runs.filter(({ conversation }) => conversation === index).map(({ id }) => id),
  );
  const messages = await sql<{
    name: string;
    state: string;
    conversation: number;
    run_id: string | null;
    seq: number;
  }>(
    db,
    `select e.ext_id as name, e.state, substr(c.ext_key, 2)::int as conversation, e.run_id, e.seq
       from message_events e join conversations c on c.id = e.conversation_id where e.kind = 'message' and c.agent_id = $1 order by e.seq`,
    [agentId],
  );
  const shown = ids.map((own, index) => ({
    turns: runs
      .filter(({ conversation }) => conversation === index)
      .map(({ id: _id, conversation: _conversation, superseded_by, request_id: _request, ...turn }) => ({
        ...turn,
        supersededBy: superseded_by === null ? null : own.indexOf(superseded_by),
      })),
    messages: messages
      .filter(({ conversation }) => conversation === index)
      .map(({ name, state, run_id, seq }) => ({
        name,
        state,
        seq,
        turn: run_id === null ? null : own.indexOf(run_id),
      })),
  }));
  return { ids, shown };
}
