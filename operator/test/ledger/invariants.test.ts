/** The checks of a healthy ledger can fail: each is shown the row that it is there for. */
import assert from "node:assert/strict";
import type pg from "pg";
import { checkInvariants, INVARIANTS } from "#ledger/invariants.ts";
import { ingest } from "#ledger/mailbox.ts";
import { settleEffect } from "#ledger/effects.ts";
import { conversationOf, end } from "../support/positions.ts";
import { useLedger } from "../support/postgres.ts";
import { anAskingRun, ask, questionOf } from "../support/questions.ts";
import { aCall, aClaimedRun, aMessage, cross, respond } from "../support/world.ts";

describe("the invariants as SQL", () => {
  const ledger = useLedger();
  /** Rows of a healthy ledger, by what they are. */
  const row = {
    ended: "",
    endedConversation: "",
    effect: "",
    live: "",
    liveConversation: "",
    call: "",
    crossed: "",
    pending: "",
    inTurn: "",
    accounted: "",
    asking: "",
    question: "",
  };

  before(async () => {
    const ended = await aClaimedRun(ledger.db);
    const calls = [aCall(), aCall({ idx: 1, class: "reply", kind: "reply", target: null })] as const;
    await respond(ledger.db, ended, calls);
    const { request } = await cross(ledger.db, ended, calls[0]);
    await settleEffect(ledger.db, { ...request, state: "confirmed", receipt: {}, observation: "201" });
    await cross(ledger.db, ended, calls[1], { receipt: { row: true } });
    Object.assign(row, {
      ended: ended.runId,
      endedConversation: await conversationOf(ledger, ended.runId),
      effect: request.effectId,
      crossed: calls[0].id,
      accounted: ended.eventId,
    });
    await end(ledger.db, ended);
    const live = await aClaimedRun(ledger.db);
    const call = aCall({ class: "pure", kind: "tool.query", target: null });
    await respond(ledger.db, live, [call]);
    const pending = await ingest(ledger.db, aMessage(live.agent.id, { conversationKey: live.message.conversationKey }));
    const asking = await anAskingRun(ledger.db);
    await ask(ledger.db, asking);
    const { id: question } = await questionOf(ledger.db, asking.runId);
    Object.assign(row, { asking: asking.runId, question });
    Object.assign(row, {
      live: live.runId,
      liveConversation: await conversationOf(ledger, live.runId),
      call: call.id,
      inTurn: live.eventId,
      pending: (pending as { eventId: string }).eventId,
    });
  });

  /** In a transaction that is rolled back: constraints out of the way, then the rows as no statement leaves them. */
  async function found(statements: readonly string[]): Promise<Record<string, string[]>> {
    const client: pg.PoolClient = await ledger.db.pool.connect();
    try {
      await client.query("begin; set local session_replication_role = replica; set constraints all immediate");
      for (const text of statements) await client.query(text);
      const offenders: Record<string, string[]> = {};
      for (const { name, statement } of INVARIANTS) {
        const { rows } = await client.query<{ offender: string }>(statement.compiled);
        if (rows.length > 0) offenders[name] = rows.map(({ offender }) => offender);
      }
      return offenders;
    } finally {
      await client.query("rollback");
      client.release();
    }
  }

  const dropChecks = (table: string) => `
    do $$ declare c record; begin
      for c in select conname from pg_constraint where conrelid = '${table}'::regclass and contype in ('c', 'u') loop
        execute format('alter table ${table} drop constraint %I', c.conname);
      end loop; end $$`;
  /** A second row like this one, but for these columns. */
  const copyOf = (table: string, id: string, changes: string) =>
    `insert into ${table} select (jsonb_populate_record(t, '${changes}')).* from ${table} t where id = '${id}'`;
  const NEW = "00000000-0000-7000-8000-0000000000ff";

  /** A result from outside, of which its call knows nothing. */
  const evidence = (call: string, audience: string) =>
    `insert into tool_source_evidence (id, call_id, run_id, agent_id, conversation_id, source, audience, created_at)
     select '${NEW}', '${call}', id, agent_id, conversation_id, 'host.test', '${audience}', pawl_now() from runs where id = '${row.ended}'`;
  const anApproval = (state: string) => `
    insert into approvals (id, call_id, run_id, root_id, conversation_id, hash, args_hash, tool, requester_may_approve,
                           requested_at, expires_at, state, decision, decided_by, decided_at)
    values ('${NEW}', '${row.call}', '${row.live}', '${row.live}', '${row.liveConversation}', 'h', 'h', 'x', false,
            pawl_now(), pawl_now() + interval '1 hour', '${state}', 'd', 'bob', pawl_now())`;

  const inheriting = (columns: string) => `update runs set ${columns} where id = '${row.live}'`;

  /** invariant, what breaks it, and which row is named */
  const broken: Record<string, () => [readonly string[], string]> = {
    i1_one_live_run: () => [
      ["drop index runs_one_live", copyOf("runs", row.live, `{"id": "${NEW}", "root_id": "${NEW}"}`)],
      row.liveConversation,
    ],
    i1_conversation_knows_its_live_run: () => [
      [`update conversations set live_run = null where id = '${row.liveConversation}'`],
      row.liveConversation,
    ],
    i2_pending_has_a_live_run_before_it: () => [
      [`update message_events set state = 'pending', run_id = null where id = '${row.accounted}'`],
      row.accounted,
    ],
    i2_one_turn_is_one_authors_rights: () => [
      [`update message_events set grants = 'others' where id = '${row.inTurn}'`],
      row.inTurn,
    ],
    i2_in_turn_means_live_and_accounted_means_ended: () => [
      [`update message_events set state = 'in_turn' where id = '${row.accounted}'`],
      row.accounted,
    ],
    i2_superseded_accounts_for_nothing: () => [
      [dropChecks("runs"), `update runs set superseded_by = '${row.live}' where id = '${row.ended}'`],
      row.accounted,
    ],
    i3_committed_when_an_effect_crossed: () => [
      [dropChecks("runs"), `update runs set committed_at = null, committed_by = null where id = '${row.ended}'`],
      row.ended,
    ],
    i3_nothing_crosses_after_the_reply: () => [
      [`update commitment_effects set dispatched_at = dispatched_at + interval '1 hour' where id = '${row.effect}'`],
      row.effect,
    ],
    i3_cause_is_the_reply_once_it_crossed: () => [
      [`update runs set committed_by = '${row.effect}' where id = '${row.ended}'`],
      row.ended,
    ],
    i5_crossing_calls_have_their_effect: () => [
      [
        `update tool_calls set class = 'effectful', target = 't', outcome = 'real', result = '201', closed_at = pawl_now()
         where id = '${row.call}'`,
      ],
      row.call,
    ],
    i5_a_compensation_undoes_what_took_place: () => [
      [`update commitment_effects set kind = 'compensation' where id = '${row.effect}'`],
      row.effect,
    ],
    i5_gated_calls_ran_only_when_approved: () => [
      [`update tool_calls set gate = 'open' where id = '${row.crossed}'`],
      row.crossed,
    ],
    i5_gates_are_as_decided: () => [[`update tool_calls set gate = 'approved' where id = '${row.call}'`], row.call],
    i5_a_decided_approval_has_its_decision: () => [[anApproval("approved")], NEW],
    i6_a_later_step_finds_no_open_call: () => [
      [
        `insert into run_steps select (jsonb_populate_record(s, '{"ordinal": 2}')).* from run_steps s where run_id = '${row.live}'`,
      ],
      row.call,
    ],
    i6_an_ended_run_has_no_open_call: () => [
      [`update tool_calls set run_id = '${row.ended}', idx = 9 where id = '${row.call}'`],
      row.call,
    ],
    inherits_ended_runs_and_in_no_circle: () => [
      [inheriting(`inherits = array['${row.live}'::uuid], inherits_run = '${row.live}', inherits_through = 1`)],
      row.live,
    ],
    inherits_in_one_conversation_request_and_journal: () => [
      [inheriting(`inherits = array['${row.ended}'::uuid], inherits_run = '${row.ended}', inherits_through = 1`)],
      row.live,
    ],
    inherits_ends_with_the_run_before: () => [
      [dropChecks("runs"), `update runs set superseded_by = '${row.live}' where id = '${row.ended}'`],
      row.ended,
    ],
    inherits_ordinals_go_on: () => [
      [
        inheriting(`inherits = array['${row.ended}'::uuid], inherits_run = '${row.ended}', inherits_through = 0`),
        `update run_steps set ordinal = 10 where run_id = '${row.ended}'`,
      ],
      row.live,
    ],
    i7_lease_or_due: () => [
      [dropChecks("runs"), `update runs set due_at = pawl_now() where id = '${row.live}'`],
      row.live,
    ],
    i8_one_reply: () => [
      [
        "drop index effects_one_reply",
        "drop index effects_one_of_call",
        dropChecks("commitment_effects"),
        `insert into commitment_effects select (jsonb_populate_record(e, '{"id": "${NEW}"}')).*
         from commitment_effects e where kind = 'reply'`,
      ],
      "request",
    ],
    i7_a_run_that_waits_for_an_answer_has_asked: () => [
      [`update questions set state = 'withdrawn', closed_at = pawl_now() where id = '${row.question}'`],
      row.asking,
    ],
    i8_a_question_is_said_once: () => [[`delete from emissions where run_id = '${row.asking}'`], row.question],
    i8_an_answer_is_the_result_of_its_question: () => [
      [
        `update questions set state = 'answered', closed_at = pawl_now(), answered_by = '${NEW}', answer_event = '${NEW}'
         where id = '${row.question}'`,
      ],
      row.question,
    ],
    i10_counters_equal_their_rows: () => [
      [`update runs set model_calls = model_calls + 1 where id = '${row.live}'`],
      row.live,
    ],
    i10_cost_is_the_sum_of_its_steps_or_unknown: () => [
      [`update run_steps set cost_micros = null where run_id = '${row.live}'`],
      row.live,
    ],
    i10_a_live_run_counts_its_messages: () => [
      [`update runs set trigger_count = 2 where id = '${row.live}'`],
      row.live,
    ],
    i10_without_a_lease_nothing_is_reserved: () => [
      [`update runs set reserved_calls = 1 where id = '${row.ended}'`],
      row.ended,
    ],
    provenance_what_is_built_on_exists: () => [
      [`update commitment_effects set built_on = array['${NEW}'::uuid] where id = '${row.effect}'`],
      row.effect,
    ],
    provenance_a_result_names_its_own_evidence: () => [[evidence(row.crossed, "public")], NEW],
    provenance_a_reply_shows_only_what_may_be_shown: () => [
      [
        evidence(row.crossed, "conversation"),
        `update tool_source_evidence set conversation_id = '${row.liveConversation}'`,
        `update commitment_effects set built_on = array['${NEW}'::uuid] where kind = 'reply'`,
      ],
      "request",
    ],
    memory_is_written_with_its_result: () => [
      [
        `insert into memories (id, agent_id, conversation_id, text, audience, visibility, evidence, run_id, call_id, actors, created_at)
         select '${NEW}', agent_id, conversation_id, 'x', 'agent', 'everywhere', '{}', id, '${row.call}', '{}', pawl_now()
         from runs where id = '${row.live}'`,
      ],
      NEW,
    ],
  };

  it("find nothing in a healthy ledger", async () => {
    assert.deepEqual(await checkInvariants(ledger.db), []);
    assert.deepEqual(await found([]), {});
  });

  it("are each shown a row here that breaks it", () => {
    assert.deepEqual(
      Object.keys(broken),
      INVARIANTS.map(({ name }) => name),
    );
  });

  for (const [name, make] of Object.entries(broken)) {
    it(`name the row that breaks ${name}`, async () => {
      const [statements, offender] = make();
      const offenders = (await found(statements))[name];
      assert.equal(offenders?.length, 1, name);
      if (offender !== "request") assert.equal(offenders?.[0], offender);
    });
  }

  for (const column of ["tool_calls", "input_tokens", "output_tokens", "next_ordinal"]) {
    it(`name a run whose ${column} are not those of its rows`, async () => {
      const offenders = await found([`update runs set ${column} = ${column} + 1 where id = '${row.live}'`]);
      assert.deepEqual(offenders, { i10_counters_equal_their_rows: [row.live] });
    });
  }

  it("name a call that left with other arguments than those that were approved", async () => {
    const offenders = await found([
      anApproval("approved").replace(row.call, row.crossed),
      `insert into approval_decisions (decision, approval_id, actor, asked, done, at) values ('d', '${NEW}', 'bob', 'approve', 'approved', pawl_now())`,
      `update tool_calls set gate = 'approved' where id = '${row.crossed}'`,
    ]);
    assert.deepEqual(offenders, { i5_gated_calls_ran_only_when_approved: [row.crossed] });
  });

  it("are checked by the command that people run, too", async () => {
    const client = await ledger.db.pool.connect();
    try {
      await client.query(`update conversations set live_run = null where id = '${row.liveConversation}'`);
      assert.deepEqual(await checkInvariants(ledger.db), [
        { invariant: "i1_conversation_knows_its_live_run", offender: row.liveConversation },
      ]);
    } finally {
      await client.query(`update conversations set live_run = '${row.live}' where id = '${row.liveConversation}'`);
      client.release();
    }
  });
});
