/**
 * The verdict of one case: from histories that nobody in the product wrote for itself (what the fakes accepted), and
 * from the ledger's invariants.
 */
import type { LogEntry } from "@pawl/fakes";
import { checkInvariants } from "#ledger/invariants.ts";
import { readRun } from "#ledger/reads.ts";
import type { Case, World } from "./scenario.ts";

export type Verdict = {
  readonly violations: string[];
  readonly lost: number;
  readonly duplicated: number;
  readonly unknown: number;
};

type Write = LogEntry & { path?: string; outcome?: string; key?: string };

export async function judge(fakes: World, item: Case): Promise<Verdict> {
  const violations: string[] = (await checkInvariants(item.db)).map(
    ({ invariant, offender }) => `${invariant} ${offender}`,
  );
  const run = await readRun(item.db, item.runId);
  const replies = run.calls.filter((call) => call.class === "reply" && call.outcome === "real");
  const accepted = ((await fakes.world.log()) as Write[]).filter((entry) => entry.path === item.notes);
  const writes = accepted.filter((entry) => entry.outcome === "write");
  const keys = new Set(accepted.map((entry) => entry.key));
  const unknown = run.effects.filter((effect) => effect.state === "unknown").length;

  if (run.status !== "succeeded") violations.push(`the run ended ${run.status}`);
  if (replies.length !== 1) violations.push(`${replies.length} replies`);
  if (writes.length !== 1 && unknown === 0) violations.push(`${writes.length} writes`);
  if (keys.size !== 1) violations.push(`${keys.size} keys for one effect`);
  const effects = run.effects.filter((effect) => effect.kind !== "reply");
  if (effects.length !== 1) violations.push(`${effects.length} effects`);
  if (!keys.has(effects[0]?.id ?? "")) violations.push("the key is not the effect's id");
  const { rows } = await item.db.pool.query<{ state: string }>(
    "select state from message_events where kind = 'message'",
  );
  if (rows.length !== 1 || rows[0]?.state !== "accounted")
    violations.push(`message ${rows.map((row) => row.state).join(",")}`);
  const calls = run.calls.map((call) => `${call.tool}:${call.outcome}`).join(" ");
  if (calls !== "calculate:real http_request:real reply:real") violations.push(`calls ended as ${calls}`);
  return {
    violations,
    lost: run.status === "succeeded" ? 0 : 1,
    duplicated: Math.max(0, writes.length - 1) + Math.max(0, replies.length - 1),
    unknown,
  };
}
