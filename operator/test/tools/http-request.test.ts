import assert from "node:assert/strict";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { createServer as createTlsServer, type Server as TlsServer } from "node:tls";
import { type Fake, startFake, type WorldControl } from "@pawl/fakes";
import type { Tool, ToolContext, ToolOutcome } from "#engine/ports.ts";
import { recordFailpoints } from "#src/failpoints.ts";
import { allowance } from "#tools/addresses.ts";
import { createDialer, type Dialer } from "#tools/dialer.ts";
import { httpRequestTool, MAX_RECEIPT } from "#tools/http-request.ts";
import { MAX_OBSERVATION } from "#tools/body.ts";
import { ManualClock } from "../models/manual-clock.ts";
import { TEST_CERT, TEST_KEY } from "./tls-fixture.ts";
import { CALL_RUN } from "../support/call-run.ts";

const EFFECT = "0197c0de-0000-7000-8000-000000000001";

describe("http_request", () => {
  let world: Fake;
  let clock: ManualClock;
  let tool: Tool;

  before(async () => {
    world = await startFake("world");
  });
  after(async () => await world.stop());
  beforeEach(async () => {
    await world.control("DELETE", "/control");
    clock = new ManualClock();
    tool = httpRequestTool({ clock, dialer: createDialer({ clock, allowance: allowance(["127.0.0.1"]) }) });
  });
  afterEach(() => assert.equal(clock.sleeping, 0, "a timer outlived its request"));

  async function call(args: object, context: Partial<ToolContext> = {}, using: Tool = tool): Promise<ToolOutcome> {
    const parsed = using.parse(args);
    assert.ok(parsed.ok, parsed.ok ? "" : parsed.message);
    const signal = new AbortController().signal;
    return await using.execute(parsed.value, { run: CALL_RUN, signal, timeLimitMs: 30_000, ...context });
  }
  const write = async (path: string, context: Partial<ToolContext> = {}): Promise<ToolOutcome> =>
    await call({ method: "POST", url: world.url + path, body: { text: "a note" } }, { effectId: EFFECT, ...context });
  const set = async (control: WorldControl): Promise<void> => void (await world.control("PUT", "/control", control));

  it("is a query or an effect by method, on the address as target", () => {
    const args = (method: string): Record<string, unknown> => {
      const parsed = tool.parse({ method, url: "https://EXAMPLE.com:443/a#b" });
      assert.ok(parsed.ok);
      return { ...parsed.value };
    };
    for (const method of ["GET", "HEAD", "OPTIONS"]) assert.equal(tool.effect(args(method)), "tool.query");
    for (const method of ["POST", "PUT", "PATCH", "DELETE"]) assert.equal(tool.effect(args(method)), "tool.effect");
    assert.equal(tool.target(args("POST")), "https://example.com/a");
    assert.equal(tool.target(args("PUT")), tool.target(args("DELETE")));
  });

  it("names the host that answers as its source, and neither path nor query", () => {
    const parsed = tool.parse({ method: "GET", url: "https://EXAMPLE.com:8443/a?token=secret#b" });
    assert.ok(parsed.ok);
    assert.equal(tool.source?.(parsed.value), "example.com:8443");
    assert.equal(tool.audience, undefined, "for the conversation that asked");
  });

  it("writes with the effect's id as key and returns a receipt", async () => {
    const outcome = await write("/keyed/notes");
    assert.equal(outcome.kind, "confirmed");
    assert.match(outcome.observation, /^HTTP 201\ncontent-type: application\/json\n\n\{"id":\d+/);
    assert.equal(outcome.receipt["status"], 201);
    assert.deepEqual(outcome.receipt["result"], JSON.parse(outcome.observation.split("\n\n")[1] ?? ""));
    assert.equal(outcome.partial, false);
    assert.equal((await world.log()).at(-1)?.["key"], EFFECT);
  });

  it("the same effect sent again under its key is one write", async () => {
    const effectId = "0197c0de-0000-7000-8000-000000000002";
    const first = await write("/keyed/notes", { effectId });
    const second = await write("/keyed/notes", { effectId });
    assert.equal(second.observation, first.observation);
    const entries = (await world.log()).filter((entry) => entry["key"] === effectId);
    assert.deepEqual(
      entries.map((entry) => entry["outcome"]),
      ["write", "replay"],
    );
  });

  it("uses the header that the Agent declared", async () => {
    await write("/plain/notes", { keyHeader: "X-Once" });
    const headers = (await world.log()).at(-1)?.["headers"] as Record<string, string>;
    assert.equal(headers["x-once"], EFFECT);
    assert.equal(headers["idempotency-key"], undefined);
  });

  it("a declared header that the model sets too sends nothing", async () => {
    const before = (await world.log()).length;
    const args = { method: "POST", url: `${world.url}/plain/notes`, headers: { "x-once": "mine" } };
    const outcome = await call(args, { effectId: EFFECT, keyHeader: "X-Once" });
    assert.equal(outcome.kind, "failed");
    assert.equal((await world.log()).length, before);
  });

  it("reads without a key, on one connection that it closes", async () => {
    const outcome = await call({ method: "GET", url: `${world.url}/plain/nothing` }, { effectId: EFFECT });
    assert.equal(outcome.kind, "confirmed");
    const headers = (await world.log()).at(-1)?.["headers"] as Record<string, string>;
    assert.equal(headers["idempotency-key"], undefined);
    assert.equal(headers["connection"], "close");
  });

  describe("what became of a write", () => {
    const cases: [string, WorldControl & { path: string }, ToolOutcome["kind"], boolean][] = [
      ["cut after the write", { path: "/w/cut", mode: "cut" }, "unknown", true],
      ["500 after the write", { path: "/w/s500", mode: "error" }, "unknown", true],
      ["503 after the write", { path: "/w/s503", mode: "error", status: 503 }, "unknown", true],
      ["409", { path: "/w/s409", mode: "reject", status: 409 }, "unknown", false],
      ["422", { path: "/w/s422", mode: "reject", status: 422 }, "failed", false],
      ["501", { path: "/w/s501", mode: "reject", status: 501 }, "failed", false],
      ["a reset after the request was read", { path: "/w/drop", mode: "drop" }, "unknown", false],
      ["an answer that is not HTTP", { path: "/w/garbage", mode: "garbage" }, "unknown", true],
      ["a status and half a body", { path: "/w/partial", mode: "partial" }, "confirmed", true],
    ];
    for (const [title, control, kind, written] of cases) {
      it(`${title} is ${kind}`, async () => {
        await set(control);
        const outcome = await write(control.path);
        assert.equal(outcome.kind, kind, outcome.observation);
        if (kind === "unknown") assert.match(outcome.observation, /not known whether it was carried out/);
        await world.control("DELETE", "/control");
        const records = await call({ method: "GET", url: `${world.url}${control.path}` });
        assert.equal(records.observation.includes("a note"), written);
      });
    }

    it("a connection that is reset before anything was read is never taken for a success", async () => {
      await set({ refuseConnections: 1 });
      const outcome = await write("/plain/refused");
      assert.notEqual(outcome.kind, "confirmed");
      assert.equal(
        (await world.log()).some((entry) => entry["path"] === "/plain/refused"),
        false,
      );
    });

    it("nobody listening is failed: no byte left", async () => {
      const outcome = await call({ method: "POST", url: "http://127.0.0.1:1/x", body: "x" }, { effectId: EFFECT });
      assert.ok(outcome.kind === "failed" && outcome.unsent === true);
      assert.match(outcome.observation, /^Nothing was sent\. .*ECONNREFUSED/);
    });

    it("an answer that does not come within the time limit is unknown", async () => {
      await set({ path: "/plain/held", mode: "hold" });
      const before = (await world.log()).length;
      const asked = write("/plain/held");
      await world.log(before + 1);
      clock.advance(30_000);
      const outcome = await asked;
      assert.equal(outcome.kind, "unknown");
      assert.match(outcome.observation, /No answer within 30 s/);
    });

    it("cancelling does not abandon a write that left", async () => {
      await set({ path: "/plain/held", mode: "hold" });
      const before = (await world.log()).length;
      const stop = new AbortController();
      const asked = write("/plain/held", { signal: stop.signal });
      await world.log(before + 1);
      stop.abort();
      await world.control("POST", "/release");
      assert.equal((await asked).kind, "confirmed");
    });
  });

  it("cancelling ends a read at once", async () => {
    await set({ path: "/plain/held", mode: "hold" });
    const before = (await world.log()).length;
    const stop = new AbortController();
    const asked = call({ method: "GET", url: `${world.url}/plain/held` }, { signal: stop.signal });
    await world.log(before + 1);
    stop.abort();
    const outcome = await asked;
    assert.equal(outcome.kind, "failed");
    assert.match(outcome.observation, /cancelled/);
  });

  it("a failing read is a failed observation with what the server said", async () => {
    await set({ path: "/plain/gone", mode: "reject", status: 410 });
    const outcome = await call({ method: "GET", url: `${world.url}/plain/gone` });
    assert.equal(outcome.kind, "failed");
    assert.match(outcome.observation, /^HTTP 410[\s\S]*rejected/);
  });

  it("hands redirects back", async () => {
    await set({ path: "/plain/moved", mode: "reject", status: 302, location: "http://169.254.169.254/" });
    const outcome = await call({ method: "GET", url: `${world.url}/plain/moved` });
    assert.equal(outcome.kind, "confirmed");
    assert.match(outcome.observation, /location: http:\/\/169\.254\.169\.254\//);
  });

  it("bounds what it shows and what it reads", async () => {
    await set({ path: "/plain/big", mode: "big", bytes: 100_000 });
    const outcome = await call({ method: "GET", url: `${world.url}/plain/big` });
    assert.equal(outcome.kind, "confirmed");
    assert.ok(Buffer.byteLength(outcome.observation) <= MAX_OBSERVATION);
    assert.match(outcome.observation, /BEGIN[\s\S]*100000 bytes in all[\s\S]*END$/);
    assert.deepEqual([outcome.partial, outcome.receipt["result"]], [true, undefined]);
    assert.ok(Buffer.byteLength(JSON.stringify(outcome.receipt)) <= MAX_RECEIPT);
    await set({ path: "/plain/big", mode: "big", bytes: 32 * 1024 * 1024 });
    const endless = await call({ method: "GET", url: `${world.url}/plain/big` });
    assert.equal(endless.kind, "confirmed");
    assert.match(endless.observation, /at least/);
  });

  describe("send_by", () => {
    it("once it has passed nothing leaves, though the connection stands", async () => {
      const before = (await world.log()).length;
      const outcome = await write("/plain/late", { sendBy: clock.monotonic() });
      assert.ok(outcome.kind === "failed" && outcome.unsent === true);
      assert.match(outcome.observation, /Nothing was sent\. The time in which it could be sent had passed/);
      assert.equal((await world.log()).length, before);
    });

    it("is looked at as the last thing before the first byte", async () => {
      const seen: string[] = [];
      const socket = scriptedSocket(seen);
      const dialer: Dialer = { dial: async () => ({ ok: true, socket, address: "192.0.2.1" }) };
      const watched = { monotonic: () => (seen.push("clock"), 0), sleep: clock.sleep.bind(clock) };
      const slow = httpRequestTool({ clock: watched, dialer });
      recordFailpoints((name) => seen.push(name));
      try {
        const args = { method: "POST", url: "http://example.com/", body: "x" };
        const outcome = await call(args, { effectId: EFFECT, sendBy: 1 }, slow);
        assert.equal(outcome.kind, "confirmed");
      } finally {
        recordFailpoints(undefined);
      }
      const first = seen.indexOf("write");
      assert.deepEqual(seen.slice(0, first + 1), ["http_request:connected", "clock", "write"]);
      assert.deepEqual(
        seen.filter((name) => name.startsWith("http_request:")),
        ["http_request:connected", "http_request:sent", "http_request:answered"],
      );
    });
  });
});

/** A connected socket that notes when it is written to and then answers 201. */
function scriptedSocket(seen: string[]): Socket {
  const duplex = new Duplex({
    read: () => undefined,
    write(_chunk, _encoding, done) {
      seen.push("write");
      done();
      setImmediate(() => duplex.push("HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok"));
    },
  });
  return duplex as Socket;
}

describe("the dialer", () => {
  let server: Server;
  let port: number;
  let connections = 0;

  before(async () => {
    server = createServer((socket) => {
      connections += 1;
      socket.on("error", () => undefined).end("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    });
    await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
    port = (server.address() as AddressInfo).port;
  });
  after(async () => await new Promise<void>((resolve) => void server.close(() => resolve())));

  const dial = async (host: string, allow: string[], answers: string[][]): Promise<string> => {
    const clock = new ManualClock();
    const lookup = async (): Promise<string[]> => {
      const next = answers.shift();
      if (next === undefined) throw Object.assign(new Error("x"), { code: "ENOTFOUND" });
      return next;
    };
    const dialer = createDialer({ clock, allowance: allowance(allow), lookup });
    const dialled = await dialer.dial(new URL(`http://${host}:${port}/`), new AbortController().signal);
    assert.equal(clock.sleeping, 0);
    if (!dialled.ok) return dialled.why;
    dialled.socket.destroy();
    return `connected to ${dialled.address}`;
  };

  for (const host of [
    "127.0.0.1",
    "[::1]",
    "2130706433",
    "0x7f.1",
    "[::ffff:127.0.0.1]",
    "169.254.169.254",
    "10.0.0.1",
  ]) {
    it(`refuses ${host} without connecting`, async () => {
      const before = connections;
      assert.match(await dial(host, [], []), /not a public address/);
      assert.equal(connections, before);
    });
  }

  it("refuses a name that leads inside", async () => {
    assert.match(await dial("rebind.example", [], [["127.0.0.1"]]), /not a public address/);
  });

  it("connects to the address it checked and asks for no second one", async () => {
    assert.equal(
      await dial("rebind.example", ["127.0.0.0/8"], [["127.0.0.1"], ["10.0.0.1"]]),
      "connected to 127.0.0.1",
    );
  });

  it("leaves the inside addresses of a name out", async () => {
    assert.equal(await dial("both.example", ["127.0.0.1"], [["10.0.0.1", "127.0.0.1"]]), "connected to 127.0.0.1");
  });

  it("reaches what the install allows by name", async () => {
    assert.equal(await dial("world.pawl.svc", ["world.pawl.svc"], [["127.0.0.1"]]), "connected to 127.0.0.1");
  });

  it("says when a name does not resolve", async () => {
    assert.match(await dial("nowhere.example", [], []), /does not resolve \(ENOTFOUND\)/);
  });

  it("gives up on a resolver that does not answer", async () => {
    const clock = new ManualClock();
    const asked = Promise.withResolvers<void>();
    const dialer = createDialer({
      clock,
      allowance: allowance([]),
      lookup: async () => {
        asked.resolve();
        return await new Promise<string[]>(() => undefined);
      },
    });
    const dialling = dialer.dial(new URL("http://slow.example/"), new AbortController().signal);
    await asked.promise;
    clock.advance(3_000);
    const dialled = await dialling;
    assert.match(dialled.ok ? "" : dialled.why, /did not resolve in time/);
  });
});

describe("the dialer, over TLS", () => {
  let server: TlsServer;
  let port: number;
  const names: (string | false | null)[] = [];

  before(async () => {
    server = createTlsServer({ key: TEST_KEY, cert: TEST_CERT }, (socket) => {
      names.push(socket.servername);
      socket
        .on("error", () => undefined)
        .on("data", () => socket.end("HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n"));
    });
    server.on("tlsClientError", () => undefined);
    await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
    port = (server.address() as AddressInfo).port;
  });
  after(async () => await new Promise<void>((resolve) => void server.close(() => resolve())));

  const post = async (host: string, trusted: boolean): Promise<ToolOutcome> => {
    const clock = new ManualClock();
    const dialer = createDialer({
      clock,
      allowance: allowance(["127.0.0.1"]),
      lookup: async () => ["127.0.0.1"],
      ...(trusted ? { ca: TEST_CERT } : {}),
    });
    const tool = httpRequestTool({ clock, dialer });
    const parsed = tool.parse({ method: "POST", url: `https://${host}:${port}/`, body: "x" });
    assert.ok(parsed.ok);
    const signal = new AbortController().signal;
    return await tool.execute(parsed.value, { run: CALL_RUN, signal, timeLimitMs: 1_000, effectId: EFFECT });
  };

  it("presents the name to the checked address", async () => {
    const outcome = await post("world.example", true);
    assert.equal(outcome.kind, "confirmed", outcome.observation);
    assert.deepEqual(names, ["world.example"]);
  });

  it("sends nothing to a server whose certificate is for another name, or from nobody", async () => {
    const wrongName = await post("other.example", true);
    assert.equal(wrongName.kind, "failed");
    assert.match(wrongName.observation, /^Nothing was sent\..*ERR_TLS_CERT_ALTNAME_INVALID/);
    const unknownIssuer = await post("world.example", false);
    assert.match(unknownIssuer.observation, /^Nothing was sent\..*DEPTH_ZERO_SELF_SIGNED_CERT/);
  });
});
