/** The real process: what it says when it waits, when it is set up wrongly, and when it is told to stop. */
import assert from "node:assert/strict";
import { type ExecFileException, execFile } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type Server } from "node:net";
import { join } from "node:path";
import { v7 as uuidv7 } from "uuid";
import { migrate } from "#ledger/migrate.ts";
import { Database } from "#ledger/database.ts";
import { ingest } from "#ledger/mailbox.ts";
import { drain, engineAgent, bench, says, writer, lost, asks } from "../support/engine.ts";
import { useLedger } from "../support/postgres.ts";
import { outcomeOf, rowOf, scene, useReality } from "../support/reality.ts";
import { freePort } from "../support/restartable.ts";
import { isPawlError } from "#rules/errors.ts";
import { readConfig } from "#src/config.ts";
import { parseRoles } from "#src/main.ts";
import { serve } from "#src/serve.ts";
import { aMessage, NAMESPACE_UID } from "../support/world.ts";
import { WorkerProcess } from "../sweep/process.ts";

const MAIN = join(import.meta.dirname, "../../src/main.ts");

type Ended = { code: number; out: string; err: string };

function pawl(args: readonly string[], env: Record<string, string> = {}): Promise<Ended> {
  return new Promise((resolve) => {
    const options = {
      env: { PATH: process.env["PATH"] ?? "", PAWL_KUBERNETES: "none", PAWL_LISTEN: "127.0.0.1:0", ...env },
    };
    execFile(process.execPath, [MAIN, ...args], options, (error: ExecFileException | null, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    );
  });
}

/** What stands at a port from one moment on: passes everything on to the database. */
async function passOn(port: number, to: number): Promise<Server> {
  const server = createServer((client) => {
    const upstream = connect(to, "127.0.0.1");
    for (const socket of [client, upstream]) {
      socket.on("error", () => {});
      socket.on("close", () => {
        client.destroy();
        upstream.destroy();
      });
    }
    client.pipe(upstream);
    upstream.pipe(client);
  }).listen(port, "127.0.0.1");
  await once(server, "listening");
  return server;
}

async function probe(worker: WorkerProcess, path: string): Promise<[number, string]> {
  const { port } = await worker.said((line) => line.msg === "listening");
  const answer = await fetch(`http://127.0.0.1:${Number(port)}${path}`);
  return [answer.status, await answer.text()];
}

async function untilReady(worker: WorkerProcess): Promise<void> {
  for (let ready = false; !ready; ) ready = (await probe(worker, "/readyz"))[0] === 200;
}

describe("the process", function () {
  this.timeout(30_000);
  const ledger = useLedger();
  const fakes = useReality();
  const workers: WorkerProcess[] = [];
  const start = (ledgerUrl: string, name = "w") => {
    const worker = new WorkerProcess({ ledgerUrl, name });
    workers.push(worker);
    return worker;
  };
  afterEach(async () => {
    for (const worker of workers) worker.kill("SIGKILL");
    await Promise.all(workers.splice(0).map((worker) => worker.exited));
  });

  describe("whose database is down when it starts", () => {
    it("lives, says what it waits for, and serves when the database appears", async () => {
      const port = await freePort();
      const url = new URL(ledger.url);
      url.port = String(port);
      const worker = start(url.href);
      const line = await worker.said(({ msg }) => msg === "waiting for the ledger");
      assert.equal(line["reason"], "LedgerUnavailable");
      assert.match(String(line["error"]), new RegExp(`ECONNREFUSED 127.0.0.1:${port}`));
      assert.deepEqual(await probe(worker, "/healthz"), [200, "ok\n"]);
      assert.deepEqual(await probe(worker, "/readyz"), [503, "waiting for: ledger\n"]);
      const server = await passOn(port, ledger.postgres.port);
      try {
        await worker.said(({ msg }) => msg === "serving");
        await untilReady(worker);
        const [code, metrics] = await probe(worker, "/metrics");
        assert.equal(code, 200);
        assert.match(metrics, /^pawl_run_claims_total\{takeover="false"\} 0$/m);
        assert.equal(worker.lines.filter(({ msg }) => msg === "waiting for the ledger").length, 1, "said once");
        assert.ok(!worker.output.includes(url.password), "no password in the log");
      } finally {
        worker.kill("SIGKILL");
        await worker.exited;
        server.close();
      }
    });

    it("ends at once and well when it is told to, also while the database says nothing at all", async () => {
      const silent = createServer().listen(0, "127.0.0.1");
      await once(silent, "listening");
      const { port } = silent.address() as { port: number };
      const worker = start(`postgres://a:b@127.0.0.1:${port}/c`);
      const connected = once(silent, "connection");
      await worker.said(({ msg }) => msg === "listening");
      await connected;
      worker.kill("SIGTERM");
      const { code } = await worker.exited;
      assert.equal(code, 0);
      silent.close();
    });

    it("waits for a schema that is not there yet, with the command that makes it", async () => {
      const url = await ledger.postgres.create({ empty: true });
      const worker = start(url);
      const line = await worker.said(({ msg }) => msg === "waiting for the ledger");
      assert.deepEqual(
        [line["reason"], line["error"]],
        ["SchemaBehind", "the ledger has no schema yet: run `pawl migrate`"],
      );
      assert.deepEqual(await probe(worker, "/readyz"), [503, "waiting for: ledger\n"]);
      await migrate({ url });
      await worker.said(({ msg }) => msg === "serving");
      await untilReady(worker);
    });
  });

  describe("that is set up wrongly", () => {
    const url = "postgres://u:p@127.0.0.1:1/db";
    const run = (env: Record<string, string>, roles = "worker") =>
      serve(readConfig({ PAWL_KUBERNETES: "none", ...env }), parseRoles(roles));
    const cases: Record<string, [env: Record<string, string>, words: RegExp, roles?: string]> = {
      "a ledger that is no address": [{ PAWL_LEDGER_URL: "nonsense" }, /must read postgres:\/\/user:password@host/],
      "a listen address without port": [{ PAWL_LISTEN: "here" }, /PAWL_LISTEN must read host:port/],
      "renewals too rare": [{ PAWL_RENEW_MS: "5000" }, /PAWL_RENEW_MS must be less than half of PAWL_LEASE_MS/],
      "a number that is none": [{ PAWL_SEND_MS: "soon" }, /PAWL_SEND_MS /],
      "defaults that are no JSON": [{ PAWL_DEFAULTS: "{" }, /PAWL_DEFAULTS is not valid JSON/],
      "defaults that are no object": [{ PAWL_DEFAULTS: "null" }, /PAWL_DEFAULTS is no JSON object/],
      "a decision model that is none": [
        { PAWL_LEDGER_URL: url, PAWL_DEFAULTS: '{"models":{"decision":{"model":"m"}}}' },
        /models\.decision needs baseURL and model/,
      ],
      "an unknown role": [{}, /no such role: boss; there are controller, worker and all/, "boss"],
      "a controller without a cluster": [{ PAWL_LEDGER_URL: url }, /needs a cluster: set PAWL_KUBERNETES/, "all"],
    };
    for (const [title, [env, words, roles]] of Object.entries(cases)) {
      it(`by ${title} says so in one sentence, before it listens`, async () => {
        await assert.rejects(
          async () => run(env, roles),
          (error) => isPawlError(error, "terminal") && words.test(error.message) && !error.message.includes("\n"),
        );
      });
    }

    const commands: Record<string, [args: string[], words: RegExp]> = {
      "no ledger": [["run", "--roles=worker"], /PAWL_LEDGER_URL is not set: it names the PostgreSQL/],
      "an unknown command": [["dance"], /no such command: dance; see pawl --help/],
      "an unknown flag": [["run", "--fast"], /--fast/],
      "a trace of nothing": [["trace"], /pawl trace RUN \[STEP\]/],
    };
    for (const [title, [args, words]] of Object.entries(commands)) {
      it(`by ${title} ends with one sentence and exit code 1`, async () => {
        const { code, out, err } = await pawl(args);
        assert.equal(code, 1);
        assert.match(err, words);
        assert.match(err, /^pawl: [^\n]+\n$/, "one line");
        assert.equal(out, "");
      });
    }

    it("by a port that is taken ends with one sentence and exit code 1", async () => {
      const taken = createServer().listen(0, "127.0.0.1");
      await once(taken, "listening");
      const { port } = taken.address() as { port: number };
      const env = { PAWL_LEDGER_URL: ledger.url, PAWL_LISTEN: `127.0.0.1:${port}` };
      const { code, err } = await pawl(["run", "--roles=worker"], env);
      taken.close();
      assert.equal(code, 1);
      assert.match(err, new RegExp(`^pawl: PAWL_LISTEN: cannot listen on 127\\.0\\.0\\.1:${port}: [^\\n]+\\n$`));
    });
  });

  it("gives its lease back at once at SIGTERM in the middle of a model call, and another worker goes on", async () => {
    const run = await scene(ledger.db, fakes, [{ text: "the answer", hold: true, reword: false }]);
    const before = (await fakes.model.log()).length;
    const first = start(ledger.url, "first");
    await fakes.model.log(before + 1);
    first.kill("SIGTERM");
    assert.equal((await first.exited).code, 0);
    const row = await rowOf(ledger.db, run.runId);
    assert.deepEqual([row.status, row.lease_owner, row.attempts], ["running", null, 0]);
    assert.ok((row.due_ms ?? 1) <= 0, "due at once");
    const second = start(ledger.url, "second");
    await fakes.model.log(before + 2);
    await fakes.model.control("POST", "/release");
    await second.said(({ msg }) => msg === "a turn ended");
    assert.equal((await outcomeOf(ledger.db, run.runId)).reply, "the answer");
    assert.equal(
      second.lines.find(({ msg }) => msg === "claimed a run")?.["takeover"],
      false,
      "it was given, not taken",
    );
  });

  describe("at the command line", () => {
    it("explains its commands", async () => {
      const { code, out } = await pawl(["--help"]);
      assert.equal(code, 0);
      for (const command of ["run", "migrate", "transcript", "doctor", "adopt-ledger"]) {
        assert.match(out, new RegExp(`^  pawl ${command}\\b.* {2}\\S`, "m"));
      }
    });

    async function applied(name: string): Promise<string> {
      const agent = await engineAgent(ledger.db, ["write"]);
      const key = { namespaceUid: NAMESPACE_UID, key: name, specHash: "h", objectUid: uuidv7(), objectName: name };
      const ingested = await ingest(ledger.db, aMessage(agent.id, { text: "please\nwrite", applied: key }));
      if (!("runId" in ingested)) throw new Error("no run");
      return ingested.runId;
    }

    it("prints a whole turn: people, calls with their effects, the answer; nothing in it steers a terminal", async () => {
      const runId = await applied("story");
      const tool = writer([lost()]);
      const script = [asks(["write", { to: "x" }]), says("It is \u001b[31munclear\u001b[0m.\nLook.")];
      await drain(bench(ledger.db, script, [tool]).deps);
      const { code, out } = await pawl(["transcript", "story", "-n", "demo"], { PAWL_LEDGER_URL: ledger.url });
      assert.equal(code, 0);
      const [effect] = (await outcomeOf(ledger.db, runId)).effects;
      const [title, , asked, first, second, , step, call, result] = out.split("\n");
      assert.match(title ?? "", new RegExp(`^run ${runId}  demo/agent-\\S+  succeeded$`));
      assert.deepEqual([asked, first, second, step], ["alice:", "  please", "  write", "step 1"]);
      assert.equal(call, `  > write {"to":"x"}  [effect ${effect?.id} unknown]`);
      assert.match(result ?? "", /^ {4}Outcome unknown: /);
      assert.match(out, /:\n {2}It is \ufffd\[31munclear\ufffd\[0m\.\n {2}Look\.\n/);
    });

    it("says of a Run that nobody knows where else to look", async () => {
      const { code, err } = await pawl(["transcript", "nobody"], { PAWL_LEDGER_URL: ledger.url });
      assert.deepEqual([code, err], [1, "pawl: the ledger knows no Run default/nobody; -n names another namespace\n"]);
    });

    it("checks the ledger's invariants, and names what is broken", async () => {
      const url = await ledger.postgres.create();
      const good = await pawl(["doctor"], { PAWL_LEDGER_URL: url });
      assert.deepEqual([good.code, good.out], [0, "every invariant holds\n"]);
      await using db = new Database({ url });
      const agent = await engineAgent(db, []);
      await ingest(db, aMessage(agent.id));
      const { rows } = await db.pool.query<{ id: string }>("update conversations set live_run = null returning id");
      const bad = await pawl(["doctor"], { PAWL_LEDGER_URL: url });
      assert.equal(bad.code, 1);
      assert.match(bad.out, new RegExp(`^broken: i1_conversation_knows_its_live_run  ${rows[0]?.id}$`, "m"));
      assert.match(bad.out, /^1 broken$/m);
    });
  });
});
