/** Agent: what a platform team declares once, and people talk to afterwards. */
import { z } from "zod";
import { budgets } from "./budgets.ts";
import { conditionList } from "./conditions.ts";
import { AGENT_DEFAULTS as D } from "./defaults.ts";
import {
  count,
  decimal,
  duration,
  flag,
  glob,
  int,
  label,
  list,
  listMap,
  matching,
  note,
  NOT_YET,
  object,
  objectName,
  oneOf,
  REFUSED_YET,
  secretRef,
  set,
  text,
  texts,
  time,
  url,
  uuid,
} from "./fields.ts";
import { withRules } from "./rules.ts";
import { AGENT_CONDITIONS } from "./vocabulary.ts";
import { workspace } from "./workspace.ts";

const toolName = (description: string) => matching(/^[A-Za-z][A-Za-z0-9_.-]*$/, 64, description);

/** Tools of MCP servers too, by the spelling of the server: those may be long and hold dots and slashes. */
const anyTool = (description: string) => matching(/^[A-Za-z][A-Za-z0-9_./-]*$/, 192, description);

const model = (description: string) =>
  object(description, {
    baseURL: url("The endpoint's base URL up to and including the version, as in https://api.openai.com/v1."),
    model: text(256, "The model's name, as the endpoint knows it."),
    apiKeySecretRef: secretRef(
      "Where the API key is. The Secret must offer itself to the endpoint's host in its annotation pawl.dev/hosts. Absent: no key is sent.",
    ).optional(),
    contextTokens: int(1_000, 100_000_000, "How many tokens fit into one request and its answer.").optional(),
    maxOutputTokens: int(1, 10_000_000, "The most tokens one answer may have.").optional(),
    timeout: duration(`How long one call may take. Default ${D.modelTimeout}.`).optional(),
    pricesUSDPerMTok: object("US dollars per million tokens; without it cost is shown as unknown, never as zero.", {
      input: decimal(1_000_000, "Per million input tokens."),
      cachedInput: decimal(1_000_000, "Per million input tokens that the endpoint had cached.").optional(),
      output: decimal(1_000_000, "Per million output tokens."),
    }).optional(),
  });

const models = object("The models this agent uses. What is absent comes from the install.", {
  primary: model("The model that runs the turns.").optional(),
  fast: model(
    "A small, quick model that answers closed questions: is this a clear yes, who may see this memory, is this message about the work under way.",
  ).optional(),
});

const mcpServer = object("One MCP server.", {
  name: label("Its name; its tools are called `<name>_<tool>`. Key of the list."),
  url: url("Its endpoint (streamable HTTP)."),
  headers: listMap(
    object("One HTTP header whose value is a secret.", {
      name: matching(/^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/, 128, "The header's name. Key of the list."),
      secretRef: secretRef("Where its value is."),
    }),
    ["name"],
    8,
    "Headers sent with every request to this server.",
  ).optional(),
  tools: set(
    glob("A glob over the server's tool names."),
    64,
    "Which of its tools may be used. Absent: all of them.",
  ).optional(),
  audience: oneOf(
    ["Conversation", "Agent", "Public"],
    "Who may be shown what its tools return. Absent: only the conversation that asked.",
  ).optional(),
  trustHints: flag("Believe the server where it says that a tool only reads. Default false.").optional(),
});

const filled = (of: string) =>
  texts(
    32,
    2_048,
    `Its arguments by name, each a template: {effect.id} is the id of the write, which is also its idempotency key; {argument} is an argument of the write's call${of}. A template that is one placeholder keeps the value's type. In an argument called url values are percent-encoded.`,
  );

const probe = object(
  "How to find out whether a change whose answer was lost took place. It is asked only after nobody can be sending any more.",
  {
    tool: anyTool(
      "The tool that looks. It must be one of this agent's tools and a tool.query, else ResolvedRefs is False.",
    ),
    arguments: filled("").optional(),
    found: text(
      256,
      "Text that occurs in the answer if, and only if, the change took place. Default {effect.id}. Beware of services that repeat the question in their answer (`no note with key …`): name a text there that only a hit has.",
    ).optional(),
    absenceIsConclusive: flag(
      "An answer without that text proves that nothing took place: the service shows a write from the moment at which it has accepted it. Only then is the write sent again, under the same id. Default false: absent means unknown.",
    ).optional(),
  },
);

