/** Approvals on a real API server: who may say what is admission's; what counts is the ledger's. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { v7 as uuidv7 } from "uuid";
import { parse } from "yaml";
import type { DecisionStatus } from "@pawl/crds";
import type { KubeClient } from "#kube/client.ts";
import { KubeError } from "#kube/errors.ts";
import { DECISIONS, EVENTS, type KubeObject, type Resource } from "#kube/resources.ts";
import { parkForApproval } from "#ledger/approvals.ts";
import { settleEffect } from "#ledger/effects.ts";
import { commitResults } from "#ledger/steps.ts";
import { aQuestion, ask } from "../support/questions.ts";
import { aCall, cross, respond } from "../support/world.ts";
import { type Cluster, cluster, CONTROLLER, eventually } from "./support/cluster.ts";
import { conditionOf, Controlled, isFinished } from "./support/controlled.ts";

const HASH = "0123456789abcdef".repeat(4);
const rbac = (plural: string, kind: string): Resource => ({
  group: "rbac.authorization.k8s.io",
  version: "v1",
  plural,
  kind,
  namespaced: true,
});

describe("Decisions on a real API server", function () {
  this.timeout(120_000);
  let kube: Cluster;
  let world: Controlled;
  let approver: KubeClient;
  let user: KubeClient;

  async function grant(
    name: string,
    users: readonly string[],
    rules: readonly Record<string, unknown>[],
  ): Promise<void> {
    const metadata = { name, namespace: world.namespace };
    await kube.admin.create(rbac("roles", "Role"), { metadata, rules });
    await kube.admin.create(rbac("rolebindings", "RoleBinding"), {
      metadata,
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name },
      subjects: users.map((one) => ({ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: one })),
    });
  }

  const decision = (name: string, spec: Record<string, unknown> = {}) => ({
    metadata: { name, namespace: world.namespace },
    spec: { subject: { kind: "Run", name: "one" }, request: uuidv7(), verdict: "Approve", hash: HASH, ...spec },
  });

  before(async () => {
    kube = await cluster();
    [approver, user] = [kube.as("approver"), kube.as("user")];
  });
  beforeEach(async () => {
    world = await Controlled.make();
    const decisions = { apiGroups: ["pawl.dev"], resources: ["decisions"], verbs: ["create", "get", "list"] };
    await grant(
      "approvers",
      ["approver"],
      [decisions, { apiGroups: ["pawl.dev"], resources: ["runs", "workgraphs"], verbs: ["approve"] }],
    );
    await grant("users", ["user"], [decisions, { apiGroups: ["pawl.dev"], resources: ["runs"], verbs: ["answer"] }]);
    await eventually("the policies and the rights to be in force", async () => {
      const probe = { dryRun: true };
      const forged = await approver
        .create(DECISIONS, decision("probe", { actor: "eve" }), probe)
        .then(() => "", String);
      const filled = await approver.create(DECISIONS, decision("probe"), probe).catch(() => undefined);
      return forged.includes("pawl-decision") && filled !== undefined ? true : undefined;
    });
  });
  afterEach(() => world.close());

  const refusedBy = (policy: string, words: RegExp, attempt: Promise<unknown>) =>
    assert.rejects(attempt, (error: unknown) => {
      assert.ok(error instanceof KubeError, String(error));
      assert.equal(error.code, 403, error.message);
      assert.match(error.message, new RegExp(`pawl-${policy}.*${words.source}`, "s"));
      return true;
    });

  /** A Run of admin's whose call waits for a person, played as a worker would. */
  async function waiting(spec: { expiresMs?: number } = {}, name = "one") {
    await world.agent("helper");
    await world.run(name);
    const run = await world.claim();
    const call = aCall({ gate: "open", target: "issue/1" });
    await respond(world.db, run, [call], { seenSeq: 1_000 });
    const request = uuidv7();
    const parked = await parkForApproval(world.db, {
      ...run,
      nonce: uuidv7(),
      callId: call.id,
      requests: [{ id: request, call: call.id, hash: HASH }],
      approvers: null,
      requesterMayApprove: false,
      expiresMs: spec.expiresMs ?? 60_000,
      message: `a person must decide on http_request (issue/1): apply a Decision that names request ${request} and its hash`,
      seenSeq: 1_000,
    });
    assert.equal(parked.kind, "parked");
    return { run, call, request };
  }

  async function says(name: string, state: DecisionStatus["state"], reason: string): Promise<KubeObject> {
    let last: unknown;
    return eventually(`${name}: ${state}/${reason}`, async () => {
      const got = await kube.admin.get(DECISIONS, { namespace: world.namespace, name });
      last = got.found ? got.object["status"] : got;
      const status = (got.found ? got.object["status"] : undefined) as DecisionStatus | undefined;
      return got.found && status !== undefined && status.state === state && status.reason === reason
        ? got.object
        : undefined;
    }).catch((error: unknown) => {
      throw new Error(`${String(error)}; last seen: ${JSON.stringify(last)}`);
    });
  }

  const rowsOf = async (request: string) =>
    (
      await world.sql(
        `select actor, asked, done, why from approval_decisions where approval_id = '${request}' order by at`,
      )
    ).rows;

  describe("are admitted", () => {
    it("signed by whoever creates them, with his groups", async () => {
      const made = await approver.create(DECISIONS, decision("filled"));
      const spec = made["spec"] as { actor?: string; groups?: string[] };
      assert.equal(spec.actor, "approver");
      assert.deepEqual(spec.groups, ["system:authenticated"]);
    });

    it("not in anybody else's name, nor with groups of others", async () => {
      await refusedBy(
        "decision",
        /spec\.actor must be approver.*not eve/,
        approver.create(DECISIONS, decision("a", { actor: "eve" })),
      );
      await refusedBy(
        "decision",
        /groups of yours only/,
        approver.create(DECISIONS, decision("b", { groups: ["system:authenticated", "release-managers"] })),
      );
    });

    it("from those alone who have the verb approve on that Run (C53)", async () => {
      await refusedBy("decision", /user may not approve runs\.pawl\.dev one/, user.create(DECISIONS, decision("a")));
      await refusedBy(
        "decision",
        /may not approve/,
        user.create(DECISIONS, decision("b", { verdict: "Landed", hash: undefined })),
      );
      await refusedBy(
        "decision",
        /approver may not answer runs/,
        approver.create(DECISIONS, decision("c", { verdict: "Answer", hash: undefined, text: "x" })),
      );
      await user.create(DECISIONS, decision("d", { verdict: "Answer", hash: undefined, text: "x" }));
    });

    it("from nobody else either: not even Pawl's own account may decide", async () => {
      await grant(
        "own-account",
        [CONTROLLER],
        [{ apiGroups: ["pawl.dev"], resources: ["decisions"], verbs: ["create"] }],
      );
      const own = kube.as(CONTROLLER);
      await eventually("the right", () =>
        own.create(DECISIONS, decision("a")).then(
          () => assert.fail("was accepted"),
          (error: unknown) => (String(error).includes("pawl-decision") ? error : undefined),
        ),
      ).then((error) => assert.match(String(error), /may not approve/));
    });

    it("with a verb on one Run for that Run only", async () => {
      await grant(
        "one-only",
        ["narrow"],
        [
          { apiGroups: ["pawl.dev"], resources: ["decisions"], verbs: ["create"] },
          { apiGroups: ["pawl.dev"], resources: ["runs"], verbs: ["approve"], resourceNames: ["one"] },
        ],
      );
      const narrow = kube.as("narrow");
      await eventually("the right", () =>
        narrow.create(DECISIONS, decision("a"), { dryRun: true }).catch(() => undefined),
      );
      const other = { subject: { kind: "Run", name: "two" } };
      await refusedBy(
        "decision",
        /may not approve runs\.pawl\.dev two/,
        narrow.create(DECISIONS, decision("b", other)),
      );
    });
  });

  it("let a call run that somebody else than its requester approves, and are owned by its Run", async () => {
    await world.start();
    const { run, request } = await waiting();
    const shown = await world.shows("one", "waits", (s) => s.waiting !== undefined);
    assert.deepEqual(
      [shown.phase, shown.reason, shown.waiting?.request, shown.waiting?.hash, shown.waiting?.target],
      ["AwaitingTool", "WaitingForApproval", request, HASH, "issue/1"],
    );
    assert.equal(conditionOf(shown, "WaitingForHuman")?.reason, "Approval");

    await approver.create(DECISIONS, decision("yes", { request, reason: "looked at it" }));
    const applied = await says("yes", "Applied", "Approved");
    await world.shows("one", "goes on", (s) => s.waiting === undefined);
    assert.deepEqual(await rowsOf(request), [{ actor: "approver", asked: "approve", done: "approved", why: null }]);
    const again = await world.claim();
    assert.equal(again.runId, run.runId);
    const owned = await eventually("its owner", async () => {
      const got = await kube.admin.get(DECISIONS, { namespace: world.namespace, name: "yes" });
      return got.found
        ? ((got.object.metadata["ownerReferences"] as { uid: string }[] | undefined) ?? undefined)
        : undefined;
    });
    assert.deepEqual(
      owned.map(({ uid }) => uid),
      [(await world.get("one"))?.metadata.uid],
    );
    assert.equal((applied["spec"] as { actor: string }).actor, "approver");
    const reasons = await eventually("the events", async () => {
      const events = await kube.admin.list(EVENTS, { namespace: world.namespace });
      const seen = events.map((event) => String(event["reason"]));
      return seen.includes("ApprovalRequested") && seen.includes("Approved") ? seen : undefined;
    });
    assert.ok(!reasons.includes("Rejected"));
    assert.deepEqual(await world.broken(), []);
  });

  it("answer a question of a Run, the first one, as the sample does (samples/question)", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("painting");
    const run = await world.claim();
    const call = aQuestion();
    await respond(world.db, run, [call], { seenSeq: 1_000 });
    assert.equal(await ask(world.db, { ...run, call }, { seenSeq: 1_000 }), "parked");
    const shown = await world.shows("painting", "asks", (s) => s.phase === "AwaitingInput");
    assert.deepEqual(
      [shown.reason, shown.waiting?.kind, shown.waiting?.text],
      ["Question", "Question", "Which colour?"],
    );
    assert.equal(conditionOf(shown, "WaitingForHuman")?.reason, "Question");

    const sample = await readFile(new URL("../../../samples/question/answer.yaml", import.meta.url), "utf8");
    const { spec } = parse(sample.replace("request: REQUEST", `request: ${shown.waiting?.request}`)) as {
      spec: Record<string, unknown>;
    };
    const said = (name: string) => ({ metadata: { name, namespace: world.namespace }, spec });
    await user.create(DECISIONS, said("green"));
    await says("green", "Applied", "Answered");
    await user.create(DECISIONS, said("late"));
    const late = await says("late", "Late", "AlreadyAnswered");
    assert.match((late["status"] as DecisionStatus).message ?? "", /answered before by user: .*apply a Run/);
    await world.shows("painting", "goes on", (s) => s.waiting === undefined && s.phase === "Running");
    assert.equal((await world.claim()).runId, run.runId);
    const { rows } = await world.sql(`select outcome, result from tool_calls where id = '${call.id}'`);
    assert.deepEqual(rows, [{ outcome: "real", result: "[answer of user] The same green as the gate." }]);
    await eventually("the events", async () => {
      const events = await kube.admin.list(EVENTS, { namespace: world.namespace });
      const seen = new Set(events.map((event) => String(event["reason"])));
      return seen.has("QuestionAsked") && seen.has("Answered") ? seen : undefined;
    });
    assert.deepEqual(await world.broken(), []);
  });

  it("are refused by the ledger when the requester makes one, which is kept; nothing is approved by it", async () => {
    await world.start();
    const { request } = await waiting();
    await kube.admin.create(DECISIONS, decision("own", { request }));
    const refused = await says("own", "Refused", "RequesterMayNotApprove");
    assert.match((refused["status"] as DecisionStatus).message ?? "", /somebody else must approve it/);
    await approver.create(DECISIONS, decision("guessed", { request, hash: "f".repeat(64) }));
    await says("guessed", "Refused", "HashDiffers");
    assert.deepEqual(
      (await rowsOf(request)).map((row) => Object.values(row as object)),
      [
        ["admin", "approve", "refused", "RequesterMayNotApprove"],
        ["approver", "approve", "refused", "HashDiffers"],
      ],
    );
    const still = await world.shows("one", "still waits", (s) => s.waiting !== undefined);
    assert.equal(still.reason, "WaitingForApproval");
  });

  it("are late after the first one, also under the same name again", async () => {
    await world.start();
    const { request } = await waiting();
    await approver.create(
      DECISIONS,
      decision("no", { request, verdict: "Reject", hash: undefined, reason: "not today" }),
    );
    await says("no", "Applied", "Rejected");
    await kube.admin.delete(DECISIONS, { namespace: world.namespace, name: "no" }, {});
    await approver.create(DECISIONS, decision("no", { request }));
    const late = await says("no", "Late", "AlreadyDecided");
    assert.match((late["status"] as DecisionStatus).message ?? "", /decided before by approver \(rejected\)/);
    const { rows } = await world.sql(
      `select gate from tool_calls c join approvals a on a.call_id = c.id where a.id = '${request}'`,
    );
    assert.deepEqual(rows, [{ gate: "rejected" }]);
  });

  it("are late once the time is over, and once the turn has ended", async () => {
    await world.start();
    const two = await waiting({}, "two");
    await world.deleteRun("two");
    await eventually("the turn to end", async () => {
      const { rows } = await world.sql(`select live from runs where id = '${two.run.runId}'`);
      return (rows[0] as { live: boolean }).live ? undefined : true;
    });
    const subject = { kind: "Run", name: "two" };
    await approver.create(DECISIONS, decision("gone", { request: two.request, subject }));
    await says("gone", "Refused", "RunNotFound");
    const { request } = await waiting({ expiresMs: 1 });
    await approver.create(DECISIONS, decision("late", { request }));
    await says("late", "Late", "Expired");
  });

  it("about another Run's request, or about nothing, count for nothing", async () => {
    await world.start();
    const { request } = await waiting();
    await world.run("two");
    await approver.create(DECISIONS, decision("a", { request, subject: { kind: "Run", name: "two" } }));
    await says("a", "Refused", "RequestNotFound");
    await approver.create(DECISIONS, decision("b", { request: "the one above" }));
    await says("b", "Refused", "RequestNotFound");
    await approver.create(DECISIONS, decision("c", { request, subject: { kind: "Run", name: "nobody" } }));
    await says("c", "Refused", "RunNotFound");
    await user.create(DECISIONS, decision("d", { request, verdict: "Answer", hash: undefined, text: "I approve" }));
    await says("d", "Refused", "RequestNotFound");
    assert.deepEqual(await rowsOf(request), []);
  });

  it("that were made while no controller ran are applied once by whoever comes", async () => {
    const first = await world.start();
    const { request } = await waiting();
    await world.shows("one", "waits", (s) => s.waiting !== undefined);
    await first.stop();
    await approver.create(DECISIONS, decision("yes", { request }));
    await Promise.all([world.start(), world.start()]);
    await says("yes", "Applied", "Approved");
    assert.equal((await rowsOf(request)).length, 1);
  });

  it("say what became of a change whose outcome nobody saw, also after the turn ended, and its Run shows it soon", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("one");
    const run = await world.claim();
    const call = aCall({ target: "issue/1" });
    await respond(world.db, run, [call], { seenSeq: 1_000 });
    const { request: effect } = await cross(world.db, run, call, { seenSeq: 1_000 });
    await settleEffect(world.db, { ...effect, state: "unknown", receipt: null, observation: "no answer" });
    await commitResults(world.db, { ...run, nonce: uuidv7() }, [{ id: call.id, outcome: "unknown", result: "?" }]);
    await world.answer(run, "Perhaps.", 2);
    await world.shows("one", "ended", (s) => isFinished(s) && s.effects?.unknown === 1);
    const spec = { request: effect.effectId, verdict: "Landed", hash: undefined, reason: "it is in the list" };
    await approver.create(DECISIONS, decision("seen", spec));
    await says("seen", "Applied", "Landed");
    await world.shows("one", "nothing unknown", (s) => s.effects?.unknown === 0);
    await approver.create(DECISIONS, decision("again", { ...spec, verdict: "NotLanded" }));
    await says("again", "Late", "AlreadySettled");
    await world.run("two");
    await approver.create(DECISIONS, decision("other", { ...spec, subject: { kind: "Run", name: "two" } }));
    await says("other", "Refused", "RequestNotFound");
  });
});
