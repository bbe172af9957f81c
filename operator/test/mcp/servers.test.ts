/** The MCP client against a strict server of its own process: what it executed is the evidence. */
import assert from "node:assert/strict";
import { type Fake, LONG_NAME, type McpControl, startFake } from "@pawl/fakes";
import type { ListedTool, ServerSessions, ServerSpec, ServerToolWords, Tool, ToolContext } from "#engine/ports.ts";
import { CLOSE_MS, LIST_MS } from "#mcp/limits.ts";
import { mcpServers } from "#mcp/servers.ts";
import { systemClock } from "#src/clock.ts";
import { recordFailpoints } from "#src/failpoints.ts";
import { allowance } from "#tools/addresses.ts";
import { createDialer } from "#tools/dialer.ts";
import { CALL_RUN } from "../support/call-run.ts";

const EFFECT = "0197c0de-0000-7000-8000-000000000001";
const KEY = "Bearer mcp-test-key-0123456789";

describe("an MCP server", function () {
  this.timeout(20_000);
  let fake: Fake;
  let sessions: ServerSessions;
  const opened: ServerSessions[] = [];
  const server = (changes: Partial<ServerSpec> = {}): ServerSpec => ({
    name: "desk",
    url: `${fake.url}/mcp`,
    headers: [],
    tools: ["*"],
    trustHints: false,
    ...changes,
  });
  const open = (host = "127.0.0.1") => {
    const made = mcpServers({
      clock: systemClock,
      dialer: createDialer({ clock: systemClock, allowance: allowance([host]) }),
      credentials: {
        get: (_namespace, ref, to) =>
          Promise.resolve(
            ref.name === "desk-key"
              ? { kind: "found", value: `${KEY}\n` }
              : { kind: ref.name === "shy" ? "refused" : "missing", message: `${ref.name} for ${to}` },
          ),
      },
    }).open("demo");
    opened.push(made);
    return made;
  };
  const never = new AbortController().signal;
  const control = (change: McpControl) => fake.control("PUT", "/control", change);
  const rejected = () => fake.control("GET", "/rejected");

  before(async () => {
    fake = await startFake("mcp");
  });
  after(async () => await fake.stop());
  beforeEach(async () => {
    await fake.control("DELETE", "/control");
    sessions = open();
  });
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((one) => one.close()));
    assert.deepEqual(await rejected(), [], "the client broke the protocol");
    assert.deepEqual(await fake.control("GET", "/sessions"), [], "a session was left behind");
  });

  async function listed(spec = server(), from = sessions): Promise<ListedTool[]> {
    const answer = await from.list(spec, never);
    assert.ok(answer.kind === "listed", JSON.stringify(answer));
    return [...answer.tools];
  }
  async function tool(name: string, words: ServerToolWords = {}): Promise<Tool> {
    const found = (await listed()).find((one) => one.name === name);
    assert.ok(found !== undefined);
    return sessions.tool(server(), found, `desk_${name}`, words);
  }
  const context = (changes: Partial<ToolContext> = {}): ToolContext => ({
    run: CALL_RUN,
    signal: never,
    timeLimitMs: 2_000,
    ...changes,
  });
  const write = { effectId: EFFECT };
  const executed = async (name: string) => (await fake.log()).filter((entry) => entry["tool"] === name);

  it("lists its tools page by page, in JSON and in event streams that stay open, and tells what it leaves out", async () => {
    await control({ pageSize: 2 });
    for (const answers of ["json", "stream"] as const) {
      await control({ answers });
      const answer = await open().list(server(), never);
      assert.ok(answer.kind === "listed");
      assert.deepEqual(
        answer.tools.map(({ name }) => name),
        [
          "create_ticket",
          "find_ticket",
          "close_ticket",
          "read_ticket",
          "add_note",
          "calendar.create",
          "calendar/create",
          LONG_NAME,
        ],
      );
      assert.deepEqual(answer.leftOut, ["desk: odd_schema (its schema is no schema of an object)"]);
    }
  });

  it("offers the tools that the Agent names only", async () => {
    const tools = await listed(server({ tools: ["*_ticket", "add_note"] }));
    assert.deepEqual(
      tools.map(({ name }) => name),
      ["create_ticket", "find_ticket", "close_ticket", "read_ticket", "add_note"],
    );
  });

  it("is called, in JSON and in a stream, and its answer is kept as a receipt", async () => {
    for (const answers of ["json", "stream"] as const) {
      await control({ answers });
      const create = await tool("create_ticket");
      const outcome = await create.execute({ title: answers }, context(write));
      assert.ok(outcome.kind === "confirmed");
      assert.deepEqual(outcome.receipt["result"], JSON.parse(outcome.observation));
      assert.equal((outcome.receipt["result"] as { title: string }).title, answers);
    }
  });

  it("is told the declared key, which the model neither sees nor sets", async () => {
    const create = await tool("create_ticket", { key: "key" });
    assert.deepEqual(Object.keys(create.parameters["properties"] as object), ["title"]);
    const parsed = create.parse({ title: "t", key: "the model's own" });
    assert.deepEqual(parsed, { ok: true, value: { title: "t" } });
    const once = await create.execute({ title: "t" }, context({ ...write, keyHeader: "key" }));
    const again = await create.execute({ title: "t" }, context({ ...write, keyHeader: "key" }));
    assert.deepEqual(once, again);
    const calls = (await executed("create_ticket")).filter(
      (entry) => (entry["arguments"] as { key?: string }).key === EFFECT,
    );
    assert.equal(calls.length, 2);
  });

  it("says what is wrong with arguments before anything is sent", async () => {
    const close = await tool("close_ticket");
    for (const [args, says] of [
      [{ id: "one" }, /id: must be integer/],
      [{}, /must have required property 'id'/],
      [{ id: 1, force: true }, /there is no argument "force"/],
      [[], /must be an object/],
    ] as const) {
      const parsed = close.parse(args);
      assert.match(parsed.ok ? "" : parsed.message, says);
    }
  });

  // C32: what the server executed is the truth; what is known of it here must never be more.
  const unclear: [title: string, mode: McpControl, done: number][] = [
    ["that executes and drops the connection", { mode: "cut", tool: "add_note" }, 1],
    ["that executes and breaks off its stream", { mode: "halfway", tool: "add_note" }, 1],
    ["that drops the connection before it executes", { mode: "drop", tool: "add_note" }, 0],
    ["that executes and does not answer in time", { mode: "hold", tool: "add_note" }, 1],
    ["that answers with an internal error", { mode: "error", tool: "add_note" }, 1],
    ["that answers with a status of its own failure", { mode: "status", tool: "add_note", status: 502 }, 0],
    ["that says that the tool failed", { mode: "toolError", tool: "add_note" }, 1],
  ];
  for (const [title, mode, done] of unclear) {
    it(`${title} leaves a write unknown, sent once (C32)`, async () => {
      const before = (await executed("add_note")).length;
      const note = await tool("add_note");
      await control(mode);
      const outcome = await note.execute({ text: title }, context({ ...write, timeLimitMs: 300 }));
      assert.equal(outcome.kind, "unknown", outcome.observation);
      assert.match(outcome.observation, /not known whether it was carried out/);
      assert.equal((await executed("add_note")).length - before, done);
    });
  }

  const refused: [title: string, mode: McpControl][] = [
    ["that does not take the arguments", { mode: "refuse", tool: "add_note" }],
    ["that does not know the method", { mode: "refuse", tool: "add_note", code: -32_601 }],
    ["that does not let anybody in", { mode: "status", tool: "add_note", status: 403 }],
    ["that sends the call elsewhere", { mode: "status", tool: "add_note", status: 307 }],
  ];
  for (const [title, mode] of refused) {
    it(`${title} has not carried out a write`, async () => {
      const before = (await executed("add_note")).length;
      const note = await tool("add_note");
      await control(mode);
      const outcome = await note.execute({ text: title }, context(write));
      assert.equal(outcome.kind, "failed", outcome.observation);
      assert.equal((await executed("add_note")).length, before);
    });
  }

  it("whose error results mean that nothing was applied is believed where the Agent says so", async () => {
    const note = await tool("add_note", { errorMeansNotApplied: true });
    await control({ mode: "toolError", tool: "add_note" });
    assert.equal((await note.execute({ text: "x" }, context(write))).kind, "failed");
  });

  it("that fails in a read has told nothing, and nothing is unknown", async () => {
    const find = await tool("find_ticket");
    for (const mode of ["cut", "error", "toolError"] as const) {
      await control({ mode, tool: "find_ticket" });
      assert.equal((await find.execute({ key: "x" }, context())).kind, "failed", mode);
    }
  });

  it("that was restarted is asked for a new session, and the call is carried out once", async () => {
    const before = (await executed("add_note")).length;
    const note = await tool("add_note");
    await fake.control("POST", "/restart");
    const outcome = await note.execute(
      { text: "after" },
      context({ ...write, sendBy: systemClock.monotonic() + 5_000 }),
    );
    assert.equal(outcome.kind, "confirmed", outcome.observation);
    assert.equal((await executed("add_note")).length - before, 1);
  });

  it("is sent nothing once the time in which a write may leave has passed", async () => {
    const before = (await executed("add_note")).length;
    const note = await tool("add_note");
    const outcome = await note.execute({ text: "late" }, context({ ...write, sendBy: systemClock.monotonic() }));
    assert.ok(outcome.kind === "failed" && outcome.unsent === true);
    assert.equal((await executed("add_note")).length - before, 0);
    assert.match(outcome.observation, /Nothing was sent/);
  });

  it("is called between failpoints of its own", async () => {
    const note = await tool("add_note");
    const passed: string[] = [];
    recordFailpoints((name) => passed.push(name));
    await note.execute({ text: "x" }, context(write));
    recordFailpoints(undefined);
    assert.deepEqual(passed, ["mcp:connected", "mcp:sent", "mcp:answered"]);
  });

  it("that speaks another protocol is told apart from one that is away", async () => {
    await control({ protocolVersion: "2099-01-01" });
    const answer = await sessions.list(server(), never);
    assert.ok(answer.kind === "waiting");
    assert.match(
      answer.message,
      /^MCP server desk at 127\.0\.0\.1:\d+ cannot be reached: No session could be opened: it speaks protocol 2099/,
    );
  });

  it("that is away, or that nobody may reach, is waited for by name", async () => {
    const away = await sessions.list(server({ url: "http://127.0.0.1:1/mcp" }), never);
    assert.ok(away.kind === "waiting" && away.reason === "McpServerUnreachable");
    assert.match(away.message, /^MCP server desk at 127\.0\.0\.1:1 cannot be reached: .*ECONNREFUSED/);
    const inside = await open("example.test").list(server(), never);
    assert.ok(inside.kind === "waiting");
    assert.match(inside.message, /not a public address/);
  });

  it("gets its Secrets as headers, and without one is waited for with the reason that models have", async () => {
    await using guarded = await startFake("mcp", { arguments: { key: KEY.slice("Bearer ".length) } });
    const of = (name: string) =>
      server({ url: `${guarded.url}/mcp`, headers: [{ name: "Authorization", secretRef: { name, key: "key" } }] });
    assert.equal((await listed(of("desk-key"))).length, 8);
    for (const [name, reason] of [
      ["absent", "SecretMissing"],
      ["shy", "SecretRefused"],
    ] as const) {
      const answer = await open().list(of(name), never);
      assert.deepEqual(answer, { kind: "waiting", reason, message: `${name} for ${new URL(guarded.url).host}` });
    }
    await sessions.close();
    assert.deepEqual(await guarded.control("GET", "/rejected"), []);
  });

  it("is given bounded time", () => {
    assert.deepEqual([LIST_MS, CLOSE_MS], [10_000, 1_000]);
  });
});
