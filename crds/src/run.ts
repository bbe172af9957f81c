/** Run: one message to an agent, until it is answered. The spec is the person's; the status is a bounded mirror. */
import { z } from "zod";
import { budgets } from "./budgets.ts";
import { conditionList } from "./conditions.ts";
import {
  count,
  decimal,
  flag,
  int,
  label,
  list,
  matching,
  note,
  object,
  objectName,
  oneOf,
  text,
  time,
  uuid,
} from "./fields.ts";
import { immutable, type Rule, setOnce, withRules } from "./rules.ts";
import { RUN_CONDITIONS, RUN_ORIGINS, RUN_PHASES } from "./vocabulary.ts";

const actor = text(
  253,
  "The Kubernetes user who says this. Leave it out and it is filled in; nobody can name another.",
);

const again =
  "a Run is one message and does not change (only cancel may be added, once): apply a new Run under another name";

const onlyOneOrigin: Rule = {
  cel: "has(self.input) != has(self.mirror)",
  message: "give input: {text: …}, what the agent is asked (mirror is written by Pawl only)",
  holds: (self) => (self["input"] !== undefined) !== (self["mirror"] !== undefined),
};

export const runSpec = withRules(
  object("What is asked, of whom, by whom. Nothing in it can be changed; cancel can be added once.", {
    agentRef: object("The agent that is asked.", { name: objectName("An Agent in the Run's own namespace.") }),
    input: object("The message.", {
      text: text(8_192, "What the agent is asked."),
      actor: actor.optional(),
    }).optional(),
    conversation: label(
      "Runs with the same label and agent are one conversation and are answered in order. Absent: a conversation of its own.",
    ).optional(),
    idempotencyKey: text(
      128,
      "What makes this message the same message when it is applied again. Absent: namespace and name, or the UID with generateName.",
    ).optional(),
    budgets: budgets("Lower limits than the agent's for this request. Higher ones change nothing.").optional(),
    ttlSecondsAfterFinished: int(
      0,
      31_536_000,
      "Seconds after which this Run is deleted once it has finished. Absent: an applied Run stays.",
    ).optional(),
    cancel: object("Ends the run. Can be added once and never taken back.", {
      actor: actor.optional(),
      reason: text(256, "Why, for the people who read along.").optional(),
    }).optional(),
    mirror: object("Marks a Run that Pawl made to show a turn that began elsewhere. Written by Pawl only.", {
      runID: uuid("The turn in the ledger."),
    }).optional(),
  }),
  [
    onlyOneOrigin,
    immutable("agentRef", false, again),
    immutable("input", true, again),
    immutable("conversation", true, again),
    immutable("idempotencyKey", true, again),
    immutable("budgets", true, again),
    immutable("ttlSecondsAfterFinished", true, again),
    immutable("mirror", true, again),
    setOnce("cancel", "cancel is set once: it can be neither changed nor taken back"),
  ],
);

const boundary = object("On which side of the point of no return the run is.", {
  state: oneOf(["Buffering", "Committed"], "Buffering: nothing outside has been changed yet.").optional(),
  restartable: oneOf(["Yes", "No"], "May the turn still be restarted from its beginning?").optional(),
  rule: oneOf(
    ["Sealed", "Coarse"],
    "Sealed: what a sandbox changes is seen one request at a time. Coarse: every command counts as a change.",
  ).optional(),
  why: note(128, "Why that rule holds.").optional(),
  committedAt: time("When the first change was recorded.").optional(),
  by: note(128, "What made it: a tool, or reply.").optional(),
  step: int(0, 1_000_000, "In which step.").optional(),
});

const waiting = object("What the run waits for, when it waits for a person.", {
  request: note(64, "The request's id, to be named in an answer.").optional(),
  kind: oneOf(["Question", "Approval", "Gate"], "What is asked for.").optional(),
  hash: note(64, "SHA-256 of the exact thing to approve.").optional(),
  since: time("Since when.").optional(),
  tool: note(64, "The tool to approve.").optional(),
  target: note(128, "What it would change.").optional(),
  text: note(256, "The question; for applied Runs only.").optional(),
});

const interrupts = object("Messages that arrived while the run was at work.", {
  total: int(0, 1_000_000, "How many.").optional(),
  last: object("The newest decision about one; where this Run is such a message itself, the one about it.", {
    relation: note(32, "How it related to the work.").optional(),
    asked: note(32, "What the agent's settings asked for.").optional(),
    done: note(32, "What was done.").optional(),
    reason: note(64, "Why that.").optional(),
  }).optional(),
});

const effects = object("What the run changed outside.", {
  total: int(0, 1_000_000, "How many changes were recorded.").optional(),
  unknown: int(0, 1_000_000, "How many of them nobody can prove or rule out.").optional(),
  last: list(
    object("One change.", {
      name: note(64, "The tool, or reply."),
      target: note(128, "What it changed.").optional(),
      state: oneOf(["Dispatched", "Confirmed", "Failed", "Unknown"], "How it ended."),
    }),
    3,
    "The newest ones, newest first.",
  ).optional(),
});

