import assert from "node:assert/strict";
import { RUN_REASONS, runStatus, type RunStatus } from "@pawl/crds";
import { decideRun, expiresIn, type RunDecision, type RunFacts } from "#controllers/run/decide.ts";
import { policyOf } from "#rules/interrupt.ts";
import { idempotencyKey } from "#controllers/run/key.ts";
import { aMirror, anAgent, at, facts, INSTALL, NOW, pending, replied, runObject, working } from "./support.ts";

type Row = {
  readonly what: string;
  readonly facts: RunFacts;
  readonly phase: string;
  /** Accepted, Finished, Succeeded as status/reason. */
  readonly conditions: readonly [string, string, string];
  readonly says: RegExp;
};
const WAITS = (reason: string): Row["conditions"] => [`Unknown/${reason}`, "False/NotAccepted", "Unknown/NotAccepted"];
const REFUSED = (reason: string): Row["conditions"] => [`False/${reason}`, "True/NotAccepted", "False/NotAccepted"];
const agent = (changes: Parameters<typeof anAgent>[0]) => facts({ agent: anAgent(changes) });

const TABLE: readonly Row[] = [
  {
    what: "its Agent is not there",
    facts: facts({ agent: undefined }),
    phase: "Queued",
    conditions: WAITS("AgentNotFound"),
    says: /no Agent helper.*apply it/,
  },
  {
    what: "nobody has looked at its Agent yet",
    facts: agent({ holder: "nobody", accepted: undefined, stored: null }),
    phase: "Queued",
    conditions: WAITS("Pending"),
    says: /being looked at/,
  },
  {
    what: "its Agent has a text that nobody has looked at yet",
    facts: agent({ accepted: undefined }),
    phase: "Queued",
    conditions: WAITS("Pending"),
    says: /being looked at/,
  },
  {
    what: "its Agent is not accepted",
    facts: agent({ accepted: { status: "False", reason: "Invalid", message: "spec.x: wrong" } }),
    phase: "Queued",
    conditions: WAITS("AgentNotAccepted"),
    says: /Invalid: spec\.x: wrong/,
  },
  {
    what: "its Agent is suspended",
    facts: agent({ suspended: true }),
    phase: "Queued",
    conditions: WAITS("AgentNotReady"),
    says: /take its spec\.suspend away/,
  },
  {
    what: "the ledger still has its Agent suspended",
    facts: agent({ stored: { id: "a", generation: 3, suspended: true } }),
    phase: "Queued",
    conditions: WAITS("AgentNotReady"),
    says: /suspended/,
  },
  {
    what: "its Agent names no model",
    facts: agent({ refsReason: "ModelMissing" }),
    phase: "Queued",
    conditions: WAITS("AgentNotReady"),
    says: /spec\.models\.primary/,
  },
  {
    what: "its namespace is not served",
    facts: facts({ enabled: false }),
    phase: "Queued",
    conditions: WAITS("NamespaceNotEnabled"),
    says: /agentNamespaces/,
  },
  {
    what: "its spec is invalid",
    facts: facts({ object: runObject({ conversation: "Not A Label" }) }),
    phase: "Failed",
    conditions: REFUSED("Invalid"),
    says: /spec\.conversation/,
  },
  {
    what: "it holds a character that PostgreSQL cannot store",
    facts: facts({ object: runObject({ input: { text: "a\0b", actor: "alice" } }) }),
    phase: "Failed",
    conditions: REFUSED("Invalid"),
    says: /NUL/,
  },
  {
    what: "nobody has signed it",
    facts: facts({ object: runObject({ input: { text: "hello" } }) }),
    phase: "Failed",
    conditions: REFUSED("ActorMissing"),
    says: /spec\.input\.actor.*whoami/,
  },
  {
    what: "it is older than the ledger",
    facts: facts({ object: runObject({}, { creationTimestamp: "2026-03-01T10:59:59Z" }) }),
    phase: "Failed",
    conditions: REFUSED("OlderThanInstallation"),
    says: /another name, with generateName, or with a new spec\.idempotencyKey/,
  },
  {
    what: "somebody gave it a status that tells of a turn",
    facts: facts({ object: runObject({}, {}, { startedAt: "2026-03-01T11:31:00Z" }) }),
    phase: "Failed",
    conditions: REFUSED("StatusNotEmpty"),
    says: /startedAt/,
  },
  {
    what: "its key was used for something else",
    facts: facts({ mirror: aMirror({ object_uid: "other-uid", spec_hash: "other" }) }),
    phase: "Failed",
    conditions: REFUSED("KeyReused"),
    says: /another name/,
  },
  {
    what: "it was cancelled before anything else",
    facts: facts({ object: runObject({ cancel: { actor: "alice" } }), agent: undefined }),
    phase: "Cancelled",
    conditions: ["False/Pending", "True/Finished", "False/Cancelled"],
    says: /cancelled before it was accepted/,
  },
];