const compensate = object("How the change is undone. An agent with one is offered the tool undo.", {
  tool: anyTool("The tool that undoes it; one of this agent's tools."),
  arguments: filled(
    "; {result.path} leads into the JSON that the write was answered with, and {prior.path} into what was there before it, where state says how that is read",
  ).optional(),
});

const state = object(
  "How the state of what this tool changes is read: before the change, after it, and before an undo, which is refused when the state is no longer the one right after the change. Only with compensate.",
  {
    tool: anyTool(
      "The tool that reads it. It must be one of this agent's tools and a tool.query, else ResolvedRefs is False.",
    ),
    arguments: filled("; {result.path} leads into the JSON that the write was answered with").optional(),
    path: text(
      256,
      "Leads into the JSON of the answer, with dots, to the part that counts: whatever else is in the answer (a time, a counter) may change. Absent: the whole answer, to the letter where it is no JSON.",
    ).optional(),
  },
);

const effect = object("What one tool does to the world, in the platform team's own words.", {
  tool: anyTool(
    "The tool this is about, as the model calls it, or `<server>_<tool>` with the server's own spelling. Key of the list.",
  ),
  effect: oneOf(
    ["tool.query", "tool.effect"],
    "tool.query: it only reads, so it may be repeated freely. tool.effect: it changes something. Absent: as the tool says, and a change when nobody says.",
  ).optional(),
  target: text(
    256,
    "Names what the call changes, with {argument} for the call's arguments (dots lead into them, double braces are plain ones): two calls of one target never overlap, and none follows one whose outcome nobody knows. Absent, or where an argument is missing: what the tool says itself, which for an MCP tool is the tool.",
  ).optional(),
  key: matching(
    /^[A-Za-z0-9_-]+$/,
    128,
    "The header or argument that carries the idempotency key, which Pawl sets and the model does not see. By naming it you say that the receiver honours it: a write whose answer was lost is sent again under the same key.",
  ).optional(),
  probe: probe.optional(),
  compensate: compensate.optional(),
  state: state.optional(),
  errorMeans: oneOf(
    ["Unknown", "NotApplied"],
    "What an error result of an MCP tool says. Unknown: something may have been changed all the same. NotApplied: nothing was. Default Unknown.",
  ).optional(),
});

const globs = (description: string) => set(glob("A glob over tool names."), 64, description);

const tools = object("The tools this agent may use. Absent: none but those the loop needs.", {
  builtin: set(
    toolName("A built-in tool."),
    64,
    "Built-in tools by name. An unknown name is ResolvedRefs=False, ToolUnknown.",
  ).optional(),
  mcpServers: listMap(mcpServer, ["name"], 32, "MCP servers whose tools the agent may use.").optional(),
  memory: object("What the agent remembers (built-in tools remember, recall and forget).", {
    audience: oneOf(
      ["Conversation", "Agent"],
      "Who may be shown what people said and the agent remembered: the conversation in which it was said, or every conversation of this agent. What was built on results of tools is shown where those may be, whatever stands here. Absent: the conversation.",
    ).optional(),
  }).optional(),
  effects: listMap(effect, ["tool"], 128, "What tools change, and how a repeat is recognised.").optional(),
  requireApproval: globs("Tools that run only after a person has approved the exact call, with a Decision.").optional(),
  byPlace: listMap(
    object("What is allowed in one kind of place.", {
      place: oneOf(
        ["Direct", "Private", "Shared"],
        "Direct: one person alone (kubectl and HTTP too). Private: a closed channel. Shared: an open channel. Key of the list.",
      ),
      allow: globs("Only these tools.").optional(),
      deny: globs("Not these tools; stronger than allow.").optional(),
    }),
    ["place"],
    3,
    "Restricts tools by where the run answers. A place that is not named has all of them.",
  ).optional(),
});

const slack = withRules(
  object(`Reachable in Slack. ${NOT_YET}`, {
    secretRef: object(
      "The Secret of a Slack app of its own; keys botToken, signingSecret and, for Socket Mode, appToken.",
      {
        name: objectName("The Secret, in the Agent's own namespace."),
      },
    ).optional(),
    useInstallApp: flag("Use the Slack app that the install shares.").optional(),
    channels: set(
      matching(/^[CG][A-Z0-9]+$/, 32, "A channel's id, not its name."),
      128,
      "The channels in which this agent answers.",
    ).optional(),
    directMessages: flag("Answer direct messages too. Default false.").optional(),
  }),
  [
    {
      cel: "has(self.secretRef) != (has(self.useInstallApp) && self.useInstallApp)",
      message:
        "give either secretRef (a Slack app of its own) or useInstallApp: true (the install's), not both and not neither",
      holds: (self) => (self["secretRef"] !== undefined) !== (self["useInstallApp"] === true),
    },
  ],
);

