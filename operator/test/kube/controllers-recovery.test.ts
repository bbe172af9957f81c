import assert from "node:assert/strict";
import { type AddressInfo, connect, createServer } from "node:net";
import { v7 as uuidv7 } from "uuid";
import type { RunStatus } from "@pawl/crds";
import { startControllers } from "#controllers/start.ts";
import { RUNS } from "#kube/resources.ts";
import { Database } from "#ledger/database.ts";
import { adoptLedger, claimLedger } from "#ledger/installation.ts";
import { listLiveAppliedKeys } from "#ledger/mirrors.ts";
import { eventually } from "./support/cluster.ts";
import { conditionOf, Controlled, isFinished, type Logged, recordingLog, tap } from "./support/controlled.ts";

/** What must be equal whatever happened on the way: not times, ids and versions. */
const endState = (status: RunStatus) => ({
  phase: status.phase,
  reason: status.reason,
  boundary: [status.boundary?.state, status.boundary?.restartable, status.boundary?.by],
  answer: status.answer,
  usage: status.usage,
  effects: status.effects,
  conditions: status.conditions?.map(({ type, status: verdict, reason }) => [type, verdict, reason]).toSorted(),
});

describe("controllers that are cut, doubled or restored", function () {
  this.timeout(120_000);
  let world: Controlled;
  beforeEach(async () => {
    world = await Controlled.make();
  });
  afterEach(() => world.close());

  /** A whole life: applied, claimed, one effect, answered. */
  async function live(name: string, step: (what: string, seen: (s: RunStatus) => boolean) => Promise<unknown>) {
    await world.run(name);
    await step("accepted", (s) => conditionOf(s, "Accepted")?.status === "True");
    const run = await world.claim();
    await step("at work", (s) => s.phase === "Running" || s.phase === "AwaitingTool");
    await world.effect(run);
    await step("committed", (s) => s.boundary?.restartable === "No");
    await world.answer(run, "Done.", 2);
    await step("ended", isFinished);
    return world.shows(name, "ended", isFinished);
  }

  it("reach the same end when killed after any one API write (C46)", async () => {
    await world.start();
    await world.agent("helper");
    await world.agentShows("helper", "Accepted", "True");
    const clean = endState(await live("clean", (what, seen) => world.shows("clean", what, seen)));
    await world.stopAll();
    let kills = 0;
    for (let nth = 1; nth <= 6; nth += 1) {
      const name = `cut-${nth}`;
      let killed = 0;
      // The write has been answered; whoever made it never hears of it, nor of anything else.
      const start = async (fatal: number) => {
        const died = Promise.withResolvers<void>();
        const { kube } = tap(world.cluster.admin, (write, count) => {
          if (count !== fatal || !(write.plural === "runs" || write.plural === "events")) return;
          killed += 1;
          died.resolve();
          throw new Error("killed");
        });
        const running = await world.start({ kube });
        return { running, died: died.promise };
      };
      const first = await start(nth);
      const replaced = first.died.then(async () => {
        await first.running.stop();
        await world.start();
      });
      const end = endState(await live(name, (what, seen) => world.shows(name, what, seen)));
      if (killed === 1) await replaced;
      kills += killed;
      await world.stopAll();
      assert.deepEqual(end, clean, `killed after write ${nth}`);
    }
    assert.ok(kills >= 4, `only ${kills} writes were there to be cut`);
    assert.equal(await world.messages(), 7, "each Run is one message");
    assert.deepEqual(await world.broken(), []);
  });

  it("do no harm to each other when both believe that they lead (C49)", async () => {
    // A leadership that lapses at once: each takes it from the other at every look.
    const config = { timing: { leaderMs: 1, pollMs: 20, sweepMs: 3_600_000 } };
    const [one, two] = await Promise.all([world.start({ config }), world.start({ config })]);
    await world.agent("helper");
    const names = Array.from({ length: 12 }, (_, n) => `run-${n}`);
    await Promise.all(names.map((name) => world.run(name)));
    await eventually("both to lead", async () => (one.leading() && two.leading() ? true : undefined));
    for (const _ of names) await world.answer(await world.claim(), "Done.");
    for (const name of names) {
      const status = await world.shows(name, "answered", isFinished);
      assert.equal(status.phase, "Succeeded");
      assert.equal(status.replayOf, undefined);
    }
    assert.equal(await world.messages(), names.length);
    assert.deepEqual(await world.broken(), []);
  });

  it("leave the work to one of two, and let the other take over", async () => {
    const config = { timing: { leaderMs: 600, pollMs: 20, sweepMs: 3_600_000 } };
    const one = await world.start({ config });
    await eventually("the first to lead", async () => (one.leading() ? true : undefined));
    const two = await world.start({ config });
    await eventually("the second to be ready", async () => (two.ready() ? true : undefined));
    await world.agent("helper");
    await world.run("one");
    await world.shows("one", "accepted", (s) => conditionOf(s, "Accepted")?.status === "True");
    assert.equal(two.leading(), false);
    await one.stop();
    await world.answer(await world.claim(), "Done.");
    await world.shows("one", "answered", isFinished);
    assert.equal(two.leading(), true);
  });

  it("show a Run that is applied again what was answered, and do not ask again", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("one");
    await world.answer(await world.claim(), "The first answer.");
    await world.shows("one", "answered", isFinished);
    await world.deleteRun("one");
    await world.run("one");
    const again = await world.shows("one", "answered from the ledger", isFinished);
    assert.equal(conditionOf(again, "Accepted")?.reason, "Replayed");
    assert.match(conditionOf(again, "Accepted")?.message ?? "", /generateName or idempotencyKey/);
    assert.equal(again.replayOf, "one");
    assert.equal(again.answer?.preview, "The first answer.");
    assert.equal(await world.messages(), 1);
  });

  it("refuse a key that was used for something else, and take a new one", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("one", { idempotencyKey: "k" });
    await world.shows("one", "accepted", (s) => conditionOf(s, "Accepted")?.status === "True");
    await world.run("two", { idempotencyKey: "k", input: { text: "Something else.", actor: "admin" } });
    const refused = await world.shows("two", "refused", isFinished);
    assert.equal(conditionOf(refused, "Accepted")?.reason, "KeyReused");
    assert.match(refused.message ?? "", /another name, with generateName/);
    await world.run("three", { idempotencyKey: "l", input: { text: "Something else.", actor: "admin" } });
    await world.shows("three", "accepted", (s) => conditionOf(s, "Accepted")?.status === "True");
    assert.equal(await world.messages(), 2);
  });

  it("take each object with a generated name as a message of its own", async () => {
    await world.start();
    await world.agent("helper");
    const spec = { agentRef: { name: "helper" }, input: { text: "again", actor: "admin" } };
    for (let n = 0; n < 2; n += 1) {
      const created = await world.cluster.kubectl(["-n", world.namespace, "create", "-f", "-"], {
        apiVersion: "pawl.dev/v1alpha1",
        kind: "Run",
        metadata: { generateName: "again-" },
        spec,
      });
      assert.equal(created.code, 0, created.text);
    }
    await eventually("two messages", async () => ((await world.messages()) === 2 ? true : undefined));
  });

  it("end what a lost ledger cannot know, without asking again", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("done");
    await world.answer(await world.claim(), "An answer.");
    await world.shows("done", "answered", isFinished);
    await world.run("open");
    await world.claim();
    await world.shows("open", "at work", (s) => s.phase === "Running");
    await world.stopAll();

    const empty = new Database({ url: await world.postgres.create() });
    try {
      await world.start({ db: empty, config: { timing: { takeoverMs: 100, pollMs: 20, sweepMs: 3_600_000 } } });
      const lost = await world.shows("open", "lost", (s) => s.reason === "LedgerLost");
      assert.equal(lost.phase, "Failed");
      assert.equal(conditionOf(lost, "Finished")?.status, "True");
      assert.match(lost.message ?? "", /does not know this Run/);
      const kept = await world.shows("done", "as it was", isFinished);
      assert.equal(kept.phase, "Succeeded");
      assert.deepEqual(await listLiveAppliedKeys(empty), []);
      await world.stopAll();
    } finally {
      await empty.close();
    }
  });

  it("run no message twice when two installs serve the same namespace", async () => {
    const timing = { takeoverMs: 300, pollMs: 20, sweepMs: 3_600_000 };
    await world.start({ config: { timing } });
    await world.agent("helper");
    await world.agentShows("helper", "Accepted", "True");
    // A ledger born in another second is another installation.
    const second = new Database({ url: await world.postgres.create() });
    await claimLedger(second, await world.cluster.admin.kubeSystemUid(), new Date(Date.now() - 60_000));
    try {
      const { kube, writes } = tap(world.cluster.admin);
      const { lines } = await world.start({ db: second, kube, config: { timing } });
      await eventually("the second to give up", async () =>
        lines.find(({ level, message }) => level === "error" && message.includes("another installation serves")),
      );
      await world.run("one");
      await world.answer(await world.claim(), "Once.");
      await world.shows("one", "answered", isFinished);
      await world.agentShows("helper", "Accepted", "True");
      assert.deepEqual(await listLiveAppliedKeys(second), []);
      assert.equal(await world.messages(), 1);
      assert.deepEqual(
        writes.filter(({ plural }) => plural === "runs"),
        [],
        "it writes nothing about Runs that are not its own",
      );
      assert.equal(writes.filter(({ plural }) => plural === "agents").length, 1, "it has asked once");
      await world.stopAll();
    } finally {
      await second.close();
    }
  });

  it("leave each other's namespaces alone when two installs share a cluster", async () => {
    const elsewhere = await Controlled.make();
    try {
      const taps = [tap(world.cluster.admin), tap(world.cluster.admin)] as const;
      await elsewhere.start({ kube: taps[1].kube });
      await claimLedger(world.db, await world.cluster.admin.kubeSystemUid(), new Date(Date.now() - 60_000));
      await world.start({ kube: taps[0].kube });
      for (const one of [world, elsewhere]) {
        await one.agent("helper");
        await one.run("one");
        await one.answer(await one.claim(), "Mine.");
        await one.shows("one", "answered", isFinished);
        await one.agentShows("helper", "Accepted", "True");
      }
      const before = taps.map(({ writes }) => writes.length);
      // Long enough for a quarrel to show: every look at the ledger is followed by looks at the objects.
      const looks = world.db.counted.statements;
      await eventually("many looks", async () => (world.db.counted.statements > looks + 200 ? true : undefined));
      const after = taps.map(({ writes }) => writes.length);
      assert.ok(
        after.every((count, n) => count - (before[n] ?? 0) <= 4),
        `${before.join()} → ${after.join()}`,
      );
      assert.deepEqual([await world.messages(), await elsewhere.messages()], [1, 1]);
    } finally {
      await elsewhere.close();
    }
  });

  it("write nothing when nothing changes", async () => {
    const { kube, writes } = tap(world.cluster.admin);
    await world.start({ kube, config: { timing: { pollMs: 5, lookAtAllMs: 50, sweepMs: 50, quietMs: 10 } } });
    await world.agent("helper");
    await world.agentShows("helper", "Accepted", "True");
    await world.run("done");
    await world.answer(await world.claim(), "Done.");
    await world.shows("done", "answered", isFinished);
    await world.run("waits", { agentRef: { name: "nobody" } });
    await world.shows("waits", "waits", (s) => s.reason === "AgentNotFound");
    await world.agentShows("helper", "Accepted", "True");
    const looks = world.db.counted.statements;
    await eventually("the last Events", async () => (world.db.counted.statements > looks + 100 ? true : undefined));
    const settled = writes.length;
    await eventually("many looks", async () => (world.db.counted.statements > looks + 600 ? true : undefined));
    assert.deepEqual(writes.slice(settled), []);
  });

  it("refuse a ledger of another cluster, saying what to do", async () => {
    await adoptLedger(world.db, uuidv7(), new Date());
    await assert.rejects(world.start(), (error: Error & { kind?: string; reason?: string }) => {
      assert.equal(error.kind, "terminal");
      assert.equal(error.reason, "ForeignLedger");
      assert.match(error.message, /adopt-ledger/);
      return true;
    });
  });

  it("do not run what is older than the ledger", async () => {
    await world.agent("helper");
    await world.run("old");
    const later = new Date(Date.now() + 60_000);
    await adoptLedger(world.db, await world.cluster.admin.kubeSystemUid(), later);
    await world.start();
    const old = await world.shows("old", "refused", isFinished);
    assert.equal(conditionOf(old, "Accepted")?.reason, "OlderThanInstallation");
    assert.match(old.message ?? "", /another name/);
    assert.equal(await world.messages(), 0);
  });

  it("leave a status alone that is ahead of a ledger restored from an older copy", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("one");
    const run = await world.claim();
    await world.shows("one", "at work", (s) => s.phase === "Running");
    await world.stopAll();
    await world.sql(`update runs set version = version - 1 where id = '${run.runId}'`);
    const before = await world.get("one");
    const { lines } = await world.start();
    await eventually("it to be said", async () => lines.find(({ message }) => message.includes("left as it is")));
    assert.deepEqual(await world.get("one"), before);
  });

  it("go on when the API server comes back", async () => {
    const { lines } = await world.start();
    await world.agent("helper");
    await world.run("one");
    const run = await world.claim();
    await world.shows("one", "at work", (s) => s.phase === "Running");
    await world.cluster.plane.kill9();
    await world.effect(run);
    await world.answer(run, "Meanwhile.", 2);
    await eventually("the outage to be said", async () =>
      lines.find(({ level, fields }) => level === "warn" && fields["watch"] === "runs"),
    );
    await world.cluster.plane.restart();
    const done = await world.shows("one", "answered", isFinished);
    assert.equal(done.answer?.preview, "Meanwhile.");
    const said = lines.filter(({ level, fields }) => level === "warn" && fields["watch"] === "runs");
    assert.ok(said.length <= 2, `an outage is said once, not ${said.length} times`);
    assert.equal(await world.messages(), 1);
  });

  it("go on when the database comes back, having cut every connection (C36)", async () => {
    const { lines } = await world.start();
    await world.agent("helper");
    await world.agentShows("helper", "Accepted", "True");
    const name = new URL(world.url).pathname.slice(1);
    const cut = () =>
      world.postgres.admin(`select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`);
    await world.postgres.admin(`alter database ${name} allow_connections false`);
    await cut();
    await world.run("one");
    await eventually("the outage to be said", async () => lines.find(({ level }) => level === "warn"));
    await world.postgres.admin(`alter database ${name} allow_connections true`);
    const accepted = await world.shows("one", "accepted", (s) => conditionOf(s, "Accepted")?.status === "True");
    assert.equal(conditionOf(accepted, "Accepted")?.reason, "Accepted");
    await cut();
    await world.answer(await world.claim(), "Done.");
    await cut();
    await world.shows("one", "answered", isFinished);
    assert.equal(await world.messages(), 1);
  });

  it("wait at their start for a database that is not there yet, saying so once", async () => {
    let there = false;
    const door = createServer((socket) => {
      if (!there) return void socket.destroy();
      const inner = connect(world.postgres.port, "127.0.0.1");
      socket.on("error", () => inner.destroy());
      inner.on("error", () => socket.destroy());
      socket.pipe(inner).pipe(socket);
    });
    await new Promise<void>((resolve) => door.listen(0, "127.0.0.1", resolve));
    const url = new URL(world.url);
    url.port = String((door.address() as AddressInfo).port);
    const db = new Database({ url: url.href });
    const lines: Logged[] = [];
    const stop = new AbortController();
    const starting = startControllers({
      kube: world.cluster.admin,
      db,
      config: world.config(),
      log: recordingLog(lines),
      signal: stop.signal,
    });
    await eventually("it to be said", async () => lines.find(({ level }) => level === "warn"));
    there = true;
    const controllers = await starting;
    await eventually("it to be ready", async () => (controllers.ready() ? true : undefined));
    assert.deepEqual(
      lines.filter(({ message }) => message.includes("away") || message.includes("back")).map(({ level }) => level),
      ["warn", "info"],
    );
    stop.abort();
    await controllers.stopped;
    await db.close();
    await new Promise((resolve) => door.close(resolve));
  });

  it("end at once when told to while they wait", async () => {
    const nowhere = new Database({ url: "postgres://nobody@127.0.0.1:1/none" });
    const stop = new AbortController();
    const starting = startControllers({
      kube: world.cluster.admin,
      db: nowhere,
      config: world.config(),
      log: recordingLog([]),
      signal: stop.signal,
    });
    stop.abort();
    const controllers = await starting;
    assert.equal(controllers.ready(), false);
    await controllers.stopped;
    await nowhere.close();
  });

  it("notice a Run that went while nobody watched", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("one");
    await world.claim();
    await world.shows("one", "at work", (s) => s.phase === "Running");
    await world.stopAll();
    await world.deleteRun("one");
    await world.start({ config: { timing: { sweepMs: 50, absenceMs: 100, pollMs: 20 } } });
    await eventually("the turn's end", async () => {
      const { rows } = await world.sql("select status from runs");
      return rows[0].status === "cancelled" ? true : undefined;
    });
    assert.deepEqual(await world.broken(), []);
  });

  it("notice an Agent that went while nobody watched, and stop what it had begun", async () => {
    await world.start();
    await world.agent("helper");
    await world.run("one");
    await world.claim();
    await world.shows("one", "at work", (s) => s.phase === "Running");
    await world.stopAll();
    await world.deleteAgent("helper");
    await world.start({ config: { timing: { sweepMs: 50, absenceMs: 100, pollMs: 20 } } });
    const ended = await world.shows("one", "ended", isFinished);
    assert.equal(ended.phase, "Cancelled");
    const { rows } = await world.sql("select suspended from agents");
    assert.deepEqual(rows, [{ suspended: true }], "and nothing new starts");
    assert.deepEqual(await world.broken(), []);
  });

  it("do not believe that very many Runs went at once", async () => {
    await world.start();
    await world.agent("helper");
    const names = Array.from({ length: 12 }, (_, n) => `run-${n}`);
    await Promise.all(names.map((name) => world.run(name)));
    await eventually("twelve messages", async () => ((await world.messages()) === 12 ? true : undefined));
    await world.stopAll();
    for (const name of names) await world.deleteRun(name);
    const { lines } = await world.start({ config: { timing: { sweepMs: 50, absenceMs: 10, pollMs: 20 } } });
    await eventually("two sweeps that refuse", async () =>
      lines.filter(({ level }) => level === "error").length >= 2 ? true : undefined,
    );
    assert.equal((await listLiveAppliedKeys(world.db)).length, 12, "every turn goes on");
  });

  it("reconcile the others while one Run cannot be written (C44)", async () => {
    const { kube } = tap(world.cluster.admin);
    const broken = new Proxy(kube, {
      get(target, property) {
        const value = Reflect.get(target, property, target) as unknown;
        if (property !== "applyStatus") return value;
        const write = value as (...args: unknown[]) => Promise<unknown>;
        return async (...args: unknown[]) => {
          if ((args[1] as { name: string }).name === "bad") throw new Error("cannot be written");
          return write(...args);
        };
      },
    });
    const { lines } = await world.start({ kube: broken });
    await world.agent("helper");
    await world.agentShows("helper", "Accepted", "True");
    await world.run("bad");
    await world.run("good");
    await world.shows("good", "accepted", (s) => conditionOf(s, "Accepted")?.status === "True");
    await eventually("it to be said", async () =>
      lines.find(({ fields }) => fields["run"] === `${world.namespace}/bad`),
    );
    // Its message is taken; only its status lags.
    await eventually("both messages", async () => ((await world.messages()) === 2 ? true : undefined));
  });

  it("admit one message however often and by whomever an object is looked at", async () => {
    await Promise.all(
      [1, 2, 3].map(() => world.start({ config: { timing: { leaderMs: 1, pollMs: 5, lookAtAllMs: 5 } } })),
    );
    await world.agent("helper");
    await world.run("one");
    await world.answer(await world.claim(), "Once.");
    const done = await world.shows("one", "answered", isFinished);
    assert.equal(conditionOf(done, "Accepted")?.reason, "Accepted");
    assert.equal(await world.messages(), 1);
    const { items } = await world.cluster.admin.listPage(RUNS, { namespace: world.namespace }, { limit: 10 });
    assert.equal(items.length, 1);
  });
});
