import assert from "node:assert/strict";
import { type Condition, RUN_CONDITIONS, runStatus, setCondition } from "@pawl/crds";
import { KubeError } from "#kube/errors.ts";
import { AGENTS, type KubeObject, RUNS } from "#kube/resources.ts";
import { type Cluster, cluster, makeNamespace } from "./support/cluster.ts";

const NAMESPACE = "status";

describe("status", function () {
  this.timeout(120_000);
  let kube: Cluster;
  let made = 0;

  before(async () => {
    kube = await cluster();
    await makeNamespace(NAMESPACE);
  });

  const newRun = async (): Promise<{ namespace: string; name: string }> => {
    const ref = { namespace: NAMESPACE, name: `run-${++made}` };
    await kube.admin.create(RUNS, {
      metadata: ref,
      spec: { agentRef: { name: "helper" }, input: { text: "x", actor: "admin" } },
    });
    return ref;
  };
  const read = async (ref: { namespace: string; name: string }): Promise<KubeObject> => {
    const found = await kube.admin.get(RUNS, ref);
    assert.ok(found.found);
    return found.object;
  };
  const fenceOf = (object: KubeObject) => ({ resourceVersion: object.metadata.resourceVersion ?? "" });
  const write = async (ref: { namespace: string; name: string }, status: unknown) =>
    await kube.admin.applyStatus(RUNS, ref, fenceOf(await read(ref)), status);
  const refused = (words: RegExp) => (error: unknown) => {
    assert.ok(error instanceof KubeError, String(error));
    assert.deepEqual([error.code, error.kind], [422, "terminal"]);
    assert.match(error.message, words);
    return true;
  };

  describe("the ledger's version of a Run", () => {
    it("moves forward by sequence and by epoch, and may stand still", async () => {
      const ref = await newRun();
      for (const ledger of [
        { epoch: 1, seq: 5 },
        { epoch: 1, seq: 5 },
        { epoch: 1, seq: 6 },
        { epoch: 2, seq: 1 },
      ]) {
        await write(ref, { ledger, phase: "Running" });
      }
    });

    it("never moves back, neither by sequence nor by epoch", async () => {
      const ref = await newRun();
      await write(ref, { ledger: { epoch: 2, seq: 5 }, phase: "Running" });
      for (const ledger of [
        { epoch: 2, seq: 4 },
        { epoch: 1, seq: 9 },
      ]) {
        await assert.rejects(write(ref, { ledger, phase: "Queued" }), refused(/only moves forward/));
      }
    });

    it("cannot be dropped, alone or with the whole status, to begin again lower", async () => {
      const ref = await newRun();
      await write(ref, { ledger: { epoch: 2, seq: 5 }, phase: "Running" });
      await assert.rejects(write(ref, { phase: "Queued" }), refused(/once there, stays/));
      // Nothing left of it is, to the server, a null where an object belongs.
      await assert.rejects(write(ref, {}), refused(/once there, stays|must be of type object/));
      await assert.rejects(write(ref, undefined), refused(/once there, stays/));
      await assert.rejects(
        kube.admin.mergeStatus(RUNS, ref, fenceOf(await read(ref)), { ledger: null }),
        refused(/once there, stays/),
      );
      await assert.rejects(
        kube.admin.mergeStatus(RUNS, ref, fenceOf(await read(ref)), null),
        refused(/once there, stays/),
      );
      assert.deepEqual((await read(ref))["status"], { ledger: { epoch: 2, seq: 5 }, phase: "Running" });
    });

    it("holds for kubectl as for us, in words", async () => {
      const ref = await newRun();
      await write(ref, { ledger: { epoch: 2, seq: 5 } });
      const patch = JSON.stringify({ status: { ledger: { epoch: 1, seq: 1 } } });
      const said = await kube.kubectl([
        "patch",
        "run",
        ref.name,
        "-n",
        NAMESPACE,
        "--subresource=status",
        "--type=merge",
        "-p",
        patch,
      ]);
      assert.match(said.text, /status\.ledger only moves forward/);
    });

    it("does not hinder a cancellation or a label", async () => {
      const ref = await newRun();
      await write(ref, { ledger: { epoch: 2, seq: 5 } });
      const object = await kube.admin.merge(RUNS, ref, {
        spec: { cancel: { actor: "admin" } },
        metadata: { labels: { a: "b" } },
      });
      assert.deepEqual(object["status"], { ledger: { epoch: 2, seq: 5 } });
    });
  });

  describe("writing", () => {
    it("is refused once somebody else has written", async () => {
      const ref = await newRun();
      const stale = fenceOf(await read(ref));
      await write(ref, { phase: "Queued" });
      for (const attempt of [
        kube.admin.applyStatus(RUNS, ref, stale, { phase: "Running" }),
        kube.admin.mergeStatus(RUNS, ref, stale, { phase: "Running" }),
      ]) {
        await assert.rejects(
          attempt,
          (error: unknown) => error instanceof KubeError && error.kind === "conflict" && error.reason === "Conflict",
        );
      }
    });

    it("to a Run that is gone is a conflict and makes no new one", async () => {
      const ref = { namespace: NAMESPACE, name: "never" };
      await assert.rejects(
        kube.admin.applyStatus(RUNS, ref, { resourceVersion: "1" }, { phase: "Queued" }),
        (error: unknown) => error instanceof KubeError && error.kind === "conflict",
      );
      assert.equal((await kube.admin.get(RUNS, ref)).found, false);
    });

    it("takes away what is no longer said", async () => {
      const ref = await newRun();
      await write(ref, { phase: "Running", activity: "calling the model" });
      assert.deepEqual((await write(ref, { phase: "Succeeded" }))["status"], { phase: "Succeeded" });
    });

    it("changes nothing of the spec", async () => {
      const ref = await newRun();
      const before = await read(ref);
      const object = await kube.admin.merge(RUNS, ref, { status: { phase: "Succeeded" } });
      assert.deepEqual([object["status"], object["spec"]], [undefined, before["spec"]]);
    });

    it("of every field at its largest is accepted", async () => {
      const ref = await newRun();
      const long = (length: number) => "x".repeat(length);
      const at = "2026-01-01T00:00:00Z";
      const uuid = "0190a8b0-0000-7000-8000-000000000001";
      const status = {
        observedGeneration: 1,
        ledger: { epoch: Number.MAX_SAFE_INTEGER, seq: Number.MAX_SAFE_INTEGER },
        runID: uuid,
        requestID: uuid,
        phase: "AwaitingTool",
        reason: long(64),
        message: long(256),
        shape: "Loop",
        origin: "Applied",
        actor: long(253),
        boundary: {
          state: "Committed",
          restartable: "No",
          rule: "Coarse",
          why: long(128),
          committedAt: at,
          by: long(128),
          step: 9,
        },
        triggers: { total: 9, actors: Array.from({ length: 5 }, () => long(253)) },
        answeredBy: { name: long(253), runID: uuid },
        activity: long(64),
        waiting: {
          request: long(64),
          kind: "Approval",
          hash: long(64),
          since: at,
          tool: long(64),
          target: long(128),
          text: long(256),
        },
        interrupts: { total: 3, last: { relation: long(32), asked: long(32), done: long(32), reason: long(64) } },
        effects: {
          total: 9,
          unknown: 1,
          last: Array.from({ length: 3 }, () => ({ name: long(64), target: long(128), state: "Unknown" })),
        },
        answer: { bytes: 99_999, sha256: "a".repeat(64), preview: long(1_024) },
        usage: { steps: 1, modelCalls: 1, toolCalls: 1, inputTokens: 1, outputTokens: 1, tokens: 2, costUSD: 0.25 },
        workspace: { pod: long(253), isolated: true, restorable: true },
        queuePosition: 3,
        queuedAt: at,
        startedAt: at,
        finishedAt: at,
        took: long(32),
        traceID: "b".repeat(32),
        conditions: RUN_CONDITIONS.map((type) => ({
          type,
          status: "True",
          observedGeneration: 1,
          lastTransitionTime: at,
          reason: "Because",
          message: long(256),
        })),
      };
      assert.deepEqual(runStatus.safeParse(status).error?.issues, undefined);
      const object = await write(ref, status);
      assert.deepEqual(object["status"], status);
      assert.ok(JSON.stringify(object).length < 24 * 1_024, "a Run stays below 24 KiB");
    });
  });

  describe("conditions", () => {
    const finished = (generation: number): Condition[] =>
      setCondition(
        [],
        { type: "Finished", status: "True", reason: "Finished", message: "Done.", observedGeneration: generation },
        new Date(),
      );

    it("let kubectl wait return while it waits", async () => {
      const ref = await newRun();
      const waiting = kube.kubectl([
        "wait",
        "--for=condition=Finished",
        `run/${ref.name}`,
        "-n",
        NAMESPACE,
        "--timeout=60s",
      ]);
      await write(ref, { phase: "Succeeded", conditions: finished(1) });
      const said = await waiting;
      assert.deepEqual([said.code, said.text.trim()], [0, `run.pawl.dev/${ref.name} condition met`]);
    });

    it("let kubectl wait return at once when they were there before", async () => {
      const ref = await newRun();
      await write(ref, { phase: "Succeeded", conditions: finished(1) });
      const said = await kube.kubectl([
        "wait",
        "--for=condition=Finished",
        `run/${ref.name}`,
        "-n",
        NAMESPACE,
        "--timeout=60s",
      ]);
      assert.equal(said.code, 0, said.text);
    });

    it("must be stamped again after a change of the spec, or kubectl wait hangs", async () => {
      const ref = await newRun();
      await write(ref, { phase: "Succeeded", conditions: finished(1) });
      await kube.admin.merge(RUNS, ref, { spec: { cancel: { actor: "admin" } } });
      const wait = ["wait", "--for=condition=Finished", `run/${ref.name}`, "-n", NAMESPACE];
      assert.notEqual((await kube.kubectl([...wait, "--timeout=1s"])).code, 0);
      await write(ref, { phase: "Succeeded", conditions: finished(2) });
      assert.equal((await kube.kubectl([...wait, "--timeout=60s"])).code, 0);
    });

    it("outside the vocabulary are refused", async () => {
      const ref = await newRun();
      const condition = {
        type: "Done",
        status: "True",
        reason: "X",
        message: "",
        lastTransitionTime: "2026-01-01T00:00:00Z",
      };
      await assert.rejects(write(ref, { conditions: [condition] }), refused(/Unsupported value: "Done"/));
    });
  });

  describe("columns", () => {
    it("of a Run say where it stands and on which side of the boundary", async () => {
      const ref = await newRun();
      await write(ref, {
        phase: "Running",
        shape: "Loop",
        reason: "Working",
        actor: "admin",
        boundary: { restartable: "No" },
        usage: { steps: 3, tokens: 1_234 },
        startedAt: new Date().toISOString(),
        took: "4s",
      });
      const [head = "", line = ""] = (await kube.kubectl(["get", "run", ref.name, "-n", NAMESPACE])).text.split("\n");
      assert.deepEqual(head.split(/\s+/), [
        "NAME",
        "PHASE",
        "AGENT",
        "SHAPE",
        "RESTARTABLE",
        "STEPS",
        "STARTED",
        "TOOK",
        "AGE",
      ]);
      assert.match(line, new RegExp(`^${ref.name}\\s+Running\\s+helper\\s+Loop\\s+No\\s+3\\s+\\d+s\\s+4s\\s+\\d+s$`));
      const wide = (await kube.kubectl(["get", "run", ref.name, "-n", NAMESPACE, "-o", "wide"])).text;
      assert.match(wide, /REASON\s+ACTOR\s+TOKENS\s+COST\s+POD\s+PARENT/);
      assert.match(wide, /Working\s+admin\s+1234/);
    });

    it("of an Agent say whether it can work and why not", async () => {
      const ref = { namespace: NAMESPACE, name: "helper" };
      const { metadata } = await kube.admin.create(AGENTS, { metadata: ref, spec: { instructions: "x" } });
      const conditions = setCondition(
        [],
        { type: "Ready", status: "False", reason: "RefsNotResolved", message: "Secret x is missing." },
        new Date(),
      );
      await kube.admin.applyStatus(
        AGENTS,
        ref,
        { resourceVersion: metadata.resourceVersion ?? "" },
        { model: "m-1", active: 1, queued: 2, conditions },
      );
      const said = await kube.kubectl(["get", "agent", "helper", "-n", NAMESPACE]);
      assert.match(
        said.text,
        /NAME\s+READY\s+REASON\s+MODEL\s+ACTIVE\s+QUEUED\s+AGE\nhelper\s+False\s+RefsNotResolved\s+m-1\s+1\s+2\s+/,
      );
    });

    it("can be selected by: the agent and the phase are field selectors", async () => {
      const ref = await newRun();
      await write(ref, { phase: "BudgetExhausted" });
      const said = await kube.kubectl([
        "get",
        "runs",
        "-n",
        NAMESPACE,
        "--field-selector",
        "spec.agentRef.name=helper,status.phase=BudgetExhausted",
        "-o",
        "name",
      ]);
      assert.equal(said.text.trim(), `run.pawl.dev/${ref.name}`);
    });
  });
});