const connectors = object("Where people reach this agent, besides Runs applied with kubectl.", {
  slack: slack.optional(),
  http: object(`Reachable through the HTTP API. ${NOT_YET}`, {}).optional(),
  kubernetes: object("Reachable by applying Runs; always so, this only says it.", {}).optional(),
});

const people = (what: string) => ({
  users: set(text(253, "A user, as the connector names him."), 256, `Users ${what}.`).optional(),
  groups: set(text(253, "A group, as the connector names it."), 64, `Groups ${what}.`).optional(),
});

const access = listMap(
  object("One rule: these people, with these tools.", {
    name: label("The rule's name. Key of the list."),
    ...people("it lets in"),
    channels: set(text(64, "A channel's id."), 128, "Channels whose members it lets in.").optional(),
    kubernetesGroups: set(text(253, "A Kubernetes group."), 64, "Kubernetes groups it lets in.").optional(),
    tools: object("Which tools the people of this rule have. Absent: all of the agent's.", {
      allow: globs("Only these tools.").optional(),
      deny: globs("Not these tools; stronger than allow.").optional(),
    }).optional(),
  }),
  ["name"],
  32,
  `Who may talk to this agent. Absent: whoever can reach it. ${REFUSED_YET}`,
);

const approvals = object("Who may approve the calls that tools.requireApproval names, and for how long they wait.", {
  routes: list(
    withRules(
      object("Where the question about some tools is asked; the first route that fits counts.", {
        tools: globs("The tools this route is for."),
        to: oneOf(["Thread", "Channel", "Decision"], "In the thread, in a channel, or as a Decision object only."),
        channel: text(64, "The channel's id, for to: Channel.").optional(),
      }),
      [
        {
          cel: "has(self.channel) == (self.to == 'Channel')",
          message: "channel belongs to to: Channel, and only to it",
          holds: (self) => (self["channel"] !== undefined) === (self["to"] === "Channel"),
        },
      ],
    ),
    16,
    `Routes, in order. ${NOT_YET} A call always waits for a Decision object.`,
  ).optional(),
  approvers: object(
    "Who may approve, of those who have the verb approve on Runs. Absent: whoever has it. Empty: nobody.",
    {
      ...people("that may approve"),
      slackUserGroups: set(
        text(64, "A Slack user group's id."),
        32,
        `Slack user groups that may approve. ${NOT_YET}`,
      ).optional(),
    },
  ).optional(),
  requesterMayApprove: flag(
    "May those approve too whose messages the turn answers? They may always reject. Default false.",
  ).optional(),
  expiresAfter: duration(
    `After this long without a decision it counts as rejected. Default ${D.approvals.expiresAfter}.`,
  ).optional(),
});

const I = D.interrupt;
const interrupt = object(
  "What happens to messages that arrive close together or while a turn runs. What is absent comes from the install.",
  {
    whoInterrupts: oneOf(
      ["SameActorOnly", "ThreadScoped", "AddressedActorOnly"],
      "Whose messages may change a running turn: the person who asked, everybody in the thread, or the author of the newest message the turn has taken in. No default: the Agent or the install must say.",
    ).optional(),
    coalesceWindow: duration(
      `A turn begins when nothing was said for this long: what comes before it begins is one turn. Default ${I.coalesceWindow}.`,
    ).optional(),
    maxWait: duration(`The longest a first message waits for more. Default ${I.maxWait}.`).optional(),
    maxCount: int(
      1,
      100,
      `The most messages one turn begins with; the others wait for the next one. Default ${I.maxCount}.`,
    ).optional(),
    adaptive: flag(
      `Wait longer, up to maxWait, after a message that is visibly unfinished: an open code fence, an ellipsis, a last word like "and". Default ${I.adaptive}.`,
    ).optional(),
    midTurn: oneOf(
      ["Enqueue", "Amend", "Preempt"],
      `What newer input that is about its work does to a turn at work. Enqueue: it waits for the next turn. Amend: it joins at the next decision, also when the turn has changed something. Preempt: it restarts the turn; one that has changed something is never restarted, afterCommit says what happens then. Amend and Preempt need a model that tells what a message is about (models.fast, or the install's). Default ${I.midTurn}.`,
    ).optional(),
    afterCommit: oneOf(
      ["Enqueue", "Reconcile"],
      `What newer input does that comes too late, because the turn has changed something. Enqueue: it waits for the next turn. Reconcile: the next turn is also given what was changed and how each change is undone, to put it right. Where midTurn is Amend, it joins the turn all the same. Default ${I.afterCommit}.`,
    ).optional(),
    maxSupersessions: int(
      0,
      20,
      `How often one request may be restarted, or have its answer held back for newer input. From then on it takes in nothing more and answers; a stop counts even then. Default ${I.maxSupersessions}.`,
    ).optional(),
    deadline: duration(
      `Counted from the message that opened it, without the time that a person is waited for: from then on a request takes in nothing more and answers. Default ${I.deadline}.`,
    ).optional(),
  },
);

