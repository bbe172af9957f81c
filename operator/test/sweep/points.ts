/**
 * The list of points: made from the statement registry and the ports, and compared with what a fault-free run and a
 * recovering one really pass. A statement that is neither passed nor listed here with its reason fails `npm run check`.
 */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WorkerProcess } from "./process.ts";
import { type Case, CASE_MS, ended, type Ledgers, startCase, startPeople, type World } from "./scenario.ts";
import type { Scenario } from "./scenarios.ts";
import { accepted, type EndState, endState } from "./state.ts";

/** Outside calls of the scenarios: before and after each, and inside the one that changes the world. */
export const PORTS = [
  "before:model",
  "after:model",
  "before:probe",
  "after:probe",
  "before:state",
  "after:state",
  "before:tool.http_request",
  "http_request:connected",
  "http_request:sent",
  "http_request:answered",
  "after:tool.http_request",
  "mcp:connected",
  "mcp:sent",
  "mcp:answered",
] as const;

/** Statements that a worker runs in the scenarios, first run and recovery together. */
export const SWEPT = [
  "claim_run",
  "renew_lease",
  "next_due",
  "read_run",
  "read_triggers",
  "read_steps",
  "read_calls",
  "read_effects",
  "read_history",
  "read_evidence",
  "commit_response",
  "cross_effect",
  "settle_effect",
  "redispatch_effect",
  "commit_results",
  "finish_turn",
  "agents_to_check",
  "record_refs",
  "read_occupants",
  "park_for_approval",
  "read_approvals",
  "remember",
  "recall",
  "closed_gates",
  "claim_undecided",
  "pin_toolset",
  "read_toolset",
  "read_effect",
  "read_under_way",
  "record_classification",
  "decide_event",
  "look_at_run",
] as const;

/** Where else the others are swept or why they cannot matter: by prefix. */
export const ELSEWHERE: Readonly<Record<string, string>> = {
  invariant_: "the checker's own reads",
  claim_installation: "start-up only; ledger tests",
  adopt_installation: "a command of a person; ledger tests",
  record_agent: "controller; kube tests kill it after each API write",
  read_agent: "controller, read only",
  open_conversation: "controller's ingest; kube tests, ledger tests with swallowed replies",
  ingest_event: "controller's ingest; kube tests, ledger tests with swallowed replies",
  read_run_key: "controller, read only",
  read_event: "controller, read only",
  change_event: "ingest of edits and deletes, no worker's; ledger tests",
  read_change: "ingest of edits and deletes, read only",
  read_position: "controller, read only",
  ensure_actor: "controller; ledger tests",
  request_stop: "controller; ledger tests with swallowed replies, races with crossings",
  withdraw_event: "controller; ledger tests",
  read_mirror: "controller, read only",
  changed_mirrors: "controller, read only",
  database_time: "controller, read only",
  find_run_by_name: "command line, read only",
  list_effects: "command line, read only",
  resolve_effect: "a command of a person; ledger tests with a swallowed reply",
  read_requests: "command line, read only",
  read_history_through: "command line, read only",
  find_same_memory: "only when it is remembered already; engine and ledger tests",
  forget: "only when a model forgets; engine and ledger tests",
  forget_by_person: "a command of a person; ledger tests with a swallowed reply",
  list_memories: "command line, read only",
  read_story: "command line, read only",
  oldest_snapshot: "a metric, read only",
  suspend_agent: "controller; kube tests",
  list_agents: "controller, read only",
  live_applied_keys: "controller, read only",
  live_messages_of_object: "controller, read only",
  live_messages_of_agent: "controller, read only",
  open_leadership: "controller's leadership, a hint",
  hold_leadership: "controller's leadership, a hint",
  release_leadership: "controller's leadership, a hint",
  close_gate: "only when an endpoint refuses for now; engine tests",
  read_reconciled: "only in a turn that puts another one right, read only; engine tests",
  read_reconcile_note: "only in a turn that puts another one right, read only; engine tests",
  read_result: "a tool's read; engine tests",
  read_built_on: "a tool's read; engine tests",
  read_before: "a tool's read; engine tests",
  effect_of_run: "controller, read only",
  decide_approval: "controller; ledger tests with swallowed replies, races with expiry, parking and stops",
  attach_result: "only when a read is finished as its turn is restarted; engine and ledger tests",
  close_inherited: "only when a turn was restarted in a read; engine and ledger tests",
  withdraw_approval: "only when newer input meets a call that waits for a person; engine and ledger tests",
  asked_before: "only after a turn that ended at its limit; engine tests",
  continue_request: "only after a clear yes; ledger tests",
  queue_for_claim: "only when two claims meet; ledger tests",
  park_for_input: "only when a model asks; ledger tests with swallowed replies, engine tests",
  answer_question: "controller; ledger tests with swallowed replies, races with expiry and stops",
  read_questions: "tests and the command line, read only",
  reserve_emission: "only when something is said besides an answer; ledger tests with swallowed replies, engine tests",
  settle_emission: "only when something is said besides an answer; ledger tests with swallowed replies, engine tests",
  read_emissions: "tests, read only",
  release_lease: "only when a run waits; engine tests and the variant with a failing model",
};

/** A timer's statements come any number of times: their first occurrence stands for them. */
const TIMED = new Set([
  "claim_run",
  "next_due",
  "renew_lease",
  "agents_to_check",
  "record_refs",
  "closed_gates",
  "claim_undecided",
  "look_at_run",
]);

export type Point = { readonly name: string; readonly occurrence: number };

export const pointText = (point: Point): string => `${point.name}:${point.occurrence}`;

/** Occurrences as they were passed, one per line, become points; idle polling after the end adds none. */
export function pointsOf(passed: readonly string[]): Point[] {
  const counts = new Map<string, number>();
  const points: Point[] = [];
  for (const name of passed) {
    const occurrence = (counts.get(name) ?? 0) + 1;
    counts.set(name, occurrence);
    const statement = name.replace(/^(before|after):/, "");
    if (TIMED.has(statement) && occurrence > 1) continue;
    points.push({ name, occurrence });
  }
  return points;
}

export type Recorded = { readonly points: Point[]; readonly end: EndState };

/** Runs a scenario without a fault (or, with `first`, after a first worker was killed there): what was passed, and how it ended. */
export async function record(ledgers: Ledgers, fakes: World, scenario: Scenario, first?: Point): Promise<Recorded> {
  const folder = await mkdtemp(join(tmpdir(), "pawl-points-"));
  const log = join(folder, "passed");
  await using item: Case = await startCase(ledgers, fakes, scenario);
  const signal = AbortSignal.timeout(CASE_MS);
  const people = startPeople(item, fakes, signal);
  if (first !== undefined) {
    const victim = new WorkerProcess({ ledgerUrl: item.url, name: "a", failpoint: `${pointText(first)}:kill` });
    await victim.exited;
  }
  const worker = new WorkerProcess({ ledgerUrl: item.url, name: "b", failpointLog: log });
  try {
    await ended(item, people, signal);
    // The commit that ended the last turn may not have come back yet.
    await worker.saidTimes((line) => line.msg === "a turn ended", scenario.turns ?? scenario.scripts.length);
  } finally {
    worker.kill("SIGKILL");
    await worker.exited;
  }
  const passed = (await readFile(log, "utf8")).split("\n").filter((name) => name !== "");
  await rm(folder, { recursive: true });
  return { points: pointsOf(passed), end: await endState(item, await accepted(fakes)) };
}
