/**
 * What the sweep lets happen: scripts of the model fake, what the world does meanwhile, what people do. Each is chosen
 * so that a run without faults has one possible end, which every run with faults is compared with.
 */
import { ingest } from "#ledger/mailbox.ts";
import { decideApproval, readApprovals, type Verdict } from "#ledger/approvals.ts";
import { requestStop } from "#ledger/turns.ts";
import type { ModelScript } from "@pawl/fakes";
import { ask, type Case, followUp, insist, sleep, type World } from "./scenario.ts";

export type Scenario = {
  readonly name: string;
  /** By message: the script of the first one, of the second one, … */
  readonly scripts: readonly ModelScript["steps"][];
  /** Where its writes go: a receiver that honours keys, or one that does not. */
  readonly place: "keyed" | "plain";
  /** spec.tools of its Agent. */
  tools(fakes: World): Readonly<Record<string, unknown>>;
  readonly world?: { readonly mode: "cut"; readonly times?: number };
  /** True: the world hides an answer that nobody can ask for again, so that an effect ends unknown, and says so. */
  readonly hides?: true;
  /** True: what the model reads of a call depends on where a worker fell (found by a probe, or answered). */
  readonly varies?: true;
  /** spec.interrupt of its Agent. */
  readonly interrupt?: Readonly<Record<string, string>>;
  /** What its fast model says of every message that meets a turn at work. */
  readonly relation?: "refines" | "cancels";
  /** Turns that end by themselves; absent: as many as there are scripts. */
  readonly turns?: number;
  /** What people do while it runs. Resolves when they have done it. */
  meanwhile?(item: Case, fakes: World, signal: AbortSignal): Promise<void>;
};

const post = (to = "", text = "the answer is 42") => ({
  name: "http_request",
  arguments: { method: "POST", url: `{{url}}${to}`, body: JSON.stringify({ text }) },
});
const get = { name: "http_request", arguments: { method: "GET", url: "{{url}}" } };
const calculate = { name: "calculate", arguments: { expression: "6*7" } };

const BUILTIN = ["calculate", "http_request"];
const KEYED = { builtin: BUILTIN, effects: [{ tool: "http_request", key: "Idempotency-Key" }] };
/** The receiver honours no key, but shows what it has, and under which id it came. */
const PROBED = {
  builtin: BUILTIN,
  effects: [
    {
      tool: "http_request",
      probe: {
        tool: "http_request",
        arguments: { method: "GET", url: "{url}" },
        found: "{effect.id}",
        absenceIsConclusive: true,
      },
    },
  ],
};

/** A tracker that is an MCP server: what it creates is found by key, what it closes is seen to be closed. */
const desk = (fakes: World) => ({
  mcpServers: [{ name: "desk", url: `${fakes.mcp.url}/mcp`, tools: ["*_ticket"] }],
  effects: [
    {
      tool: "desk_create_ticket",
      target: "ticket {title}",
      key: "key",
      probe: { tool: "desk_find_ticket", arguments: { key: "{effect.id}" }, absenceIsConclusive: true },
      compensate: { tool: "desk_close_ticket", arguments: { id: "{result.id}" } },
      state: { tool: "desk_find_ticket", arguments: { key: "{effect.id}" }, path: "state" },
    },
    {
      tool: "desk_close_ticket",
      probe: {
        tool: "desk_read_ticket",
        arguments: { id: "{id}" },
        found: '"state":"closed"',
        absenceIsConclusive: true,
      },
    },
    { tool: "desk_find_ticket", effect: "tool.query" },
    { tool: "desk_read_ticket", effect: "tool.query" },
  ],
});

/** Bob decides about the one call that waits for somebody. */
async function decide(item: Case, approve: boolean, signal: AbortSignal): Promise<void> {
  for (;;) {
    const [approval] = await insist(() => readApprovals(item.db, item.runId));
    if (approval !== undefined) {
      const decision: Verdict = {
        request: approval.id,
        decision: `decision-${item.id}`,
        subject: { namespaceUid: "ns", name: item.id },
        actor: { connector: "kubernetes", extId: "bob", groups: [] },
        approve,
        hash: approval.hash,
        reason: null,
      };
      await insist(() => decideApproval(item.db, decision));
      return;
    }
    if (signal.aborted) throw new Error("no call waited for a person");
    await sleep(20);
  }
}