const graph = object(`Ceilings for work graphs. ${NOT_YET}`, {
  nodes: int(1, 64, "The most nodes.").optional(),
  depth: int(1, 16, "The longest chain of nodes.").optional(),
  parallelism: int(1, 32, "The most nodes at work at once.").optional(),
  revisions: int(0, 32, "How often a graph may be revised.").optional(),
  replans: int(0, 8, "How often a refused plan is asked for again.").optional(),
  gateEffects: flag("Must nodes that change something stand behind a human gate?").optional(),
});

const B = D.budgets;
export const agentSpec = object(
  "What the agent is. The smallest Agent has instructions only; the install gives the rest.",
  {
    instructions: text(32_768, "What the agent is told before everything else."),
    models: models.optional(),
    tools: tools.optional(),
    connectors: connectors.optional(),
    access: access.optional(),
    approvals: approvals.optional(),
    answerWithin: duration(
      `How long a question (tool ask_user) waits for an answer before its run ends. Default ${D.answerWithin}.`,
    ).optional(),
    interrupt: interrupt.optional(),
    budgets: budgets(
      `What one request may use. Defaults: ${B.iterations} iterations, ${B.modelCalls} model calls, ${B.toolCalls} tool calls, ${B.wallClock}. The install may set lower ceilings.`,
    ).optional(),
    graph: graph.optional(),
    concurrency: object("How much may run at once.", {
      maxRuns: int(1, 1_000, `Turns of this agent at work at once. Default ${D.concurrency.maxRuns}.`).optional(),
      maxChildRuns: int(
        0,
        64,
        `Child runs of one turn at once. Default ${D.concurrency.maxChildRuns}. ${NOT_YET}`,
      ).optional(),
    }).optional(),
    workspace: workspace.optional(),
    runs: object(
      "The Run objects that mirror this agent's turns. They are mirrors only: deleting one by age loses no history.",
      {
        ttlSecondsAfterFinished: int(
          0,
          31_536_000,
          `Seconds after which a finished Run that Pawl created is deleted. Default ${D.runs.ttlSecondsAfterFinished}.`,
        ).optional(),
        historyLimit: int(
          0,
          5_000,
          `The most finished Runs of this agent that Pawl keeps. Default ${D.runs.historyLimit}.`,
        ).optional(),
        previews: oneOf(
          ["None", "Answer"],
          `Whether status shows the beginning of an answer. Default ${D.runs.previews}.`,
        ).optional(),
      },
    ).optional(),
    suspend: flag("Start nothing new. Messages wait; turns at work go on. Default false.").optional(),
  },
);

export const agentStatus = object("What Pawl knows about the agent. Written by Pawl only.", {
  observedGeneration: count("The metadata.generation that status speaks of.").optional(),
  installation: uuid(
    "The installation that serves this agent, named by its ledger. Two installs in one cluster never serve the same one.",
  ).optional(),
  generationInUse: count("The metadata.generation that new turns run with.").optional(),
  active: count("Turns at work.").optional(),
  queued: count("Turns that wait.").optional(),
  model: note(256, "The model in use.").optional(),
  isolation: object("What the probes of this agent's sandboxes said.", {
    proven: count("Sandboxes whose isolation was proven.").optional(),
    failed: count("Sandboxes whose isolation was not.").optional(),
    lastNode: note(253, "The node of the last probe.").optional(),
    lastProbe: time("When it was.").optional(),
  }).optional(),
  conditions: conditionList(AGENT_CONDITIONS, 1_024, "Accepted, ResolvedRefs, EgressEnforced and Ready.").optional(),
});

export type AgentSpec = z.infer<typeof agentSpec>;
export type AgentStatus = z.infer<typeof agentStatus>;
export type AgentModel = z.infer<ReturnType<typeof model>>;
