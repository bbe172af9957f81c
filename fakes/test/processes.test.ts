import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { type Fake, startFake, type WorldControl } from "../src/index.ts";

const lines = (fake: Fake): Record<string, unknown>[] =>
  readFileSync(fake.logFile, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);

describe("a fake", () => {
  it("ends with its parent, however that one ends", async () => {
    const launch = fileURLToPath(new URL("../src/index.ts", import.meta.url));
    const folder = mkdtempSync(join(tmpdir(), "pawl-fakes-test-"));
    const log = JSON.stringify(join(folder, "log.jsonl"));
    const program = `const { startFake } = await import(${JSON.stringify(launch)});
      const fake = await startFake("world", { log: ${log} }); console.log(fake.url); setInterval(() => {}, 1e6);`;
    const parent = spawn(process.execPath, ["--input-type=module", "-e", program], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [line] = (await once(createInterface({ input: parent.stdout }), "line")) as [string];
    const gone = fetch(`${line}/log?atLeast=1`);
    gone.catch(() => undefined);
    assert.equal((await fetch(`${line}/healthz`)).status, 200);
    parent.kill("SIGKILL");
    await assert.rejects(gone);
    await assert.rejects(fetch(`${line}/healthz`));
    rmSync(folder, { recursive: true });
  });

  it("that cannot start says so instead of hanging", async () => {
    await assert.rejects(startFake("model", { arguments: { script: "/does/not/exist" } }), /ended before it was ready/);
  });
});

describe("the model fake, as a process", () => {
  let fake: Fake;
  before(async () => {
    fake = await startFake("model", { arguments: { key: "k" } });
  });
  after(async () => await fake.stop());
  const post = async (content: string, key = "k"): Promise<Response> =>
    await fetch(`${fake.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify({ model: "m", messages: [{ role: "user", content }] }),
    });

  it("says that it is scripted, in its log and in its answers", async () => {
    assert.equal(lines(fake)[0]?.["scripted"], true);
    const answer = (await (await post("hello")).json()) as { model: string; system_fingerprint: string };
    assert.equal(answer.model, "scripted/m");
    assert.match(answer.system_fingerprint, /scripted/);
  });

  it("writes down what it accepted, and apart from it what it refused", async () => {
    const before = (await fake.log()).length;
    assert.equal((await post("hello", "wrong")).status, 401);
    assert.equal((await post(" ")).status, 400);
    assert.equal((await post("script:unknown")).status, 400);
    assert.equal((await fake.log()).length, before);
    assert.equal(((await fake.control("GET", "/rejected")) as unknown[]).length, 3);
    assert.equal((await post("hello")).status, 200);
    assert.equal(lines(fake).length, (await fake.log()).length + 1);
    assert.ok(!readFileSync(fake.logFile, "utf8").includes("Bearer"));
  });

  it("holds an answer until it is released", async () => {
    await fake.control("PUT", "/script", { scripts: { held: { steps: [{ text: "at last", hold: true }] } } });
    const before = (await fake.log()).length;
    const asked = post("script:held");
    await fake.log(before + 1);
    assert.deepEqual(await fake.control("POST", "/release"), { released: 1 });
    assert.match(await (await asked).text(), /at last/);
  });

  it("lets go of one conversation's answers where it is told which", async () => {
    await fake.control("PUT", "/script", { scripts: { held: { steps: [{ text: "at last", hold: true }] } } });
    const before = (await fake.log()).length;
    const asked = ["one", "other"].map((which) => post(`script:held of=${which}`));
    await fake.log(before + 2);
    assert.deepEqual(await fake.control("POST", "/release?of=other"), { released: 1 });
    assert.match((await asked[1]?.then((answer) => answer.text())) ?? "", /at last/);
    assert.deepEqual(await fake.control("POST", "/release?of=other"), { released: 0 });
    assert.deepEqual(await fake.control("POST", "/release"), { released: 1 });
    await asked[0];
  });

  it("says what its model's name says, whatever it is asked", async () => {
    const answer = await fetch(`${fake.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: "Bearer k", "content-type": "application/json" },
      body: JSON.stringify({ model: "says:yes", messages: [{ role: "user", content: "script:unknown" }] }),
    });
    assert.equal(
      ((await answer.json()) as { choices: { message: { content: string } }[] }).choices[0]?.message.content,
      "yes",
    );
  });

  it("ends a run that asks for more than its script has", async () => {
    await fake.control("PUT", "/script", { scripts: { none: { steps: [{ text: "only" }] } } });
    const messages = [
      { role: "user", content: "script:none" },
      { role: "assistant", content: "only" },
      { role: "user", content: "and?" },
    ];
    const options = {
      method: "POST",
      headers: { authorization: "Bearer k" },
      body: JSON.stringify({ model: "m", messages }),
    };
    assert.match(await (await fetch(`${fake.url}/v1/chat/completions`, options)).text(), /has no step 1/);
  });

  it("refuses a script that it does not understand", async () => {
    await assert.rejects(fake.control("PUT", "/script", { scripts: { x: { steps: [{ txet: "typo" }] } } }), /400/);
  });
});