const showing = (decision: RunDecision): RunStatus => {
  assert.equal(decision.do, "show");
  return (decision as { status: RunStatus }).status;
};
const verdictOf = (status: RunStatus, type: string): string => {
  const found = status.conditions?.find((condition) => condition.type === type);
  return `${found?.status ?? "-"}/${found?.reason ?? "-"}`;
};

describe("a Run that is no message", () => {
  for (const row of TABLE) {
    it(`says what to do when ${row.what}`, () => {
      const status = showing(decideRun(row.facts));
      assert.equal(status.phase, row.phase);
      assert.deepEqual(
        ["Accepted", "Finished", "Succeeded"].map((type) => verdictOf(status, type)),
        row.conditions,
      );
      assert.match(status.message ?? "", row.says);
      assert.equal(status.ledger, undefined, "only a message has a version");
      assert.equal(runStatus.safeParse(status).success, true);
      const reason = verdictOf(status, "Accepted").split("/")[1] ?? "";
      assert.ok((RUN_REASONS.Accepted as readonly string[]).includes(reason), reason);
    });
  }

  it("is decided again while it waits, from the status that says so, and never once it is refused", () => {
    const waiting = showing(decideRun(facts({ agent: undefined })));
    assert.equal(decideRun(facts({ object: runObject({}, {}, waiting) })).do, "admit");
    const refused = showing(decideRun(facts({ object: runObject({}, { creationTimestamp: "2026-03-01T10:00:00Z" }) })));
    const again = showing(decideRun(facts({ object: runObject({}, { generation: 2 }, refused) })));
    assert.equal(again.reason, "OlderThanInstallation");
    assert.equal(again.observedGeneration, 2);
  });
});

describe("a Run that becomes a message", () => {
  const admitted = (changes: Parameters<typeof facts>[0] = {}) => {
    const decision = decideRun(facts(changes));
    assert.equal(decision.do, "admit");
    return decision.message;
  };

  it("names its author, its conversation and its key", () => {
    const message = admitted();
    assert.deepEqual(message.actor, { connector: "kubernetes", extId: "alice" });
    assert.equal(message.connector, "kubernetes/demo");
    assert.equal(message.conversationKey, "run:demo/one");
    assert.equal(message.orderKey, "2026-03-01T11:30:00Z");
    assert.equal(message.agentId, "agent-id");
    assert.equal(message.generation, 3);
    assert.deepEqual([message.applied?.key, message.applied?.objectUid], ["demo/one", "run-uid"]);
  });

  it("loses the tokens that a person pasted before the ledger sees it, and is still known by what was applied", () => {
    const token = `glpat-${"aB3dE6gH9".repeat(3)}`;
    const message = admitted({ object: runObject({ input: { actor: "alice", text: `clone with ${token} please` } }) });
    assert.equal(message.text, "clone with [redacted: a GitLab token] please");
  });

  it("joins the conversation that its label names, which no key can name", () => {
    assert.equal(admitted({ object: runObject({ conversation: "talk" }) }).conversationKey, "talk");
    assert.equal(admitted({ object: runObject({ idempotencyKey: "talk" }) }).conversationKey, "run:talk");
  });

  it("is quiet for as long as its Agent wants where others may join it, and begins at once where nobody can", () => {
    const policy = { ...policyOf(null), midTurn: "amend", quietMs: 5_000 } as const;
    const agent = anAgent({ policy, askable: true });
    const talk = admitted({ object: runObject({ conversation: "talk" }), agent });
    assert.deepEqual([talk.policy, talk.askable], [policy, true]);
    const own = admitted({ object: runObject(), agent });
    assert.deepEqual([own.policy, own.askable], [{ ...policy, quietMs: 0 }, true]);
  });

  it("is admitted in the very second in which the ledger was born", () => {
    admitted({ object: runObject({}, { creationTimestamp: "2026-03-01T11:00:00Z" }) });
  });

  it("brings its own limits", () => {
    assert.deepEqual(admitted({ object: runObject({ budgets: { iterations: 2 } }) }).slice, { iterations: 2 });
  });

  it("has a key of its own, its name, or what the server invented", () => {
    const { metadata } = runObject();
    assert.equal(idempotencyKey(metadata, {}), "demo/one");
    assert.equal(idempotencyKey(metadata, { idempotencyKey: "k" }), "k");
    assert.equal(idempotencyKey({ ...metadata, generateName: "one-" }, {}), "run-uid");
  });

  it("is the same message whatever its cancel and its time to live, another for another actor", () => {
    const hash = (spec: Record<string, unknown>) => facts({ object: runObject(spec) }).specHash;
    assert.equal(hash({ cancel: { actor: "bob" }, ttlSecondsAfterFinished: 5 }), hash({}));
    for (const spec of [
      { input: { text: "What is a pawl?", actor: "bob" } },
      { input: { text: "What?", actor: "alice" } },
      { conversation: "c" },
      { budgets: { iterations: 1 } },
      { agentRef: { name: "other" } },
    ])
      assert.notEqual(hash(spec), hash({}), JSON.stringify(spec));
  });
});