/** A run that has a response and no open call: past its boundary, in front of its next model call. */
async function pastItsFirstCalls({ db, runId }: Case, signal: AbortSignal): Promise<void> {
  const past = `select exists (select from run_steps where run_id = $1)
    and not exists (select from tool_calls where run_id = $1 and outcome is null) as yes`;
  while (!(await ask(db, past, runId))) {
    if (signal.aborted) throw new Error("the run did not come past its first calls");
    await sleep(20);
  }
}

/** Somebody has taken up the run: from now on a message does not simply fold into it. */
async function begun({ db, runId }: Case, signal: AbortSignal): Promise<void> {
  while (!(await ask(db, "select started_at is not null as yes from runs where id = $1", runId))) {
    if (signal.aborted) throw new Error("nobody took up the run");
    await sleep(20);
  }
}

/** Alice says more, and somebody finds out what it means. */
async function saysMore(item: Case, fakes: World, signal: AbortSignal): Promise<void> {
  await insist(() => ingest(item.db, followUp(item, fakes)));
  const undecided =
    "select not exists (select from message_events where conversation_id = $1 and state = 'undecided') as yes";
  while (!(await ask(item.db, undecided, item.conversationId))) {
    if (signal.aborted) throw new Error("nobody decided about the message");
    await sleep(20);
  }
}

/** Answers that were held back come, as often as somebody asks for them. */
async function release(item: Case, fakes: World, signal: AbortSignal): Promise<void> {
  while (!signal.aborted && (await item.live())) {
    await fakes.model.control("POST", "/release");
    await sleep(50);
  }
}