describe("the world fake, as a process", () => {
  let fake: Fake;
  before(async () => {
    fake = await startFake("world");
  });
  after(async () => await fake.stop());
  beforeEach(async () => void (await fake.control("DELETE", "/control")));
  const post = async (path: string, key: string, body = "{}", signal?: AbortSignal): Promise<Response> =>
    await fetch(fake.url + path, {
      method: "POST",
      body,
      headers: { "idempotency-key": key },
      ...(signal === undefined ? {} : { signal }),
    });
  const set = async (control: WorldControl): Promise<void> => void (await fake.control("PUT", "/control", control));
  const outcomes = async (path: string): Promise<unknown[]> =>
    (await fake.log()).filter((entry) => entry["path"] === path).map((entry) => entry["outcome"]);

  it("honours keys under /keyed and ignores them elsewhere", async () => {
    const answers = [await post("/keyed/a", "k1"), await post("/keyed/a", "k1"), await post("/keyed/a", "k1", "other")];
    assert.deepEqual(
      answers.map((answer) => answer.status),
      [201, 201, 422],
    );
    assert.deepEqual(await outcomes("/keyed/a"), ["write", "replay", "conflict"]);
    await post("/plain/a", "k1");
    await post("/plain/a", "k1");
    assert.deepEqual(await outcomes("/plain/a"), ["write", "write"]);
  });

  it("has written down a held write before anybody is answered, also when the client dies", async () => {
    await set({ path: "/keyed/held", mode: "hold", times: 1 });
    const before = (await fake.log()).length;
    const stop = new AbortController();
    const killed = post("/keyed/held", "k2", "{}", stop.signal);
    killed.catch(() => undefined);
    await fake.log(before + 1);
    assert.equal(lines(fake).at(-1)?.["outcome"], "write");
    stop.abort();
    await assert.rejects(killed);
    assert.equal((await post("/keyed/held", "k2")).status, 201);
    assert.deepEqual(await outcomes("/keyed/held"), ["write", "replay"]);
  });

  it("refuses connections without reading, and leaves no trace of them", async () => {
    await set({ refuseConnections: 1 });
    const before = (await fake.log()).length;
    // The control connection is kept alive and not refused; a fresh one is.
    const asked = request(`${fake.url}/plain/x`, { method: "POST", agent: false }).end("{}");
    await assert.rejects(once(asked, "response"), /ECONNRESET|EPIPE/);
    assert.equal((await fake.log()).length, before);
  });

  it("cuts, drops and fails as told, as often as told", async () => {
    await set({ path: "/plain/cut", mode: "cut", times: 1 });
    await assert.rejects(post("/plain/cut", "k"));
    assert.equal((await post("/plain/cut", "k")).status, 201);
    await set({ path: "/plain/drop", mode: "drop" });
    await assert.rejects(post("/plain/drop", "k"));
    await set({ path: "/plain/error", mode: "error" });
    assert.equal((await post("/plain/error", "k")).status, 500);
    assert.deepEqual(await outcomes("/plain/cut"), ["write", "write"]);
    assert.deepEqual(await outcomes("/plain/drop"), []);
    assert.deepEqual(await outcomes("/plain/error"), ["write"]);
  });

  it("shows a page of what happened, with nothing of it taken for markup", async () => {
    await post("/plain/page", "k", JSON.stringify("<script>alert(1)</script>"));
    const page = await (await fetch(fake.url)).text();
    assert.match(page, /requests accepted/);
    assert.ok(!page.includes("<script>"));
  });
});
