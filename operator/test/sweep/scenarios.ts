/**
 * What the sweep lets happen: scripts of the model fake, what the world does meanwhile, what people do. Each is chosen
 * so that a run without faults has one possible end, which every run with faults is compared with.
 */
import { ingest } from "#ledger/mailbox.ts";
import { requestStop } from "#ledger/turns.ts";
import type { ModelScript, WorldControl } from "@pawl/fakes";
import { ask, type Case, followUp, insist, sleep, type World } from "./scenario.ts";

export type Scenario = {
  readonly name: string;
  /** By message: the script of the first one, of the second one, … */
  readonly scripts: readonly ModelScript["steps"][];
  /** Where its writes go: a receiver that honours keys, or one that does not. */
  readonly place: "keyed" | "plain";
  /** What the Agent says about http_request. */
  readonly key: boolean;
  readonly world?: Omit<WorldControl & { mode: string }, "path">;
  /** True: the world hides an answer that nobody can ask for again, so that an effect ends unknown, and says so. */
  readonly hides?: true;
  /** What people do while it runs. Resolves when they have done it. */
  meanwhile?(item: Case, fakes: World, signal: AbortSignal): Promise<void>;
};

const post = (to = "", text = "the answer is 42") => ({
  name: "http_request",
  arguments: { method: "POST", url: `{{url}}${to}`, body: JSON.stringify({ text }) },
});
const get = { name: "http_request", arguments: { method: "GET", url: "{{url}}" } };
const calculate = { name: "calculate", arguments: { expression: "6*7" } };

/** A run that has a response and no open call: past its boundary, in front of its next model call. */
async function pastItsFirstCalls({ db, runId }: Case, signal: AbortSignal): Promise<void> {
  const past = `select exists (select from run_steps where run_id = $1)
    and not exists (select from tool_calls where run_id = $1 and outcome is null) as yes`;
  while (!(await ask(db, past, runId))) {
    if (signal.aborted) throw new Error("the run did not come past its first calls");
    await sleep(20);
  }
}

export const SCENARIOS: readonly Scenario[] = [
  {
    name: "write",
    scripts: [[{ calls: [calculate, post()] }, { text: "I wrote the note." }]],
    place: "keyed",
    key: true,
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
    key: true,
  },
  {
    name: "hidden",
    scripts: [[{ calls: [post()] }, { text: "I cannot tell whether it was written." }]],
    place: "plain",
    key: false,
    world: { mode: "cut" },
    hides: true,
  },
  {
    name: "stop",
    // The second answer never comes: what ends the run is the person.
    scripts: [[{ calls: [post()] }, { fault: { kind: "stall" } }]],
    place: "keyed",
    key: true,
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
    key: true,
    async meanwhile(item, fakes, signal) {
      await pastItsFirstCalls(item, signal);
      await insist(() => ingest(item.db, followUp(item, fakes)));
      while (!signal.aborted && (await item.live())) {
        await fakes.model.control("POST", "/release");
        await sleep(50);
      }
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