describe("a Run that is a message", () => {
  it("is shown as what was answered when it is the same message again", () => {
    const status = showing(decideRun(facts({ object: runObject({}, { uid: "new-uid" }), mirror: replied("Before.") })));
    assert.equal(verdictOf(status, "Accepted"), "True/Replayed");
    assert.equal(status.replayOf, "one");
    assert.equal(status.answer?.preview, "Before.");
  });

  it("is shown however its Agent stands now", () => {
    const status = showing(decideRun(facts({ mirror: replied("Done."), agent: undefined })));
    assert.equal(status.phase, "Succeeded");
  });

  it("has ended when the ledger does not know it any more", () => {
    const before = showing(decideRun(facts({ mirror: working() })));
    const status = showing(decideRun(facts({ object: runObject({}, {}, before) })));
    assert.equal(status.phase, "Failed");
    assert.equal(status.reason, "LedgerLost");
    assert.equal(verdictOf(status, "Finished"), "True/Finished");
    assert.equal(verdictOf(status, "Succeeded"), "False/LedgerLost");
    assert.deepEqual(status.ledger, before.ledger, "the version may not go");
    assert.equal(status.activity, undefined);
  });

  it("keeps its end when the ledger that gave it is lost", () => {
    const before = showing(decideRun(facts({ mirror: replied("Done.") })));
    const status = showing(decideRun(facts({ object: runObject({}, { generation: 2 }, before) })));
    assert.equal(status.phase, "Succeeded");
    assert.equal(status.observedGeneration, 2);
  });

  it("is left alone when its status is ahead of the ledger, until an epoch says otherwise", () => {
    const before = showing(decideRun(facts({ mirror: working({ version: 9 }) })));
    const object = runObject({}, {}, before);
    assert.equal(decideRun(facts({ object, mirror: working({ version: 8 }) })).do, "behind");
    const adopted = facts({ object, mirror: working({ version: 8 }), install: { ...INSTALL, epoch: 2 } });
    assert.deepEqual(showing(decideRun(adopted)).ledger, { epoch: 2, seq: 8 });
  });

  it("is stopped once when somebody cancels it, in his name", () => {
    const object = runObject({ cancel: { actor: "bob", reason: "enough" } });
    for (const mirror of [aMirror(), working(), pending()]) {
      const decision = decideRun(facts({ object, mirror }));
      assert.deepEqual(decision, {
        do: "stop",
        stop: {
          eventId: "event-1",
          extId: "cancel:run-uid",
          actor: { connector: "kubernetes", extId: "bob" },
          why: "enough",
        },
      });
    }
    for (const mirror of [working({ stop: true }), working({ replied: true }), replied("Done.")])
      assert.equal(decideRun(facts({ object, mirror })).do, "show");
  });

  it("is left to the installation that serves its Agent, and to nobody while that is open", () => {
    const before = showing(decideRun(facts({ mirror: working() })));
    const object = runObject({}, {}, before);
    assert.equal(decideRun(facts({ object, agent: anAgent({ holder: "other" }) })).do, "nothing");
    assert.equal(decideRun(facts({ mirror: working(), agent: anAgent({ holder: "other" }) })).do, "nothing");
    assert.equal(decideRun(facts({ agent: anAgent({ holder: "other" }) })).do, "nothing");
    assert.equal(decideRun(facts({ object, agent: anAgent({ holder: "nobody" }) })).do, "nothing");
    assert.equal(decideRun(facts({ object, agent: undefined })).do, "nothing");
    assert.equal(decideRun(facts({ agent: undefined, enabled: false })).do, "nothing");
  });

  it("is nobody's to write when it is a mirror", () => {
    const object = runObject({ input: undefined, mirror: { runID: "22222222-2222-4222-8222-222222222222" } });
    assert.equal(decideRun(facts({ object })).do, "nothing");
  });
});

describe("a finished Run", () => {
  const finished = (spec: Record<string, unknown>, metadata: Record<string, unknown> = {}) => {
    const mirror = replied("Done.", { ended_at: at(-100), now: NOW });
    const status = showing(decideRun(facts({ object: runObject(spec, metadata), mirror })));
    return expiresIn(facts({ object: runObject(spec, metadata, status), mirror }));
  };

  it("stays unless its spec asks otherwise", () => {
    assert.equal(finished({}), undefined);
  });

  it("goes when its time is over, and not before", () => {
    assert.equal(finished({ ttlSecondsAfterFinished: 160 }), 60_000);
    assert.equal(finished({ ttlSecondsAfterFinished: 100 }), 0);
  });

  it("counts a replay's time from its own creation, so that nothing re-creates it in a loop", () => {
    const again = { uid: "new-uid", creationTimestamp: at(-10).toISOString() };
    assert.equal(finished({ ttlSecondsAfterFinished: 60 }, again), 50_000);
  });

  it("does not go before it has finished", () => {
    const mirror = working();
    const object = runObject({ ttlSecondsAfterFinished: 0 });
    const status = showing(decideRun(facts({ object, mirror })));
    assert.equal(
      expiresIn(facts({ object: runObject({ ttlSecondsAfterFinished: 0 }, {}, status), mirror })),
      undefined,
    );
  });
});