export const SCENARIOS: readonly Scenario[] = [
  {
    name: "write",
    scripts: [[{ calls: [calculate, post()] }, { text: "I wrote the note." }]],
    place: "keyed",
    tools: () => KEYED,
  },
  {
    // Quick, a read, two targets, and the first write once more: two effects, whatever falls when.
    name: "parallel",
    scripts: [
      [
        { calls: [calculate, get, post("/a"), post("/b"), post("/a")] },
        { calls: [calculate] },
        { text: "Both are written." },
      ],
    ],
    place: "keyed",
    tools: () => KEYED,
  },
  {
    name: "hidden",
    scripts: [[{ calls: [post()] }, { text: "I cannot tell whether it was written." }]],
    place: "plain",
    tools: () => ({ builtin: BUILTIN }),
    world: { mode: "cut" },
    hides: true,
  },
  {
    name: "stop",
    // The second answer never comes: what ends the run is the person.
    scripts: [[{ calls: [post()] }, { fault: { kind: "stall" } }]],
    place: "keyed",
    tools: () => KEYED,
    async meanwhile(item, _fakes, signal) {
      await pastItsFirstCalls(item, signal);
      const actor = { connector: "kubernetes", extId: "alice" };
      const stop = { eventId: item.eventId, extId: `stop-${item.id}`, actor, why: "enough" };
      await insist(() => requestStop(item.db, stop));
    },
  },
  {
    name: "conversation",
    // The first answer waits until the second message is there.
    scripts: [
      [{ calls: [post("/one")] }, { text: "One is written.", hold: true }],
      [{ calls: [calculate, post("/two")] }, { text: "Two is written." }],
    ],
    place: "keyed",
    tools: () => KEYED,
    async meanwhile(item, fakes, signal) {
      await pastItsFirstCalls(item, signal);
      await insist(() => ingest(item.db, followUp(item, fakes)));
      await release(item, fakes, signal);
    },
  },
  {
    // The first answer is lost; the probe finds what landed, and proves what did not, so that it may be sent.
    name: "probe",
    scripts: [[{ calls: [calculate, post()] }, { text: "I wrote the note." }]],
    place: "plain",
    tools: () => PROBED,
    world: { mode: "cut", times: 1 },
    varies: true,
  },
  {
    name: "approved",
    scripts: [[{ calls: [calculate, post()] }, { text: "I wrote the note." }]],
    place: "keyed",
    tools: () => ({ ...KEYED, requireApproval: ["http_request"] }),
    meanwhile: (item, _fakes, signal) => decide(item, true, signal),
  },
  {
    name: "rejected",
    scripts: [[{ calls: [calculate, post()] }, { text: "Nobody wanted it." }]],
    place: "keyed",
    tools: () => ({ ...KEYED, requireApproval: ["http_request"] }),
    meanwhile: (item, _fakes, signal) => decide(item, false, signal),
  },
  {
    // Created through an MCP server, looked at, and taken back again: a compensation is a write like any other.
    name: "mcp",
    scripts: [
      [
        { calls: [{ name: "desk_create_ticket", arguments: { title: "{{url}}" } }] },
        { calls: [{ name: "undo", arguments: { effect: "{{effect}}" } }] },
        { text: "Created, and closed again." },
      ],
    ],
    place: "plain",
    tools: desk,
    varies: true,
  },
  {
    name: "memory",
    scripts: [
      [
        { calls: [{ name: "remember", arguments: { text: "Alice takes her coffee black at {{url}}" } }] },
        { calls: [{ name: "recall", arguments: { query: "coffee" } }, calculate] },
        { text: "I remember it." },
      ],
    ],
    place: "plain",
    tools: () => ({ builtin: ["calculate", "remember", "recall"] }),
    // What is recalled are the memories of all of the Agent's conversations, newest first.
    varies: true,
  },
  {
    // What she adds is there before the first answer comes: the turn takes it in at its next decision point.
    name: "amend",
    scripts: [
      [{ calls: [calculate], hold: true }, { text: "Nobody told me more." }],
      [{ calls: [post("/amended")] }, { text: "I did it your way." }],
    ],
    place: "keyed",
    tools: () => KEYED,
    interrupt: { midTurn: "Amend" },
    relation: "refines",
    turns: 1,
    async meanwhile(item, fakes, signal) {
      await begun(item, signal);
      await saysMore(item, fakes, signal);
      await release(item, fakes, signal);
    },
  },
  {
    // It has only read when she corrects herself: what it read is kept, what it thought of it never comes.
    name: "preempt",
    scripts: [
      [{ calls: [calculate, get] }, { fault: { kind: "stall" } }],
      [{ calls: [post("/corrected")] }, { text: "I did what you meant." }],
    ],
    place: "keyed",
    tools: () => KEYED,
    interrupt: { midTurn: "Preempt", coalesceWindow: "100ms" },
    relation: "refines",
    turns: 1,
    async meanwhile(item, fakes, signal) {
      await pastItsFirstCalls(item, signal);
      await saysMore(item, fakes, signal);
    },
  },
  {
    // "Never mind" behind the line: the turn tells what it did, and does no more.
    name: "cancel",
    scripts: [[{ calls: [post()] }, { fault: { kind: "stall" } }], [{ text: "This is never asked for." }]],
    place: "keyed",
    tools: () => KEYED,
    interrupt: { midTurn: "Preempt" },
    relation: "cancels",
    turns: 1,
    async meanwhile(item, fakes, signal) {
      await pastItsFirstCalls(item, signal);
      await saysMore(item, fakes, signal);
    },
  },
];

export const scenarioOf = (name: string): Scenario => {
  const found = SCENARIOS.find((scenario) => scenario.name === name);
  if (found === undefined)
    throw new Error(`no scenario "${name}"; there are ${SCENARIOS.map((s) => s.name).join(", ")}`);
  return found;
};

export const scriptName = (scenario: Scenario, index: number): string => `${scenario.name}-${index + 1}`;

export const BOOK = {
  scripts: Object.fromEntries(
    SCENARIOS.flatMap((scenario) =>
      scenario.scripts.map((steps, index) => [scriptName(scenario, index), { steps: [...steps] }]),
    ),
  ),
};
