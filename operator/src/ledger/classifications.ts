/** Typed questions to a small model, as they were asked and answered. Append only; nothing decides on these rows. */
import type { Runner } from "./database.ts";
import { statement } from "./statement.ts";

const recordClassificationStatement = statement({
  name: "record_classification",
  params: {
    id: "uuid",
    run: "uuid?",
    agent: "uuid",
    question: "text",
    input_hash: "text",
    input: "text",
    answer: "jsonb?",
    reason: "text",
    model: "text?",
    usage: "jsonb?",
    ms: "int4",
  },
  columns: {},
  text: `
    insert into classifications (id, run_id, agent_id, question, input_hash, input, answer, reason, model, usage, ms, at)
    values (:id, :run, :agent, :question, :input_hash, :input, :answer, :reason, :model, :usage, :ms, pawl_now())
    on conflict (id) do nothing`,
});

export type Classification = {
  readonly id: string;
  readonly runId: string | null;
  readonly agentId: string;
  readonly question: string;
  readonly inputHash: string;
  /** Its beginning. */
  readonly input: string;
  /** Null: unsure. */
  readonly answer: unknown;
  readonly reason: string;
  readonly model: string | null;
  readonly usage: { inputTokens: number; outputTokens: number } | null;
  readonly ms: number;
};

/** Said again after a lost reply, it changes nothing. */
export async function recordClassification(db: Runner, row: Classification): Promise<void> {
  await db.rows(recordClassificationStatement, {
    id: row.id,
    run: row.runId,
    agent: row.agentId,
    question: row.question,
    input_hash: row.inputHash,
    input: row.input,
    answer: row.answer,
    reason: row.reason,
    model: row.model,
    usage: row.usage,
    ms: row.ms,
  });
}