const usage = object("What the run used.", {
  steps: count("Steps of the loop.").optional(),
  modelCalls: count("Model calls.").optional(),
  toolCalls: count("Tool calls.").optional(),
  inputTokens: count("Tokens sent to models.").optional(),
  outputTokens: count("Tokens received from models.").optional(),
  tokens: count("Both together.").optional(),
  costUSD: decimal(1_000_000_000, "US dollars; absent when a price is unknown.").optional(),
});

const ledger = object("Which version of the ledger this status shows. It only moves forward.", {
  epoch: int(0, Number.MAX_SAFE_INTEGER, "The installation's epoch."),
  seq: int(0, Number.MAX_SAFE_INTEGER, "The run's version within the epoch."),
});

type Ledger = { epoch: number; seq: number };
const ledgerOf = (status: unknown): Ledger | undefined => (status as { ledger?: Ledger } | undefined)?.ledger;

/** A paused controller that wakes up must not write yesterday over today. */
const monotone: Rule = {
  cel: "!has(oldSelf.ledger) || !has(self.ledger) || self.ledger.epoch > oldSelf.ledger.epoch || (self.ledger.epoch == oldSelf.ledger.epoch && self.ledger.seq >= oldSelf.ledger.seq)",
  message: "status.ledger only moves forward: this write shows an older version of the run than the one that is there",
  fieldPath: ".ledger",
  holds: (self, old) => {
    const [now, before] = [ledgerOf(self), ledgerOf(old)];
    if (now === undefined || before === undefined) return true;
    return now.epoch > before.epoch || (now.epoch === before.epoch && now.seq >= before.seq);
  },
};

/** At the root of the schema, because a rule on `status` does not see the whole of `status` go. */
export const ledgerStays: Rule = {
  cel: "!has(oldSelf.status) || !has(oldSelf.status.ledger) || (has(self.status) && has(self.status.ledger))",
  message: "status.ledger, once there, stays: write the whole status or none of it",
  holds: (self, old) => ledgerOf(old?.["status"]) === undefined || ledgerOf(self["status"]) !== undefined,
};

const at = (what: string) => time(what).optional();

export const runStatus = withRules(
  object("What became of it: a bounded mirror of the ledger. Written by Pawl only.", {
    observedGeneration: count("The metadata.generation that status speaks of.").optional(),
    ledger: ledger.optional(),
    runID: uuid("The run in the ledger that works on this message.").optional(),
    requestID: uuid("The request it belongs to.").optional(),
    phase: oneOf(RUN_PHASES, "Where it stands, in one word.").optional(),
    reason: note(64, "Why, in one CamelCase word.").optional(),
    message: note(256, "What happened and what to do, for a person.").optional(),
    shape: oneOf(["Loop", "Graph"], "One loop, or a graph of them.").optional(),
    origin: oneOf(RUN_ORIGINS, "Where the message came from.").optional(),
    actor: note(253, "Who asked.").optional(),
    boundary: boundary.optional(),
    triggers: object("The messages this run answers.", {
      total: int(0, 1_000_000, "How many.").optional(),
      actors: list(note(253, "A user."), 5, "Who wrote them; at most five.").optional(),
    }).optional(),
    answeredBy: object("The run that answers this message, when it was taken into the turn of another one.", {
      name: note(253, "Its Run object.").optional(),
      runID: uuid("Its id in the ledger.").optional(),
    }).optional(),
    replayOf: note(253, "The earlier Run whose outcome is shown, because this is the same message again.").optional(),
    supersededBy: note(
      253,
      "The Run whose newer message restarted the turn, the last of them; its run in the ledger where that message was no Run.",
    ).optional(),
    parent: note(253, "The Run that this one is a part of.").optional(),
    workGraphRef: object("The graph it belongs to.", { name: note(253, "A WorkGraph.") }).optional(),
    activity: note(64, "What it is doing now.").optional(),
    waiting: waiting.optional(),
    interrupts: interrupts.optional(),
    effects: effects.optional(),
    answer: object("The answer. The whole of it is in the ledger.", {
      bytes: count("Its length in bytes."),
      sha256: matching(/^[0-9a-f]{64}$/, 64, "SHA-256 of its bytes."),
      preview: note(1_024, "Its beginning.").optional(),
    }).optional(),
    usage: usage.optional(),
    workspace: object("The sandbox.", {
      pod: note(253, "The pod.").optional(),
      isolated: flag("Was its isolation proven?").optional(),
      restorable: flag("Could its files be restored if it were lost?").optional(),
    }).optional(),
    queuePosition: int(0, 1_000_000, "How many stand before it.").optional(),
    queuedAt: at("When the message was accepted."),
    startedAt: at("When work began."),
    finishedAt: at("When it ended."),
    took: note(32, "How long it was at work.").optional(),
    traceID: matching(/^[0-9a-f]{32}$/, 32, "The trace that belongs to it.").optional(),
    conditions: conditionList(
      RUN_CONDITIONS,
      256,
      "Accepted, Committed, WaitingForHuman, Isolated, Finished and Succeeded.",
    ).optional(),
  }),
  [monotone],
);

export type RunSpec = z.infer<typeof runSpec>;
export type RunStatus = z.infer<typeof runStatus>;
